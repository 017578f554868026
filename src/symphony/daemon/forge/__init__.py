"""Pull requests of finished work, and feedback on them for agents."""
