"""Symphony: a daemon that turns tracker issues into supervised coding-agent sessions."""

__version__ = "0.1.0"
