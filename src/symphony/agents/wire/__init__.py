"""The wires that agents speak on, sans-IO: lines, JSON-RPC, and a connection of both with a process."""
