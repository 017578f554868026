"""The vocabulary: issues, ids, failures, tools, limits. No I/O, no clock, no randomness."""
