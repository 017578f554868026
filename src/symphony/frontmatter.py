"""YAML front matter from libyaml events, bounded, with line numbers. (Written by its own commit.)"""
