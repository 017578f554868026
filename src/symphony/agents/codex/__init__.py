"""The Codex app-server backend: JSON-RPC over the child's stdio, one process and one thread per session."""
