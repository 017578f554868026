"""The commands: one file for each, or for each group of verbs that are alike."""
