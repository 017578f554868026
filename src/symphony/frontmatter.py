"""YAML front matter from libyaml events, bounded, with line numbers."""
