"""Learning runs, and the evaluation of their proposals."""
