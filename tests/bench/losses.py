"""An issue is finished by a person while its agent is in the middle of a burst: what is counted then?"""

from dataclasses import dataclass
from pathlib import Path

from bench.kit import Scene

_ISSUE = "LOSS-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Over all tries: what agents wrote, how many of it were not counted, token totals that differ."""

    sent: int
    events: int
    tokens: int


def losses(place: Path, agent: tuple[str, ...], *, events: int, tries: int) -> Lost:
    """The issue turns `Done` in mid-burst; a session of the same kind without events tells what else counts.

    Answers to our own requests are signs of life too, so the daemon counts a few more than were notified.
    """
    base = _finished_in_mid_turn(place / "base", agent, events=0)
    tried = [_finished_in_mid_turn(place / f"try-{number}", agent, events=events) for number in range(tries)]
    return Lost(
        sent=sum(one.sent for one in tried),
        events=sum(abs(one.sent + base.counted - base.sent - one.counted) for one in tried),
        tokens=sum(abs(one.tokens_sent - one.tokens) for one in tried),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    sent: int
    counted: int
    tokens_sent: int
    tokens: int


def _finished_in_mid_turn(place: Path, agent: tuple[str, ...], *, events: int) -> _Session:
    switches = ("--hold", "--events", str(events), "--bursts", "1")
    scene = Scene(place=place, agent=agent, switches=switches, poll_ms=1_000)
    scene.issue(_ISSUE)
    with scene.run("symphony"):
        scene.wait_agents("turn", 1)
        scene.open(f"{_ISSUE}.1")
        scene.wait_agents("half" if events else "burst_end", 1)
        scene.open(f"{_ISSUE}.end")
        scene.issue(_ISSUE, state="Done")
        ended = scene.wait_told("ended", 1)[0]
        said = scene.wait_agents("turn_end", 1)[0]
    return _Session(
        sent=said.figures[0], counted=ended.figures[0], tokens_sent=said.figures[1], tokens=ended.figures[1]
    )
