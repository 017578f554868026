"""The real daemon under fire: kills, odd agents, bad tracker weather, clocks that jump. `make chaos`."""
