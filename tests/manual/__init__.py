"""The man page, made of what the commands say of themselves."""
