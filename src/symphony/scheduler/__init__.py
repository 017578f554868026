"""The pure scheduler: `step(state, input, now_ms) -> (state, commands)`; no I/O, no clock, no randomness."""
