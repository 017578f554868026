"""The daemon's memory across restarts: an SQLite file whose loss costs history, never correctness."""
