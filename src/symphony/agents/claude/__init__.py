"""The Claude Code backend: a stream of JSON lines, one process and one conversation per session."""
