"""The HTTP face of the daemon: a JSON API over TCP and a control socket, over snapshots only."""
