"""The process that speaks with Ray. `__main__` is the only module that imports it."""
