"""How much the tests try: a few examples of each kind for a change, all of them in `make nightly`."""

import os

__all__ = ["NIGHTLY", "SCHEDULES"]

SCHEDULES = os.environ.get("SYMPHONY_SIMULATION_EXAMPLES")
"""How many random schedules are asked for; `None` for those of every change."""

NIGHTLY = SCHEDULES is not None or bool(os.environ.get("SYMPHONY_NIGHTLY"))
"""Whether there is time for every example."""
