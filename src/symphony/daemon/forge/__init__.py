"""Pull requests of finished work, and what agents are told about them."""
