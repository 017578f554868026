"""What goes wrong with a pull request is said on each surface, from the log to the notification."""

import html
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from contract.forges import forge_desk
from contract.repository import STRANGER
from contract.vendor import Fault, Given
from harness.asking import asking
from harness.chronicle import START, conforms, sent
from harness.pages import DemoOperator
from harness.pictures import DAEMON, drawn, known, status_of
from harness.pull_requests import BRANCH, Daemon, given, looks_later, opened
from symphony.api.documents import issue_document, pull_request_document, state_document
from symphony.api.history import History
from symphony.cli.render.explain import explain_issue
from symphony.cli.render.status import status_view
from symphony.daemon.notify.notifications import of_pull_request
from symphony.domain import CheckState, PullState
from symphony.scheduler import PullRequestJudged
from symphony.services.pulls import FULL_EVERY

pytestmark = pytest.mark.asyncio

HOSTILE = "x\x1b[2J\u202e<script>`@ann`\ny"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Something that goes wrong.

    Attributes:
        happens: brings a daemon there.
        code: what its pull request waits for then.
        words: what each surface says.
        logged: the line of the log that says it, if not that of a verdict.
    """

    happens: Callable[[Daemon], Awaitable[object]]
    code: str
    words: str
    logged: str = "pull_request_judged"


def refused(answer: Given | Fault) -> Callable[[Daemon], Awaitable[object]]:
    """Nothing can be opened."""

    async def happens(daemon: Daemon) -> None:
        daemon.desk.vendor.fail_next(answer, times=20)
        daemon.works()
        await daemon.looks()

    return happens


def unseen(answer: Given | Fault) -> Callable[[Daemon], Awaitable[object]]:
    """One that is open cannot be looked at."""

    async def happens(daemon: Daemon) -> None:
        await opened(daemon)
        daemon.desk.vendor.fail_next(answer, times=20)
        await looks_later(daemon)

    return happens


async def looks_thoroughly(daemon: Daemon) -> None:
    """Until what the forge reports as no change is seen too."""
    for _ in range(FULL_EVERY):
        await looks_later(daemon)


async def archived(daemon: Daemon) -> None:
    daemon.desk.repository.archived = True
    daemon.works()
    await daemon.looks()


async def renamed(daemon: Daemon) -> None:
    await opened(daemon)
    daemon.desk.repository.name = "octo-team/site"
    await looks_thoroughly(daemon)


async def pushed_to(daemon: Daemon) -> None:
    daemon.desk.repository.push(BRANCH, await opened(daemon))
    await looks_later(daemon)


async def pushed_to_in_mid_turn(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    await looks_later(daemon)
    daemon.tell(given(daemon)[0])
    daemon.advance(1_000)
    theirs = daemon.desk.repository.push(BRANCH, pull)
    await looks_later(daemon)
    daemon.works(pushed=False)
    pull.sha = theirs
    await looks_later(daemon)


async def branch_deleted(daemon: Daemon) -> None:
    """The forge closes a pull request without a branch."""
    pull = await opened(daemon)
    pull.head_deleted = True
    daemon.desk.repository.end(pull, PullState.CLOSED)
    await looks_later(daemon)


async def removed(daemon: Daemon) -> None:
    await opened(daemon)
    daemon.desk.repository.pulls.clear()
    await looks_later(daemon)


async def too_many_comments(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.PASSED)
    for _ in range(501):
        daemon.desk.repository.say(pull, STRANGER, "+1")
    await looks_later(daemon)


async def log_unread(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, "test", CheckState.FAILED)
    daemon.desk.vendor.fail_next(Given(status=500, body={}), when="/logs")
    await looks_later(daemon)
    assert "Its log is not available" in given(daemon)[0].text


async def hostile_check(daemon: Daemon) -> None:
    pull = await opened(daemon)
    daemon.desk.repository.check(pull, HOSTILE, CheckState.PENDING)
    await looks_later(daemon)


async def hostile_branch(daemon: Daemon) -> None:
    daemon.configure(open="ready", feedback={"conflict": False})
    pull = await opened(daemon)
    pull.base, pull.conflicts = HOSTILE, True
    await looks_thoroughly(daemon)


FORBIDDEN = Given(status=403, body={"message": "Resource not accessible by personal access token"})
LIMITED = Given(status=403, body={"message": "API rate limit exceeded"}, headers={"retry-after": "60"})
DOWN = Given(status=502, raw=b"down")
FAILED, UNSEEN = "job_failed", "pull_requests_not_observed"

CASES = {
    "token without scope": Case(
        happens=refused(FORBIDDEN), code="opening", words="not accessible", logged=FAILED
    ),
    "archived": Case(happens=archived, code="opening", words="archived", logged=FAILED),
    "renamed": Case(happens=renamed, code="not_ours", words="it is not ours"),
    "pushed to": Case(happens=pushed_to, code="foreign_head", words="which the daemon did not push"),
    "pushed to in mid-turn": Case(
        happens=pushed_to_in_mid_turn, code="foreign_head", words="which the daemon did not push"
    ),
    "branch deleted": Case(
        happens=branch_deleted,
        code="closed",
        words="closed",
        logged="pull_request_ended",
    ),
    "removed": Case(happens=removed, code="gone", words="any more"),
    "too many comments": Case(happens=too_many_comments, code="incomplete", words="did not send all"),
    "log unread": Case(happens=log_unread, code="feedback", words="news for the agent"),
    "hostile check": Case(happens=hostile_check, code="checks_pending", words="x <script>`@ann` y"),
    "hostile branch": Case(happens=hostile_branch, code="conflicts", words="x <script>`@ann` y"),
    "rate limit": Case(happens=refused(LIMITED), code="opening", words="rate limit", logged=FAILED),
    "rate limit later": Case(
        happens=unseen(LIMITED), code="checks_not_started", words="rate limit", logged=UNSEEN
    ),
    "outage": Case(happens=refused(DOWN), code="opening", words="502", logged=FAILED),
    "outage later": Case(happens=unseen(DOWN), code="checks_not_started", words="502", logged=UNSEEN),
    "no network": Case(
        happens=unseen(Fault.NO_CONNECTION),
        code="checks_not_started",
        words="GitHub",
        logged=UNSEEN,
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_what_goes_wrong_is_said_on_each_surface(name: str, tmp_path: Path) -> None:
    case, desk = CASES[name], forge_desk("github")
    daemon = Daemon(desk, tmp_path, open="ready")
    with capture_logs() as logs:
        await case.happens(daemon)
    for event in daemon.posted:
        if isinstance(event, PullRequestJudged):
            daemon.tell(event)
    record = daemon.pulls.shown()["1"]
    assert record.code == case.code

    moment: Any = {"now_ms": daemon.now, "now": START, "pull_requests": {"1": record}}
    history = History(now=lambda: START, now_ms=lambda: daemon.now)
    state = state_document(daemon.state, history, **moment)
    issue = issue_document(daemon.state, history, "SYM-1", **moment)
    assert issue is not None
    status = status_of({**sent(state), "source": "daemon", "daemon": DAEMON})
    operator = DemoOperator()
    operator.document = state
    async with asking(operator) as client:
        board = (await client.get("/")).text
    shown = {
        "log": "\n".join(str(line) for line in logs if line["event"] == case.logged),
        "API": msgspec.json.encode(pull_request_document(record)).decode(),
        "status": drawn(status_view(status, workflow="W", width=240), width=240),
        "explain": explain_issue(known(sent(issue))).answer,
        "board": html.unescape(re.sub(r"<[^>]*>", "", board)),
    }
    if record.needs_you:
        shown["notification"] = str(of_pull_request(record, 0))
    conforms(pull_request_document(record), "PullRequest")
    assert {surface: text for surface, text in shown.items() if case.words not in text} == {}
    for text in shown.values():
        assert desk.vendor.secret not in text
        assert not re.search("\x1b\\[2J|\u202e", text)
    assert "<script>`" not in board
