"""What Symphony costs beside a bare program that does the same: `make bench`, or `python -m bench --help`."""
