"""Lets `python -m symphony.skills` look at skills where nothing else of Symphony is wanted."""

import sys

from symphony.skills.command import main

sys.exit(main())
