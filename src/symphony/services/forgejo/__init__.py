"""Forgejo and Gitea."""
