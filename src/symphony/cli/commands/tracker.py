"""`symphony tracker`: check the tracker of a workflow, and write to it from scripts, without a daemon."""

import difflib
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import click

from symphony.cli import documents, options
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.main import LazyGroup
from symphony.cli.offline import open_context
from symphony.daemon.context import RuntimeContext
from symphony.domain import Category, Issue, SymphonyError, issues_named, normalise_state, one_line
from symphony.http import wall_ms
from symphony.trackers import base
from symphony.trackers.remote import RemoteTracker

_MAX_COMMENT_CHARS: Final = 32_000
_MAX_LINE_CHARS: Final = 300


tracker = LazyGroup(
    "tracker",
    help="Check the tracker of WORKFLOW.md, and write to it from scripts.",
    short_help="Check the tracker, and write to it from scripts.",
    epilog="""\b
Examples:
  symphony tracker check
  symphony tracker move GH-12 "In Progress"
  symphony tracker comment GH-12 "Deployed to staging."

These commands use the credential of WORKFLOW.md, with or without a running daemon.
""",
)


@tracker.command(
    epilog="""\b
Examples:
  symphony tracker check                       the account, states, limits and a sample issue
  symphony tracker check --json | jq '.problems[]'

Changes nothing. Exit codes: 0 fine (also with warnings), 1 a state is missing or there is no answer, 3 the
configuration is invalid, 4 the credential is missing or refused.
"""
)
@options.json_option
@options.workflow_option
def check(*, as_json: bool, workflow: Path) -> int:
    """Check that the tracker answers, and that it has the states of the settings."""
    result = run_on_tracker(workflow, check_tracker)
    if as_json:
        options.print_json(result)
    else:
        _print_check(result)
    return ExitCode.OK if result.ok else ExitCode.FAILURE


@tracker.command(
    epilog="""\b
Examples:
  symphony tracker move GH-12 "In Progress"
  symphony tracker move 12 Done --json

ISSUE is an identifier or an id. The command reads the state back: a move that the tracker accepts but does
not make is a failure. Exit codes: 0 moved, 1 refused or no such issue or state, 3 the configuration, 4 the
credential.
"""
)
@options.issue_argument
@click.argument("state")
@options.json_option
@options.workflow_option
def move(*, issue: str, state: str, as_json: bool, workflow: Path) -> None:
    """Move an issue to another state."""
    moved = run_on_tracker(workflow, partial(move_issue, name=issue, state=state))
    if as_json:
        options.print_json(moved)
    else:
        _print_line("", f"{moved.issue_identifier}: {moved.before} -> {moved.state}")


@tracker.command(
    epilog="""\b
Examples:
  symphony tracker comment GH-12 "Deployed to staging."
  make report | symphony tracker comment GH-12 -

ISSUE is an identifier or an id. Each call writes a new comment.
Exit codes: 0 written, 1 refused or no such issue, 2 no text or too much, 3 the configuration, 4 the
credential.
"""
)
@options.issue_argument
@click.argument("text", required=False)
@options.text_file_option
@options.json_option
@options.workflow_option
def comment(*, issue: str, text: str | None, file: str | None, as_json: bool, workflow: Path) -> None:
    """Write a comment on an issue.

    TEXT is the comment, or - for standard input.
    """
    text = options.read_text_argument(text, file, what="comment", most=_MAX_COMMENT_CHARS)
    written = run_on_tracker(workflow, partial(add_comment, name=issue, text=text))
    if as_json:
        options.print_json(written)
    else:
        _print_line("", f"{written.issue_identifier}: {written.comment_id}")


def _print_check(check: documents.TrackerCheck) -> None:
    account = "" if check.login is None else f" as {check.login}"
    scope = "" if check.scope is None else f", {check.scope}"
    _print_line("tracker   ", f"{check.kind}{account}{scope}")
    states = []
    for state in check.states:
        remarks = [*state.roles, *([] if state.found else ["not there"])]
        states.append(f"{state.name} ({', '.join(remarks)})" if remarks else state.name)
    _print_line("states    ", ", ".join(states))
    for limit in check.limits:
        minutes = limit.resets_in_ms // 60_000
        text = f"{limit.remaining} of {limit.limit} {limit.name} left, reset in {minutes} min"
        _print_line("limit     ", text)
    active = ", ".join(state.name for state in check.states if "active" in state.roles)
    _print_line("issues    ", f"{check.issues} in {active or 'no state at all'}")
    if check.sample is not None:
        _print_sample(check.sample)
    for problem in check.problems:
        _print_line(f"{problem.severity}: ", problem.message)
        _print_line("  hint: ", problem.hint)


