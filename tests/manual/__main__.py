"""Writes the man page: `make man`."""

from manual.page import PAGE, page

PAGE.write_text(page(), encoding="utf-8")
