"""One run of an issue: its skills, texts, session, transcript and traces."""
