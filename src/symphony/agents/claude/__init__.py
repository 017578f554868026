"""The claude backend: drives Claude Code over its stream of JSON lines."""
