"""`symphony tracker`: look at the tracker of a workflow, and write to it from scripts, without a daemon."""

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
    from symphony.cli.documents import StateSeen
    from symphony.cli.tracker_access import Look
    from symphony.domain import Issue


_MAX_CHARS: Final = 32_000
_MAX_LINE: Final = 300

_GROUP_EXAMPLES = """\b
Examples:
  symphony tracker check
  symphony tracker move GH-12 "In Progress"
  symphony tracker comment GH-12 "Deployed to staging."

They use the credential of WORKFLOW.md, beside a running daemon and without one.
"""

_CHECK_EXAMPLES = """\b
Examples:
  symphony tracker check                       who we are there, states, limits, a sample issue
  symphony tracker check --json | jq '.problems[]'

Nothing is changed. Exit codes: 0 fine (also with warnings), 1 a state that is not there or no answer,
3 the configuration is invalid, 4 the credential is missing or refused.
"""

_MOVE_EXAMPLES = """\b
Examples:
  symphony tracker move GH-12 "In Progress"
  symphony tracker move 12 Done --json

ISSUE is an identifier or an id. The state is read back: a move that is taken and not made is a failure.
Exit codes: 0 moved, 1 refused or no such issue or state, 3 the configuration, 4 the credential.
"""

_COMMENT_EXAMPLES = """\b
Examples:
  symphony tracker comment GH-12 "Deployed to staging."
  make report | symphony tracker comment GH-12 -

ISSUE is an identifier or an id. Each call writes a new comment.
Exit codes: 0 written, 1 refused or no such issue, 2 no text or too much, 3 the configuration, 4 the
credential.
"""


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=_GROUP_EXAMPLES,
    short_help="Look at the tracker, and write to it from scripts.",
)
@click.pass_context
def tracker(ctx: click.Context) -> None:
    """Look at the tracker of WORKFLOW.md, and write to it from scripts."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@tracker.command(epilog=_CHECK_EXAMPLES)
@json_option
@workflow_option
def check(*, as_json: bool, workflow: Path) -> int:
    """Tell whether the tracker answers, and whether it has the states that the settings name."""
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.tracker_access import check_tracker

    found = check_tracker(workflow)
    if as_json:
        print_json(found.document())
    else:
        _show(found)
    return ExitCode.OK if found.ok else ExitCode.FAILURE


def _show(look: "Look") -> None:
    whose = "" if look.login is None else f" as {look.login}"
    scope = "" if look.scope is None else f", {look.scope}"
    _say("tracker   ", f"{look.kind}{whose}{scope}")
    _say("states    ", ", ".join(_state(state) for state in look.states))
    for limit in look.limits:
        minutes = limit.resets_in_ms // 60_000
        _say("limit     ", f"{limit.remaining} of {limit.limit} {limit.name} left, anew in {minutes} min")
    _say("issues    ", f"{look.issues} in {', '.join(look.active) or 'no state at all'}")
    if look.sample is not None:
        _show_sample(look.sample)
    for problem in look.problems:
        _say(f"{problem.severity}: ", problem.message)
        _say("  hint: ", problem.hint)


def _show_sample(issue: "Issue") -> None:
    _say("sample    ", f"{issue.identifier}, {issue.state}: {issue.title}")
    blockers = [blocker.identifier or blocker.id or "?" for blocker in issue.blocked_by]
    facts = [
        *([f"labels {', '.join(issue.labels)}"] if issue.labels else ()),
        *([] if issue.priority is None else [f"priority {issue.priority}"]),
        *([f"blocked by {', '.join(blockers)}"] if blockers else ()),
        *([] if issue.dispatchable else [f"held back: {issue.not_dispatchable_reason}"]),
    ]
    if facts:
        _say("          ", "; ".join(facts))


def _state(state: "StateSeen") -> str:
    roles = [*state.roles] + ([] if state.found else ["not there"])
    return f"{state.name} ({', '.join(roles)})" if roles else state.name


def _say(lead: str, text: str) -> None:
    click.echo(lead + one_line(text, _MAX_LINE))


@tracker.command(epilog=_MOVE_EXAMPLES)
@issue_argument
@click.argument("state")
@json_option
@workflow_option
def move(*, issue: str, state: str, as_json: bool, workflow: Path) -> None:
    """Give an issue another state."""
    from symphony.cli.documents import IssueMoved
    from symphony.cli.tracker_access import move_to

    identifier, before, after = move_to(workflow, issue, state)
    if as_json:
        print_json(IssueMoved(issue_identifier=identifier, before=before, state=after))
    else:
        _say("", f"{identifier}: {before} -> {after}")


@tracker.command(epilog=_COMMENT_EXAMPLES)
@issue_argument
@click.argument("text", required=False)
@text_file_option
@json_option
@workflow_option
def comment(*, issue: str, text: str | None, file: str | None, as_json: bool, workflow: Path) -> None:
    """Write a comment on an issue.

    TEXT is the comment, or - for what comes on standard input.
    """
    words = read_text_argument(text, file, what="comment", most=_MAX_CHARS)
    from symphony.cli.documents import IssueCommented
    from symphony.cli.tracker_access import comment_on

    identifier, comment_id = comment_on(workflow, issue, words)
    if as_json:
        print_json(IssueCommented(issue_identifier=identifier, comment_id=comment_id))
    else:
        _say("", f"{identifier}: {comment_id}")
