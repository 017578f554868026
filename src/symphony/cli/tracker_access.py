"""Gets at the tracker of a workflow for a command: asks it, finds an issue there, writes to it."""

import difflib
import os
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio

from symphony.api.models import utc_text
from symphony.cli.documents import Blocker, SeenIssue, ServiceLimit, StateSeen, TrackerLook, TrackerProblem
from symphony.cli.failures import CommandError
from symphony.cli.serving import open_store
from symphony.config import read_secrets
from symphony.daemon.context import RuntimeContext, build_context, redaction_for
from symphony.domain import Category, Failure, Issue, SymphonyError, normalise_state, one_line
from symphony.observability.logs import configure
from symphony.processes.local import LocalHost
from symphony.trackers.base import (
    AccountCapability,
    AccountInfo,
    CommentCapability,
    MovingCapability,
    TrackerError,
    skipped_by,
)
from symphony.trackers.http import wall_ms
from symphony.trackers.remote import RemoteTracker

# One look at the tracker: who we are there, its states, what is left of its limits, a sample issue.
#
# `symphony tracker check` prints it, and `symphony doctor` makes findings of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen. `issues` counts those in active states, of which `sample` is the first."""

    kind: str
    login: str | None
    scope: str | None
    active: tuple[str, ...]
    states: tuple[StateSeen, ...]
    limits: tuple[ServiceLimit, ...]
    issues: int
    sample: Issue | None
    skipped: tuple[Failure, ...]
    problems: tuple[TrackerProblem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; warnings may be."""
        return not any(problem.severity == "error" for problem in self.problems)

    def document(self) -> TrackerLook:
        """What is printed with `--json`."""
        return TrackerLook(
            ok=self.ok,
            kind=self.kind,
            login=self.login,
            scope=self.scope,
            states=self.states,
            limits=self.limits,
            issues=self.issues,
            sample=None if self.sample is None else _seen(self.sample),
            problems=self.problems,
        )


def _seen(issue: Issue) -> SeenIssue:
    return SeenIssue(
        id=issue.id,
        identifier=issue.identifier,
        title=issue.title,
        state=issue.state,
        dispatchable=issue.dispatchable,
        not_dispatchable_reason=issue.not_dispatchable_reason,
        native_ref=None if issue.native_ref is None else dict(issue.native_ref),
        description=issue.description,
        priority=issue.priority,
        branch_name=issue.branch_name,
        url=issue.url,
        assignee_id=issue.assignee_id,
        labels=issue.labels,
        blocked_by=tuple(
            Blocker(id=one.id, identifier=one.identifier, state=one.state) for one in issue.blocked_by
        ),
        created_at=None if issue.created_at is None else utc_text(issue.created_at),
        updated_at=None if issue.updated_at is None else utc_text(issue.updated_at),
    )


async def look_at(bound: RuntimeContext) -> Look:
    """Ask the tracker of a workflow. Raises `TrackerError`: no answer, or the credential is refused."""
    tracker = bound.tracker
    seen = await tracker.account_info() if isinstance(tracker, AccountCapability) else None
    issues = await tracker.fetch_issues_by_states(bound.active_states)
    skipped = skipped_by(tracker)
    states = tuple(_states(bound, seen))
    return Look(
        kind=bound.settings.tracker.kind,
        login=None if seen is None else seen.login,
        scope=None if seen is None else seen.scope,
        active=bound.active_states,
        states=states,
        limits=tuple(_limits(bound)),
        issues=len(issues),
        sample=next(iter(issues), None),
        skipped=skipped,
        problems=(*_renamed(bound, states), *(_left_out(failure) for failure in skipped)),
    )


def _limits(bound: RuntimeContext) -> Iterator[ServiceLimit]:
    if isinstance(bound.tracker, RemoteTracker):
        now_ms = wall_ms()
        for left in bound.tracker.traffic().quota:
            wait_ms = max(0, left.reset_ms - now_ms)
            yield ServiceLimit(
                name=left.name, limit=left.limit, remaining=left.remaining, resets_in_ms=wait_ms
            )


# --- states ----------------------------------------------------------------------------------------------


def _named(bound: RuntimeContext) -> dict[str, tuple[str, ...]]:
    """The states that settings name, each under the keys that do."""
    tracker = bound.settings.tracker
    return {
        "active": bound.active_states,
        "terminal": bound.terminal_states,
        "on_start": () if tracker.on_start is None else (tracker.on_start,),
        "on_block": () if tracker.on_block is None else (tracker.on_block,),
    }


def _states(bound: RuntimeContext, seen: AccountInfo | None) -> Iterator[StateSeen]:
    """Those of the tracker first, then those that it does not have; where it names none, any state is one."""
    named = _named(bound)
    there = {normalise_state(name): name for name in (seen.states if seen else ())}
    spelled = dict(there)
    for names in named.values():
        for name in names:
            spelled.setdefault(normalise_state(name), name)
    for state, name in spelled.items():
        roles = tuple(
            role for role, names in named.items() if state in {normalise_state(one) for one in names}
        )
        yield StateSeen(name=name, roles=roles, found=not there or state in there)


def _renamed(bound: RuntimeContext, states: Sequence[StateSeen]) -> Iterator[TrackerProblem]:
    """Names that somebody wrote and the tracker does not have; of an adapter's own one active will do."""
    tracker = bound.settings.tracker
    written = {"on_start", "on_block"}
    written |= {"active"} if tracker.active_states is not None else set()
    written |= {"terminal"} if tracker.terminal_states is not None else set()
    known = [state.name for state in states if state.found]
    for state in states:
        if not state.found and (roles := written.intersection(state.roles)):
            yield TrackerProblem(
                severity="warning" if roles == {"terminal"} else "error",
                message=f"{tracker.kind} has no state {state.name!r}, which {_keys(roles)} names",
                hint=_suggestion(state.name, known),
            )
    if not any(state.found and "active" in state.roles for state in states) and "active" not in written:
        yield TrackerProblem(
            severity="error",
            message=f"{tracker.kind} has none of the states that are active by default",
            hint=f"set tracker.active_states; states: {', '.join(known)}",
        )


_KEYS = {"active": "active_states", "terminal": "terminal_states"}


def _keys(roles: set[str]) -> str:
    return ", ".join(f"tracker.{_KEYS.get(role, role)}" for role in sorted(roles))


def _suggestion(name: str, known: Sequence[str]) -> str:
    """The nearest name that there is, or all of them."""
    spelled = {normalise_state(one): one for one in known}
    near = difflib.get_close_matches(normalise_state(name), spelled, n=1, cutoff=0.6)
    listed = f"states: {', '.join(known)}"
    return f"did you mean {spelled[near[0]]!r}? {listed}" if near else f"was it renamed? {listed}"


def _left_out(failure: Failure) -> TrackerProblem:
    hint = failure.hint or "mend the record in the tracker"
    return TrackerProblem(severity="warning", message=f"left out: {failure.line}", hint=hint)


_LIMIT_S = 120.0
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_REFUSED = frozenset({401, 403})
_T = TypeVar("_T")


def check_tracker(workflow: Path) -> Look:
    """Look at the tracker. Raises `SymphonyError`."""
    return _asking(workflow, look_at)


def move_to(workflow: Path, name: str, state: str) -> tuple[str, str, str]:
    """Move an issue; its identifier, and its state before and after. Raises `SymphonyError`."""

    async def move(bound: RuntimeContext) -> tuple[str, str, str]:
        if not isinstance(bound.tracker, MovingCapability):
            raise _cannot(bound, "move issues")
        issue = await _find(bound, name)
        after = await bound.tracker.move_issue(issue.id, state)
        return issue.identifier, issue.state, after

    return _asking(workflow, move)


def comment_on(workflow: Path, name: str, body: str) -> tuple[str, str]:
    """Write a comment; the identifier of the issue, and the id of the comment. Raises `SymphonyError`."""

    async def comment(bound: RuntimeContext) -> tuple[str, str]:
        if not isinstance(bound.tracker, CommentCapability):
            raise _cannot(bound, "take comments")
        issue = await _find(bound, name)
        key = secrets.token_hex(16)
        return issue.identifier, await bound.tracker.put_comment(issue.id, body, key=key, comment_id=None)

    return _asking(workflow, comment)


def _asking(workflow: Path, ask: Callable[[RuntimeContext], Awaitable[_T]]) -> _T:
    environment = read_secrets(os.environ).environment
    configure(stream=sys.stderr, level="error")
    loaded = open_store(workflow, environment, acknowledged=True).current()
    configure(stream=sys.stderr, level="error", redaction=redaction_for(loaded, environment))
    bound = build_context(loaded, host=LocalHost(), environment=environment)

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


async def _find(bound: RuntimeContext, name: str) -> Issue:
    """By identifier or id: among those in active states, by id, and then among all there are."""
    wanted = name.strip().casefold()
    if found := await _listed(bound, bound.active_states, wanted):
        return found
    if _ID.fullmatch(name.strip()) and (found := await _by_id(bound, name.strip())):
        return found
    others = dict.fromkeys(bound.terminal_states)
    if isinstance(bound.tracker, AccountCapability):
        others |= dict.fromkeys((await bound.tracker.account_info()).states)
    rest = [state for state in others if state not in bound.active_states]
    if found := await _listed(bound, rest, wanted):
        return found
    raise CommandError.of(
        f"{bound.settings.tracker.kind} has no issue {one_line(name, 80)!r}",
        hint="give its identifier as `symphony status` shows it, or its id",
    )


async def _listed(bound: RuntimeContext, states: list[str] | tuple[str, ...], wanted: str) -> Issue | None:
    issues = await bound.tracker.fetch_issues_by_states(states)
    return next((one for one in issues if wanted in {one.identifier.casefold(), one.id.casefold()}), None)


async def _by_id(bound: RuntimeContext, issue_id: str) -> Issue | None:
    """Null too where the service finds that this can be no id of its own."""
    try:
        found = await bound.tracker.fetch_issues_by_ids([issue_id])
    except TrackerError as error:
        failure = error.failure
        if failure.category is not Category.TRACKER_STATUS or failure.status in _REFUSED:
            raise
        return None
    return next(iter(found), None)


def _cannot(bound: RuntimeContext, what: str) -> CommandError:
    kind = bound.settings.tracker.kind
    return CommandError.of(f"a tracker of kind {kind} does not {what}", hint="use the tracker itself")
