"""One-shot agents: any shell command, started anew for every turn; what it leaves is the result."""
