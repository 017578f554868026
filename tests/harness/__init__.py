"""What several tests share: a real project on disk, driven through the command line as a user would."""
