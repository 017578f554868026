"""Notifications for people."""
