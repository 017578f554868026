"""The scripted agent in a manner that the dice choose for each attempt, and a witness of who else is there.

    python agent.py FOLDER DICE

In FOLDER each issue has a directory: `lock`, held for as long as an agent of the issue lives, `attempt-N`,
one per agent that was started, and `overlap-<pid>`, should one begin while another is alive. Only the first
few attempts are odd, so that every issue can come to an end.
"""

import fcntl
import os
import sys
from pathlib import Path
from random import Random

from symphony.testing.scripted_agent.__main__ import main as behave

ODD_ATTEMPTS = 3
_STUBBORN = ("--ignore-eof", "--ignore-sigterm", "--own-session-child")
MANNERS: tuple[tuple[str, ...], ...] = (
    (),
    _STUBBORN,
    ("--garbage", "--split-lines"),
    ("--stderr-flood", "400000", "--huge-line", "600000"),
    ("--unknown-request",),
    ("--slow-start", "300"),
    ("--exit-on", "initialize"),
    ("--exit-on", "turn/start:3"),
    ("--silent-after", "turn/start"),
    ("--silent-after", "turn/start", *_STUBBORN),
)


def manner(dice: str, issue: str, attempt: int) -> tuple[str, ...]:
    """How the agent of an attempt behaves."""
    choices = MANNERS if attempt < ODD_ATTEMPTS else MANNERS[:3]
    return Random(f"{dice} {issue} {attempt}").choice(choices)  # noqa: S311 - to be thrown again


def main(folder: Path, dice: str) -> int:
    if os.environ.get("SYMPHONY_RUN_ID", "").endswith("-preflight"):
        return behave([])
    issue = Path.cwd().name
    place = folder / issue
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (place / f"overlap-{os.getpid()}").touch()
        attempt = len(list(place.glob("attempt-*")))
        (place / f"attempt-{attempt}").touch()
        return behave([*manner(dice, issue, attempt)])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
