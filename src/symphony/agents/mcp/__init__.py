"""Tools of the daemon for agents that speak MCP: a server in the daemon, and a relay started by the agent."""
