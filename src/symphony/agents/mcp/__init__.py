"""Our tools by the Model Context Protocol, for agents that take them so: a server, and its relay."""
