"""Learning runs, and the evaluation of what they propose."""
