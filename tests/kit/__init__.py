"""The test kit, which is not part of the wheel: simulator, model server, speakers of other protocols."""
