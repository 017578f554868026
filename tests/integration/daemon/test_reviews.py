"""Finished work is sent back or approved: by the command line, on a daemon in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from anyio import to_thread

from harness.project import Project
from harness.serving import Served, serving
from symphony.api import models
from symphony.cli.client import Client, RefusedError, connect
from symphony.scheduler import ResultStatus, RunEnded

pytestmark = pytest.mark.asyncio
REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}
WORK = [
    {"write": "app.py", "text": "def run():\n    return 1\n"},
    {"commit": "Begin the app"},
    REVIEW,
]


def client(project: Project) -> Client:
    found = connect(project.repo / "WORKFLOW.md", project.env())
    assert found is not None
    return found


async def look(project: Project, reviewer: str = "lea", since: str | None = None) -> models.Review:
    """The review, which `reviewer` has seen then."""
    shown = await to_thread.run_sync(
        lambda: client(project).review("SYM-1", reviewer=reviewer, since=since), abandon_on_cancel=True
    )
    assert shown is not None
    return shown


async def decide(project: Project, decision: str, **given: Any) -> models.ReviewOutcome:
    wanted = models.ReviewGiven(decision=decision, **{"reviewer": "lea", **given})
    done = await to_thread.run_sync(lambda: client(project).decide(wanted, "SYM-1"), abandon_on_cancel=True)
    assert done is not None
    return done


async def refusal(project: Project, decision: str, **given: Any) -> str | None:
    """The code with which a decision is refused."""
    with pytest.raises(RefusedError) as refused:
        await decide(project, decision, **given)
    return refused.value.reason


def on_line(file: str, line: int, text: str, *, old: bool = False) -> models.ReviewLine:
    return models.ReviewLine(file=file, line=line, text=text, old=old)


@asynccontextmanager
async def ready(project: Project, *turns: list[dict[str, Any]], **sections: Any) -> AsyncIterator[Served]:
    """A daemon whose only issue waits for a review."""

    def prepare() -> None:
        project.workflow(agent={"skills": {"enabled": False}}, **sections)
        project.issue("SYM-1", *(turns or (WORK,)))

    await to_thread.run_sync(prepare)
    async with serving(project) as served:
        await until_ready(served)
        yield served


async def until_ready(served: Served) -> None:
    def holds() -> bool:
        results = served.watcher.states[-1].results.values() if served.watcher.states else ()
        return any(result.status is ResultStatus.READY for result in results)

    await served.watcher.until(holds)


async def git(project: Project, *arguments: str) -> str:
    return await to_thread.run_sync(partial(project.git, *arguments))


async def test_work_that_is_sent_back_comes_with_the_remarks_to_the_next_session(project: Project) -> None:
    async with ready(project) as served:
        shown = await look(project)
        assert [(file.path, file.insertions) for file in shown.files] == [("app.py", 2)]
        assert (shown.approval, shown.send_back.allowed, shown.approve.allowed) == ("by_hand", True, True)
        assert await refusal(project, "send_back") == "nothing_said"
        assert await refusal(project, "approve") == "not_merged"
        assert await refusal(project, "send_back", comments=(on_line("app.py", 3, "x"),)) == "no_such_line"

        given = {"message": "Almost", "comments": (on_line("app.py", 2, "Return two"),)}
        done = await decide(project, "send_back", **given)
        assert (done.decision, done.done, done.state) == ("send_back", True, "Todo")
        await served.watcher.until_seen(RunEnded, 2)
        (said,) = await to_thread.run_sync(partial(project.comments, "SYM-1", kind="person"))
    for part in ("Almost", "app.py:2", "    return 1", "Return two", shown.head[:12]):
        assert part in said
    prompts = [path.read_text() for path in (project.state_dir / "transcripts").glob("*.jsonl")]
    assert sum("Return two" in text for text in prompts) == 1, "the second session alone is told"


async def test_an_approval_merges_what_was_shown_and_closes_the_issue(project: Project) -> None:
    async with ready(project, review={"merge": True}) as served:
        assert await refusal(project, "approve") == "not_shown"
        shown = await look(project)
        done = await decide(project, "approve")
        assert (done.way, done.base, done.state) == ("merge", "main", "Done")
        assert await git(project, "rev-parse", "main") == done.commit == shown.head
        assert (project.repo / "app.py").read_text() == "def run():\n    return 1\n"
        assert await git(project, "status", "--porcelain", "--untracked-files=no") == ""
        await served.watcher.until(lambda: status(served) is ResultStatus.ENDED)
        assert await refusal(project, "approve") == "not_ready"


def status(served: Served) -> ResultStatus:
    return served.watcher.states[-1].results["SYM-1"].status
