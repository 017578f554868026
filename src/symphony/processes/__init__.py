"""Start, find and end processes: the `Host` protocol and its implementation for this machine."""
