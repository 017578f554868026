"""`python -m symphony.cli`."""

from symphony.cli import main

main()
