"""`python -m harness.hanging_daemon FILE run …`: `symphony`, whose scheduler hangs once FILE is there.

It hangs in a decision, as a bug would have it: nothing is awaited any more. `FILE.hangs` is there then,
and FILE is not, so that the next one lives.
"""

import sys
from pathlib import Path
from unittest.mock import patch

from symphony.cli import serving
from symphony.cli.main import main
from symphony.scheduler import Command, Event, State, StepFunction, step

__all__ = ["hanging_at"]


def hanging_at(file: Path) -> StepFunction:
    """The scheduler's step until the file is there."""

    def hanging_step(state: State, fact: Event, now_ms: int) -> tuple[State, tuple[Command, ...]]:
        if file.exists():
            file.rename(file.with_suffix(".hangs"))
            while True:
                pass
        return step(state, fact, now_ms)

    return hanging_step


if __name__ == "__main__":
    with patch.object(serving, "step", hanging_at(Path(sys.argv[1]))):
        main(sys.argv[2:], prog_name="symphony")
