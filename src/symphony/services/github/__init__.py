"""GitHub, on github.com and GitHub Enterprise Server."""
