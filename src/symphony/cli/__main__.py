"""`python -m symphony.cli`: as `python -m symphony`."""

from symphony.__main__ import main

main()
