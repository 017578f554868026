"""The process that talks to Ray. `__main__` is the only module that imports Ray."""
