"""The daemon's memory across restarts: an SQLite file. Losing it costs history, never correctness."""
