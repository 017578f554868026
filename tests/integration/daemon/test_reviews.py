"""Finished work is sent back or approved: by the command line, on a daemon in this process."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from html import unescape
from typing import Any

import httpx
import pytest
from anyio import to_thread

from harness.project import DEADLINE_S, Project
from harness.serving import Served, serving
from symphony.api import models
from symphony.cli.client import Client, RefusedError, connect
from symphony.daemon.state_dir import JOURNAL_FILE
from symphony.scheduler import ResultStatus, RunEnded

pytestmark = pytest.mark.asyncio
PAGE = "/issues/SYM-1/diff"
JSON = "application/json"
REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}
WORK: list[dict[str, Any]] = [
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
async def browser(project: Project) -> AsyncIterator[httpx.AsyncClient]:
    """A person's own browser."""
    transport = httpx.AsyncHTTPTransport(uds=project.control_socket, verify=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://symphony", timeout=DEADLINE_S) as made:
        yield made


def review_form(page: str) -> dict[str, str]:
    """The hidden fields of the form with the decision."""
    form = page.partition('id="review-form"')[2].partition("</form>")[0]
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


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


@pytest.mark.slow
async def test_a_branch_that_moved_is_not_merged_and_what_is_new_is_shown(project: Project) -> None:
    more: list[dict[str, Any]] = [{"write": "more.py", "text": "x = 1\n"}, {"commit": "Go on"}, REVIEW]
    async with ready(project, WORK, review={"merge": True}) as served:
        seen = await look(project)
        await to_thread.run_sync(partial(project.issue, "SYM-1", more))
        await served.watcher.until_seen(RunEnded, 2)
        await until_ready(served)
        assert await refusal(project, "approve") == "head_moved"
        assert await refusal(project, "send_back", message="x") == "head_moved"
        assert await git(project, "rev-list", "--count", "main") == "1"
        now = await look(project)
        assert (now.looked_at, now.head != seen.head) == (seen.head, True)
        news = await look(project, since=seen.head)
        assert [file.path for file in news.files] == ["more.py"]
        assert [one.head for one in now.deliveries] == [now.last, seen.head]
        before = await to_thread.run_sync(
            lambda: client(project).review("SYM-1", reviewer="lea", since=None, until=seen.head)
        )
        assert before is not None
        assert (before.head, before.last, [file.path for file in before.files]) == (
            seen.head,
            now.head,
            ["app.py"],
        )
        assert (await decide(project, "approve")).commit == now.head


@pytest.mark.slow
async def test_of_two_people_the_second_is_told(project: Project) -> None:
    async with ready(project, tracker={"active_states": ["Todo"], "terminal_states": ["Done"]}):
        for reviewer in ("lea", "max"):
            await look(project, reviewer)
        done = await decide(project, "send_back", message="Once more")
        assert done.done
        code = await refusal(project, "send_back", reviewer="max", message="No, this")
        assert code in {"decided", "not_ready"}
        comments = await to_thread.run_sync(partial(project.comments, "SYM-1", kind="person"))
        assert len(comments) == 1


@pytest.mark.slow
async def test_two_people_with_the_forms_open_decide_once_and_keep_what_they_wrote(project: Project) -> None:
    """The second approves what the first sent back a moment ago."""
    async with ready(project, review={"merge": True}), browser(project) as first, browser(project) as second:
        forms = [review_form((await one.get(PAGE)).text) for one in (first, second)]
        back = {**forms[0], "message": "Once more", "decision": "send_back"}
        sent = await first.post("/actions/review", data=back)
        assert "sent back with a comment" in (await first.get(sent.headers["location"])).text
        approved = {**forms[1], "message": "Well done", "decision": "approve"}
        refused = await second.post("/actions/review", data=approved)
        page = unescape((await second.get(refused.headers["location"])).text)
        assert "this work was sent back already" in page
        again = unescape((await second.get(PAGE)).text)
        assert "Well done</textarea>" in again
        assert await git(project, "rev-list", "--count", "main") == "1"
        comments = await to_thread.run_sync(partial(project.comments, "SYM-1", kind="person"))
    assert [("Once more" in one, "Well done" in one) for one in comments] == [(True, False)]


@pytest.mark.slow
async def test_what_a_second_person_wrote_is_shown_once_the_work_and_its_workspace_are_gone(
    project: Project,
) -> None:
    """The first approves, the issue ends, and its workspace is cleaned; then the second sends it back."""
    async with ready(project, review={"merge": True}) as served, browser(project) as lea:
        form = review_form((await lea.get(PAGE)).text)
        line = {**form, "path": "app.py", "line": "n2", "text": "Return two"}
        await lea.post("/actions/review-draft", data=line)
        await look(project, "max")
        await decide(project, "approve", reviewer="max")
        await served.watcher.until(lambda: status(served) is ResultStatus.ENDED)
        await served.watcher.until(lambda: not (project.workspaces / "SYM-1").exists())
        sent = await lea.post(
            "/actions/review", data={**form, "message": "No, not so", "decision": "send_back"}
        )
        page = unescape((await lea.get(sent.headers["location"])).text)
    assert "this work was approved already" in page
    assert "No, not so\n\napp.py:2\nReturn two</textarea>" in page


async def test_what_a_person_was_told_to_be_done_is_in_the_journal(project: Project) -> None:
    """A daemon that is killed right after its answer loses nothing of it."""

    def stored() -> set[tuple[str, str]]:
        with closing(sqlite3.connect(project.state_dir / JOURNAL_FILE)) as journal:
            return {*journal.execute("SELECT name, value FROM settings")}

    async with ready(project), browser(project) as lea:
        form = review_form((await lea.get(PAGE)).text)
        for path, data in (
            ("/actions/review-draft", {**form, "path": "app.py", "line": "n2", "text": "Return two"}),
            ("/actions/review", {**form, "message": "Nearly", "decision": "keep"}),
            ("/actions/keep-text", {**form, "place": "comment:SYM-1", "text": "By the w"}),
            ("/api/v1/control/pause", None),
            ("/api/v1/control/resume", None),
        ):
            before = await to_thread.run_sync(stored)
            answer = await lea.post(path, data=data, headers={} if data else {"content-type": JSON})
            after = await to_thread.run_sync(stored)
            assert answer.status_code in {202, 204, 303}, answer.text
            assert after != before, path


@pytest.mark.slow
async def test_a_comment_on_a_line_that_is_gone_is_refused_and_shown_again(project: Project) -> None:
    shorter: list[dict[str, Any]] = [{"write": "app.py", "text": "x = 1\n"}, {"commit": "Shorten it"}, REVIEW]
    async with ready(project) as served, browser(project) as lea:
        await lea.get(PAGE)
        opened = review_form((await lea.get(f"{PAGE}?file=0&at=n2")).text)
        await to_thread.run_sync(partial(project.issue, "SYM-1", shorter))
        await served.watcher.until_seen(RunEnded, 2)
        await until_ready(served)
        line = {**opened, "path": "app.py", "line": "n2", "text": "Return two"}
        sent = await lea.post("/actions/review-draft", data=line)
        page = unescape((await lea.get(sent.headers["location"])).text)
    assert "app.py has no line 2" in page
    assert "Return two</textarea>" in page


@pytest.mark.slow
async def test_a_conflict_refuses_the_approval_and_keeps_the_issue(project: Project) -> None:
    async with ready(project, review={"merge": True}) as served:
        await look(project)
        await to_thread.run_sync(project.write, "app.py", "another\n")
        await git(project, "add", "app.py")
        await git(project, "commit", "--quiet", "-m", "Another app")
        before = await git(project, "rev-parse", "main")
        assert await refusal(project, "approve") == "conflict"
        assert status(served) is ResultStatus.READY
        assert await git(project, "rev-parse", "main") == before
        assert await git(project, "status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.slow
async def test_an_issue_that_was_deleted_is_not_merged(project: Project) -> None:
    async with ready(project, review={"merge": True}) as served:
        await look(project)
        await to_thread.run_sync((project.repo / ".symphony/issues/SYM-1.md").unlink)
        await served.watcher.until(lambda: "SYM-1" not in served.watcher.states[-1].results)
        given = models.ReviewGiven(decision="approve", reviewer="lea")
        answer = to_thread.run_sync(lambda: client(project).decide(given, "SYM-1"), abandon_on_cancel=True)
        assert await answer is None, "there is no such issue"
        assert await git(project, "rev-list", "--count", "main") == "1"


@pytest.mark.slow
async def test_a_dirty_checkout_refuses_the_approval_and_keeps_the_issue(project: Project) -> None:
    async with ready(project, review={"merge": True}) as served:
        await look(project)
        readme = project.repo / "README.md"
        await to_thread.run_sync(readme.write_text, "not committed\n")
        assert await refusal(project, "approve", message="Good") == "dirty"
        assert (status(served), readme.read_text()) == (ResultStatus.READY, "not committed\n")
        await git(project, "checkout", "README.md")
        assert (await decide(project, "approve", message="Good")).done
        (said,) = await to_thread.run_sync(partial(project.comments, "SYM-1", kind="person"))
        assert "approved" in said


@pytest.mark.slow
async def test_work_that_a_person_merged_is_recognised(project: Project) -> None:
    async with ready(project) as served:
        shown = await look(project)
        assert shown.command.endswith("merge symphony/SYM-1")
        await git(project, "merge", "--quiet", "symphony/SYM-1")
        done = await decide(project, "approve")
        assert (done.way, done.base, done.state) == ("by_hand", "main", "Done")
        await served.watcher.until(lambda: status(served) is ResultStatus.ENDED)


@pytest.mark.slow
async def test_work_that_did_not_pass_is_approved_only_as_such(project: Project) -> None:
    verify = {"commands": ["test -e nothing"]}  # it fails on the base, too
    async with ready(project, verify=verify, review={"merge": True}):
        shown = await look(project)
        assert (shown.verified is not None and shown.verified.status) == "base_failed"
        assert await refusal(project, "approve") == "unverified"
        assert (await decide(project, "approve", unverified=True)).way == "merge"
