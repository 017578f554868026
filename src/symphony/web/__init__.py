"""The daemon over HTTP: a JSON API over TCP and a control socket. It sees snapshots, never the runtime."""
