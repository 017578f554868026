"""Logs, metrics and traces, with secrets masked."""
