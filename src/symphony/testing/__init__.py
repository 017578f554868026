"""The public test kit: a scripted agent and a loopback model server; imported by tests and the demo only."""
