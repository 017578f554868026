"""Gets at the tracker of a workflow for a command: asks it, finds an issue there, writes to it."""

import os
import re
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio

from symphony.cli.failures import CommandError
from symphony.cli.serving import open_store
from symphony.cli.tracker_look import Look, look_at
from symphony.daemon.bound import Bound, bind, redaction_for
from symphony.domain.failures import Category, SymphonyError
from symphony.domain.issue import Issue
from symphony.domain.plain import one_line
from symphony.observability.logs import configure
from symphony.processes.local import LocalHost
from symphony.processes.secrets import read_secrets
from symphony.trackers.base import CheckingCapability, CommentCapability, MovingCapability, TrackerError

__all__ = ["check_tracker", "comment_on", "move_to"]

_LIMIT_S = 120.0
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_REFUSED = frozenset({401, 403})
_T = TypeVar("_T")


def check_tracker(workflow: Path) -> Look:
    """Look at the tracker. Raises `SymphonyError`."""
    return _asking(workflow, look_at)


def move_to(workflow: Path, name: str, state: str) -> tuple[str, str, str]:
    """Move an issue; its identifier, and its state before and after. Raises `SymphonyError`."""

    async def move(bound: Bound) -> tuple[str, str, str]:
        if not isinstance(bound.tracker, MovingCapability):
            raise _cannot(bound, "move issues")
        issue = await _find(bound, name)
        after = await bound.tracker.move_issue(issue.id, state)
        return issue.identifier, issue.state, after

    return _asking(workflow, move)


def comment_on(workflow: Path, name: str, body: str) -> tuple[str, str]:
    """Write a comment; the identifier of the issue, and the id of the comment. Raises `SymphonyError`."""

    async def comment(bound: Bound) -> tuple[str, str]:
        if not isinstance(bound.tracker, CommentCapability):
            raise _cannot(bound, "take comments")
        issue = await _find(bound, name)
        key = secrets.token_hex(16)
        return issue.identifier, await bound.tracker.put_comment(issue.id, body, key=key, comment_id=None)

    return _asking(workflow, comment)


def _asking(workflow: Path, ask: Callable[[Bound], Awaitable[_T]]) -> _T:
    environment = read_secrets(os.environ).environment
    configure(stream=sys.stderr, level="error")
    loaded = open_store(workflow, environment, acknowledged=True).current()
    configure(stream=sys.stderr, level="error", redaction=redaction_for(loaded, environment))
    bound = bind(loaded, host=LocalHost(), environment=environment)

    async def within_limit() -> _T:
        with anyio.fail_after(_LIMIT_S):
            return await ask(bound)

    try:
        return anyio.run(within_limit)
    except TimeoutError as error:
        hint = "see whether the tracker can be reached"
        raise CommandError.of(f"no answer within {_LIMIT_S:g} s", hint=hint) from error
    except CommandError:
        raise
    except SymphonyError as error:
        raise SymphonyError(bound.redaction.failure(error.failure)) from error


async def _find(bound: Bound, name: str) -> Issue:
    """By identifier or id: among those in active states, by id, and then among all there are."""
    wanted = name.strip().casefold()
    if found := await _listed(bound, bound.active_states, wanted):
        return found
    if _ID.fullmatch(name.strip()) and (found := await _by_id(bound, name.strip())):
        return found
    others = dict.fromkeys(bound.terminal_states)
    if isinstance(bound.tracker, CheckingCapability):
        others |= dict.fromkeys((await bound.tracker.look()).states)
    rest = [state for state in others if state not in bound.active_states]
    if found := await _listed(bound, rest, wanted):
        return found
    raise CommandError.of(
        f"{bound.settings.tracker.kind} has no issue {one_line(name, 80)!r}",
        hint="give its identifier as `symphony status` shows it, or its id",
    )


async def _listed(bound: Bound, states: list[str] | tuple[str, ...], wanted: str) -> Issue | None:
    issues = await bound.tracker.fetch_issues_by_states(states)
    return next((one for one in issues if wanted in {one.identifier.casefold(), one.id.casefold()}), None)


async def _by_id(bound: Bound, issue_id: str) -> Issue | None:
    """Null too where the service finds that this can be no id of its own."""
    try:
        found = await bound.tracker.fetch_issues_by_ids([issue_id])
    except TrackerError as error:
        failure = error.failure
        if failure.category is not Category.TRACKER_STATUS or failure.status in _REFUSED:
            raise
        return None
    return next(iter(found), None)


def _cannot(bound: Bound, what: str) -> CommandError:
    kind = bound.settings.tracker.kind
    return CommandError.of(f"a tracker of kind {kind} does not {what}", hint="use the tracker itself")
