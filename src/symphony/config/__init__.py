"""`WORKFLOW.md`: document, typed settings, strict template, live store."""
