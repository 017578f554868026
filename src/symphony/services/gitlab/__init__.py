"""GitLab, on gitlab.com and other servers."""
