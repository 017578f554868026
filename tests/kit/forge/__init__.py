"""Forges on the loopback interface: one scripted repository, as GitHub, GitLab or Forgejo tells it."""
