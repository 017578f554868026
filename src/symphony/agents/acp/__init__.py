"""The backend for every agent that speaks the Agent Client Protocol; what differs is told by a profile."""
