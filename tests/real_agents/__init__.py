"""`make agents`: drives every real agent there is, longer than CI does, and writes down what it showed."""
