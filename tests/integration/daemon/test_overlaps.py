"""Two agents change the same file: the later one is told in its next turn, and people see it."""

from pathlib import Path

import anyio
import pytest

from harness.project import Project
from harness.serving import serving
from symphony.api.documents import state_document
from symphony.api.history import History, utc_now
from symphony.scheduler import ContinueRun, Overlap, TurnEnded

pytestmark = pytest.mark.asyncio


async def test_the_later_agent_is_told_once_and_both_runs_show_it(project: Project) -> None:
    project.workflow(agent={"max_concurrent_agents": 2, "max_turns": 5})
    first, second = project.root / "first", project.root / "second"
    project.issue("SYM-1", [{"write": "shared.txt", "text": "one"}], [{"wait_for": str(second)}])
    change = [{"wait_for": str(first)}, {"write": "shared.txt", "text": "two"}, {"commit": "two"}]
    wait = [{"wait_for": str(second)}]
    project.issue("SYM-2", change, [{"write": "more.txt", "text": "x"}], wait)
    async with serving(project) as served:
        await served.watcher.until_seen(ContinueRun)
        await anyio.Path(first).touch()
        await served.watcher.until_seen(ContinueRun, 3)
        state = served.service.state
        assert state is not None
        shown = state_document(state, History(), now_ms=0, now=utc_now()).running
        await anyio.Path(second).touch()
    told = [(one.issue.identifier, one.turn, one.overlaps) for one in served.watcher.all(ContinueRun)[:3]]
    assert told == [
        ("SYM-1", 2, ()),
        ("SYM-2", 2, (Overlap(identifier="SYM-1", paths=("shared.txt",)),)),
        ("SYM-2", 3, ()),
    ]
    assert set(served.watcher.all(TurnEnded)[2].changed) == {"more.txt", "shared.txt"}
    overlaps = {row.issue_identifier: row.overlaps for row in shown}
    assert {name: [(one.issue_identifier, one.paths) for one in row] for name, row in overlaps.items()} == {
        "SYM-1": [("SYM-2", ("shared.txt",))],
        "SYM-2": [("SYM-1", ("shared.txt",))],
    }
    sent = [await anyio.Path(path).read_text() for path in _transcripts(project)]
    assert [text.count("SYM-1: shared.txt") for text in sent if "SYM-1: shared.txt" in text] == [1]


def _transcripts(project: Project) -> list[Path]:
    return [path for path in project.state_dir.rglob("*.jsonl") if "transcript" in str(path)]