def _print_sample(issue: Issue) -> None:
    _print_line("sample    ", f"{issue.identifier}, {issue.state}: {issue.title}")
    details = []
    if issue.labels:
        details.append(f"labels {', '.join(issue.labels)}")
    if issue.priority is not None:
        details.append(f"priority {issue.priority}")
    if issue.blocked_by:
        blockers = (blocker.identifier or blocker.id or "?" for blocker in issue.blocked_by)
        details.append(f"blocked by {', '.join(blockers)}")
    if not issue.dispatchable:
        details.append(f"held back: {issue.not_dispatchable_reason}")
    if details:
        _print_line("          ", "; ".join(details))


def _print_line(label: str, text: str) -> None:
    click.echo(label + one_line(text, _MAX_LINE_CHARS))


# --- asking the tracker ----------------------------------------------------------------------------------

_TIMEOUT_S: Final = 120.0
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_REFUSED: Final = frozenset({401, 403})
_T = TypeVar("_T")


def run_on_tracker(workflow: Path, ask: Callable[[RuntimeContext], Awaitable[_T]]) -> _T:
    """Load a workflow, run one of the functions below on it, and return its result.

    Raises:
        SymphonyError: the workflow is not usable, the tracker refuses, or it does not answer within 2
        minutes.
    """
    context = open_context(workflow, os.environ)

    async def within_time() -> _T:
        with anyio.fail_after(_TIMEOUT_S):
            return await ask(context)

    try:
        return anyio.run(within_time)
    except TimeoutError as error:
        hint = "see whether the tracker can be reached"
        raise CommandError.of(f"no answer within {_TIMEOUT_S:g} s", hint=hint) from error
    except CommandError:
        raise
    except SymphonyError as error:
        raise SymphonyError(context.redaction.failure(error.failure)) from error


async def check_tracker(context: RuntimeContext) -> documents.TrackerCheck:
    """The account, the states, the rate limits, and a sample of the issues in active states.

    Raises:
        TrackerError: the tracker does not answer, or refuses the credential.
    """
    tracker = context.tracker
    account = await tracker.account_info() if isinstance(tracker, base.AccountCapability) else None
    issues = await tracker.fetch_issues_by_states(context.active_states)
    states = _check_states(context, () if account is None else account.states)
    problems = [*_state_problems(context, states)]
    for failure in base.skipped_by(tracker):
        hint = failure.hint or "correct the record in the tracker"
        problems.append(
            documents.TrackerProblem(severity="warning", message=f"left out: {failure.line}", hint=hint)
        )
    now_ms = wall_ms()
    quotas = tracker.quota() if isinstance(tracker, RemoteTracker) else ()
    return documents.TrackerCheck(
        ok=not any(problem.severity == "error" for problem in problems),
        kind=context.settings.tracker.kind,
        login=None if account is None else account.login,
        scope=None if account is None else account.scope,
        states=states,
        limits=tuple(
            documents.ServiceLimit(
                name=quota.name,
                limit=quota.limit,
                remaining=quota.remaining,
                resets_in_ms=max(0, quota.reset_ms - now_ms),
            )
            for quota in quotas
        ),
        issues=len(issues),
        sample=next(iter(issues), None),
        problems=tuple(problems),
    )


async def move_issue(context: RuntimeContext, name: str, state: str) -> documents.IssueMoved:
    """Move the issue with this identifier or id to another state.

    Raises:
        SymphonyError: there is no such issue or state, or the move is not possible.
    """
    tracker = context.tracker
    if not isinstance(tracker, base.MovingCapability):
        raise _not_supported(context, "move issues")
    issue = await find_issue(context, name)
    after = await tracker.move_issue(issue.id, state)
    return documents.IssueMoved(issue_identifier=issue.identifier, before=issue.state, state=after)


async def add_comment(context: RuntimeContext, name: str, text: str) -> documents.IssueCommented:
    """Write a new comment on the issue with this identifier or id.

    Raises:
        SymphonyError: there is no such issue, or comments are not possible.
    """
    tracker = context.tracker
    if not isinstance(tracker, base.CommentCapability):
        raise _not_supported(context, "take comments")
    issue = await find_issue(context, name)
    comment_id = await tracker.put_comment(issue.id, text, key=secrets.token_hex(16), comment_id=None)
    return documents.IssueCommented(issue_identifier=issue.identifier, comment_id=comment_id)


