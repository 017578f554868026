"""Where things run: the `Host` protocol and its implementations. Workspaces and agents speak only to it."""
