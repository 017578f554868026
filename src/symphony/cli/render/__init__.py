"""How documents are shown to people: tables, screens and lines."""
