"""One directory per issue: made, populated from git, checked, delivered, kept safe and removed."""
