"""A tracker that is a file of lines, and an agent that reads its prompt from stdin."""
