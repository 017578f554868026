"""GitHub, GitLab and Forgejo: one package per service, for its issues and pull requests."""
