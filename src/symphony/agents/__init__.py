"""Coding agents: one session interface, one backend per agent kind."""
