"""The pages of the daemon: HTML made from the documents of the API, complete without JavaScript."""
