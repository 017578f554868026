"""The HTTP interface of the daemon: a JSON API over TCP and a control socket. It reads only snapshots."""
