"""Skills stored outside the repository: versions, assignments, proposals."""
