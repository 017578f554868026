"""`make bench`: measure, print the table, write it into docs/PERFORMANCE.md."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from bench import figures, report
from bench.asking import asking
from bench.figures import Figure
from bench.footprint import footprint
from bench.hosts import at_once, available, carried, second_workspace
from bench.journal import remembering
from bench.kit import agent_argv
from bench.latency import launch, restart, seen_to_start, slot_gap
from bench.losses import losses
from bench.pump import pump
from bench.sessions import sessions
from bench.soak import soak
from bench.trackers import polling
from bench.transcripts import transcribing
from bench.workspaces import workspaces

__all__ = ["FULL", "SMOKE", "Size", "measure"]

_PAGE = Path(__file__).parents[2] / "docs" / "PERFORMANCE.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is done; the figures mean something at the full size only."""

    events: int
    bursts: int
    tries: int
    issues: int
    slots: int
    rounds: int
    gap_issues: int
    gap_rounds: int
    seen: int
    launches: int
    idle: tuple[int, ...]
    files: int
    commits: int
    checkouts: int
    small: int
    remembered: int
    claims: int
    restarts: int
    polled: int
    ticks: int
    board: int
    asked: int
    soaked: int
    look_every: int
    host_files: int
    host_rounds: int
    carried: int
    host_slots: int
    at_once: int
    hosts: int


FULL = Size(
    events=50_000, bursts=5, tries=3, issues=500, slots=50, rounds=2, gap_issues=30, gap_rounds=3, seen=20,
    launches=7, idle=(10, 50, 200), files=500, commits=36_000, checkouts=7, small=50, remembered=50_000,
    claims=1_000, restarts=5,
    polled=500, ticks=48, board=10_000, asked=9, soaked=10_000, look_every=1_000,
    host_files=2_960, host_rounds=7, carried=60, host_slots=8, at_once=200, hosts=4,
)  # fmt: skip
SMOKE = Size(
    events=500, bursts=1, tries=1, issues=6, slots=2, rounds=1, gap_issues=3, gap_rounds=1, seen=1,
    launches=1, idle=(1, 3), files=20, commits=30, checkouts=1, small=2, remembered=500,
    claims=3, restarts=1,
    polled=120, ticks=12, board=20, asked=1, soaked=4, look_every=2,
    host_files=0, host_rounds=0, carried=0, host_slots=0, at_once=2, hosts=2,
)  # fmt: skip

Part = Callable[[], Sequence[Figure]]


def parts(place: Path, agent: tuple[str, ...], size: Size) -> dict[str, Part]:
    """What can be measured, by name."""

    def latency() -> Sequence[Figure]:
        gap = slot_gap(place / "gap", agent, issues=size.gap_issues, rounds=size.gap_rounds)
        seen, saved_ms = seen_to_start(place / "seen", agent, issues=size.seen)
        return (
            figures.of_delay("slot_gap", "Slot freed to next agent, median", gap, limit_ms=100),
            figures.of_delay("seen_to_start", "Issue seen to its agent, median", seen, limit_ms=None),
            figures.of_saved(saved_ms),
        )

    def at_launch() -> Sequence[Figure]:
        found = launch(place / "launch", agent, rounds=size.launches)
        return (figures.of_delay("launch", "Launch to first agent, median", found, limit_ms=1_000),)

    def again() -> Sequence[Figure]:
        found = restart(place / "restart", agent, claims=size.claims, rounds=size.restarts)
        title = f"Restart to first agent with {size.claims:,} issues in the journal, median"
        return (figures.of_delay("restart", title, found, limit_ms=None),)

    def many() -> Sequence[Figure]:
        found = sessions(place / "many", agent, issues=size.issues, limit=size.slots, rounds=size.rounds)
        return figures.of_sessions(found, issues=size.issues, limit=size.slots)

    def trees() -> Sequence[Figure]:
        found = workspaces(
            place / "trees", files=size.files, commits=size.commits, rounds=size.checkouts, count=size.small
        )
        return figures.of_workspaces(found)

    def far() -> Sequence[Figure]:
        """Sessions on hosts; nothing where there is no OpenSSH server."""
        if not available():
            return ()
        found: list[Figure] = []
        if size.host_rounds:
            second = second_workspace(place / "far", agent, files=size.host_files, rounds=size.host_rounds)
            found += figures.of_second_workspace(second)
        if size.carried:
            by = carried(
                place / "carried", agent, issues=size.carried, limit=size.host_slots, events=size.events
            )
            found += figures.of_carried(by)
        many = at_once(place / "at-once", agent, sessions=size.at_once, hosts=size.hosts)
        return (*found, *figures.of_at_once(many, sessions=size.at_once, hosts=size.hosts))

    return {
        "pump": lambda: figures.of_pump(pump(place / "pump", agent, events=size.events, bursts=size.bursts)),
        "transcripts": lambda: figures.of_transcribing(
            transcribing(place / "transcribing", events=size.events, rounds=size.bursts)
        ),
        "losses": lambda: figures.of_losses(
            losses(place / "losses", agent, events=size.events, tries=size.tries)
        ),
        "sessions": many,
        "latency": latency,
        "launch": at_launch,
        "restart": again,
        "footprint": lambda: figures.of_footprint(footprint(place / "footprint", agent, counts=size.idle)),
        "workspaces": trees,
        "journal": lambda: figures.of_remembering(
            remembering(place / "journal", events=size.remembered, rounds=size.rounds + 1)
        ),
        "asking": lambda: figures.of_asking(
            asking(place / "asking", agent, issues=size.board, rounds=size.asked)
        ),
        "soak": lambda: figures.of_soak(
            soak(place / "soak", agent, sessions=size.soaked, every=size.look_every, limit=size.slots)
        ),
        "hosts": far,
        "trackers": lambda: figures.of_polling(polling(issues=size.polled, ticks=size.ticks), size.polled),
    }


def measure(place: Path, size: Size, *, only: Sequence[str] = (), say: Callable[[str], None]) -> list[Figure]:
    """All figures, or those of the parts named."""
    found: list[Figure] = []
    for name, part in parts(place, agent_argv(place), size).items():
        if not only or name in only:
            begun = time.monotonic()
            found += part()
            say(f"{name}: {time.monotonic() - begun:.0f} s")
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--check", action="store_true", help="exit with 1 when an aim is missed")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: only to see that it runs")
    parser.add_argument("--no-write", action="store_true", help="leave docs/PERFORMANCE.md alone")
    parser.add_argument(
        "only", nargs="*", metavar="PART", help="pump, losses, sessions, latency, launch, ..."
    )
    asked = parser.parse_args(arguments)
    say = partial(print, file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="symphony-bench-", ignore_cleanup_errors=True) as place:
        size = SMOKE if asked.smoke else FULL
        found = measure(Path(place), size, only=asked.only, say=say)
    if asked.json:
        sys.stdout.write(f"{report.as_json(found)}\n")
    else:
        report.show(found, Console())
    if not (asked.no_write or asked.smoke or asked.only):
        report.write(found, _PAGE)
        say("written to docs/PERFORMANCE.md")
    return 1 if asked.check and report.missed(found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
