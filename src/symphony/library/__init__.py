"""Skills that live beside the repository: versions, assignments, proposals."""
