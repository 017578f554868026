"""A run on a host, and its frames over the wire to `HostReports`."""

from typing import Any

from harness.scheduling import make_issue
from symphony.daemon import frames
from symphony.daemon.frames import CarriedSkills, FrameDecoder, FrameEncoder
from symphony.daemon.hosts.host_reports import HostReports
from symphony.domain import Phase, Redaction
from symphony.library.model import Resolution
from symphony.scheduler import StartRun

SECRET = "tracker-token-0123456789"
ISSUE = make_issue("1")


def door(**changes: Any) -> HostReports:
    given = CarriedSkills(resolution=Resolution(skills=(), reason="all"), data={"given": (3, b"")})
    made: dict[str, Any] = {
        "host": "build-1",
        "branch": "symphony/SYM-1",
        "workspace": "/home/agent/work/workspaces/SYM-1",
        "carried": given,
        "directory": ".agents/skills",
        "redaction": Redaction([SECRET]),
    }
    command = StartRun(run_id="d1-1", issue=ISSUE, attempt=None, phase=Phase(name="build", reason="all"))
    return HostReports(command, **made | changes)


def sent(frame: frames.WorkerFrame, by: HostReports | None = None) -> Any:
    """The frame over the wire and through the door."""
    decoder = FrameDecoder()
    decoder.feed(FrameEncoder().encode(frame))
    taken = decoder.take()
    assert isinstance(taken, frames.WorkerFrame)
    return (by or door()).check(taken)
