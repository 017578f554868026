"""GitHub, GitLab and Forgejo: issues and pull requests of one service beside each other."""
