"""The backend for agents that speak the Agent Client Protocol; a profile holds what differs between them."""