def _not_supported(context: RuntimeContext, what: str) -> CommandError:
    kind = context.settings.tracker.kind
    return CommandError.of(f"a tracker of kind {kind} does not {what}", hint="use the tracker itself")


def _check_states(context: RuntimeContext, existing: Sequence[str]) -> tuple[documents.CheckedState, ...]:
    """The states of the tracker, then states that only the settings name.

    A tracker that lists no states accepts any state.
    """
    tracker, forge = context.settings.tracker, context.settings.forge
    on_feedback, merged_state = (forge.on_feedback, forge.merged_state) if forge.watches else (None, None)
    configured = {
        "active": context.active_states,
        "terminal": context.terminal_states,
        "on_start": () if tracker.on_start is None else (tracker.on_start,),
        "on_block": () if tracker.on_block is None else (tracker.on_block,),
        "on_feedback": () if on_feedback is None else (on_feedback,),
        "merged_state": () if merged_state is None else (merged_state,),
    }
    names = {normalise_state(name): name for name in existing}
    known = frozenset(names)
    for state in (state for states in configured.values() for state in states):
        names.setdefault(normalise_state(state), state)
    return tuple(
        documents.CheckedState(
            name=name,
            roles=tuple(role for role, states in configured.items() if key in map(normalise_state, states)),
            found=not known or key in known,
        )
        for key, name in names.items()
    )


def _state_problems(
    context: RuntimeContext, states: Sequence[documents.CheckedState]
) -> Iterator[documents.TrackerProblem]:
    """Configured states that the tracker does not have. Of the default active states one is enough."""
    tracker = context.settings.tracker
    keys = {
        "on_start": "tracker.on_start",
        "on_block": "tracker.on_block",
        "on_feedback": "forge.on_feedback",
        "merged_state": "forge.merged_state",
    }
    if tracker.active_states is not None:
        keys["active"] = "tracker.active_states"
    if tracker.terminal_states is not None:
        keys["terminal"] = "tracker.terminal_states"
    existing = {normalise_state(state.name): state.name for state in states if state.found}
    listed = f"states: {', '.join(existing.values())}"
    for state in states:
        roles = set(state.roles).intersection(keys)
        if roles and not state.found:
            near = difflib.get_close_matches(normalise_state(state.name), existing, n=1, cutoff=0.6)
            question = f"did you mean {existing[near[0]]!r}?" if near else "was it renamed?"
            named_by = ", ".join(keys[role] for role in sorted(roles))
            yield documents.TrackerProblem(
                severity="warning" if roles == {"terminal"} else "error",
                message=f"{tracker.kind} has no state {state.name!r}, which {named_by} names",
                hint=f"{question} {listed}",
            )
    if "active" not in keys and not any(state.found and "active" in state.roles for state in states):
        yield documents.TrackerProblem(
            severity="error",
            message=f"{tracker.kind} has none of the default active states",
            hint=f"set tracker.active_states; {listed}",
        )


async def find_issue(context: RuntimeContext, name: str) -> Issue:
    """The issue with this identifier or id: among the active ones, by id, then among all others."""
    tracker, name = context.tracker, name.strip().removeprefix("#")

    async def among(states: Sequence[str]) -> Issue | None:
        issues = await tracker.fetch_issues_by_states(states)
        wanted = name.casefold()
        by_name = {one.identifier: one for one in issues}
        by_id = next((one for one in issues if one.id.casefold() == wanted), None)
        meant = issues_named(name, by_name)
        return by_id or (by_name[meant[0]] if len(meant) == 1 else None)

    if found := await among(context.active_states):
        return found
    if _ID.fullmatch(name):
        try:
            by_id = await tracker.fetch_issues_by_ids([name])
        except base.TrackerError as error:  # the service may answer that this cannot be one of its ids
            failure = error.failure
            if failure.category is not Category.TRACKER_STATUS or failure.status in _REFUSED:
                raise
            by_id = ()
        if by_id:
            return by_id[0]
    others = dict.fromkeys(context.terminal_states)
    if isinstance(tracker, base.AccountCapability):
        others |= dict.fromkeys((await tracker.account_info()).states)
    if found := await among([state for state in others if state not in context.active_states]):
        return found
    raise CommandError.of(
        f"{context.settings.tracker.kind} has no issue {one_line(name, 80)!r}",
        hint="give its identifier as `symphony status` shows it, or its id",
    )
