"""`symphony tracker`: check the tracker of a workflow, and write to it from scripts, without a daemon."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.failures import ExitCode
from symphony.cli.main import LazyGroup
from symphony.cli.options import (
    issue_argument,
    json_option,
    print_json,
    read_text_argument,
    text_file_option,
    workflow_option,
)
from symphony.domain import one_line

if TYPE_CHECKING:
    from symphony.cli.documents import TrackerCheck, TrackerIssue

_MAX_COMMENT_CHARS: Final = 32_000
_MAX_LINE_CHARS: Final = 300


tracker = LazyGroup(
    "tracker",
    help="Look at the tracker of WORKFLOW.md, and write to it from scripts.",
    short_help="Check the tracker, and write to it from scripts.",
    epilog="""\b
Examples:
  symphony tracker check
  symphony tracker move GH-12 "In Progress"
  symphony tracker comment GH-12 "Deployed to staging."

They use the credential of WORKFLOW.md, beside a running daemon and without one.
""",
)


@tracker.command(
    epilog="""\b
Examples:
  symphony tracker check                       the account, states, limits and a sample issue
  symphony tracker check --json | jq '.problems[]'

Nothing is changed. Exit codes: 0 fine (also with warnings), 1 a state is missing or there is no answer,
3 the configuration is invalid, 4 the credential is missing or refused.
"""
)
@json_option
@workflow_option
def check(*, as_json: bool, workflow: Path) -> int:
    """Tell whether the tracker answers, and whether it has the states that the settings name."""
    # Imported here and below: `--help` stays fast.
    from symphony.cli.tracker_access import check_tracker, run_on_tracker

    result = run_on_tracker(workflow, check_tracker)
    if as_json:
        print_json(result)
    else:
        _print_check(result)
    return ExitCode.OK if result.ok else ExitCode.FAILURE


@tracker.command(
    epilog="""\b
Examples:
  symphony tracker move GH-12 "In Progress"
  symphony tracker move 12 Done --json

ISSUE is an identifier or an id. The state is read back: a move that is accepted and not made is a failure.
Exit codes: 0 moved, 1 refused or no such issue or state, 3 the configuration, 4 the credential.
"""
)
@issue_argument
@click.argument("state")
@json_option
@workflow_option
def move(*, issue: str, state: str, as_json: bool, workflow: Path) -> None:
    """Give an issue another state."""
    from symphony.cli.tracker_access import move_issue, run_on_tracker

    moved = run_on_tracker(workflow, partial(move_issue, name=issue, state=state))
    if as_json:
        print_json(moved)
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
@issue_argument
@click.argument("text", required=False)
@text_file_option
@json_option
@workflow_option
def comment(*, issue: str, text: str | None, file: str | None, as_json: bool, workflow: Path) -> None:
    """Write a comment on an issue.

    TEXT is the comment, or - for standard input.
    """
    text = read_text_argument(text, file, what="comment", most=_MAX_COMMENT_CHARS)
    from symphony.cli.tracker_access import add_comment, run_on_tracker

    written = run_on_tracker(workflow, partial(add_comment, name=issue, text=text))
    if as_json:
        print_json(written)
    else:
        _print_line("", f"{written.issue_identifier}: {written.comment_id}")


def _print_check(check: "TrackerCheck") -> None:
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


def _print_sample(issue: "TrackerIssue") -> None:
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
