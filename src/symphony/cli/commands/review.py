"""`symphony review`: look at finished work, send it back with comments, or approve it."""

import getpass
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import RenderableType
from rich.text import Text

from symphony.api.interface import MAX_REVIEW_CHARS
from symphony.api.models import Choice, Review, ReviewGiven, ReviewLine
from symphony.characters import visible_name
from symphony.cli import options
from symphony.cli.client import Client, require_daemon
from symphony.cli.failures import CommandError, require_person
from symphony.cli.formatting import arrow, cell, console_for, print_blocks, table
from symphony.cli.queries import resolve_issue
from symphony.domain import one_line, plural

_START: Final = "start one: symphony run"
_PLACE: Final = re.compile(r"(.+):(-?)([1-9][0-9]{0,8})", re.DOTALL)
_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT: Final = 12


@click.command(
    epilog="""\b
Examples:
  symphony review SYM-7                                commits, files, verification
  symphony diff SYM-7                                  the changed lines
  symphony review SYM-7 --comment src/app.py:12 "Say why" --message "Almost" --send-back
  symphony review SYM-7 --approve

A decision is about the commit that `symphony review ISSUE` showed you last. If the branch has moved since,
the decision is refused. --comment may be repeated. FILE:-12 is line 12 of the file before the change.

--send-back writes one comment on the issue, and moves it to the first active state. The next session gets
the comment. --approve merges by the rules of forge.land, opens the pull request, or merges into your branch
with review.merge: true. Then it moves the issue to the first terminal state.

Exit codes: 0 shown or done, 1 refused or no such issue, 2 wrong options, 5 no daemon is running, or it does
not answer.
"""
)
@options.issue_argument
@click.option(
    "--comment",
    "comments",
    nargs=2,
    multiple=True,
    metavar="FILE:LINE TEXT",
    help="Comment on a line; the comment quotes it.",
)
@click.option("--message", metavar="TEXT", help="Comment on the whole change.")
@options.text_file_option
@click.option("--send-back", is_flag=True, help="Send it back to the agent.")
@click.option("--approve", is_flag=True, help="Approve it, which merges it.")
@click.option("--head", metavar="COMMIT", help="Show this delivered commit, or decide on it.")
@click.option("--since", metavar="COMMIT", help="Show only changes since this commit.")
@click.option("--unverified", is_flag=True, help="Approve it although it did not pass its verification.")
@options.json_option
@options.workflow_option
def review(
    *,
    issue: str,
    comments: tuple[tuple[str, str], ...],
    message: str | None,
    file: str | None,
    send_back: bool,
    approve: bool,
    head: str | None,
    since: str | None,
    unverified: bool,
    as_json: bool,
    workflow: Path,
) -> None:
    """Review finished work: send it back, or approve it."""
    for commit in filter(None, (head, since)):
        if not _COMMIT.fullmatch(commit):
            raise click.UsageError("--head and --since take the whole id of a commit")
    decision = options.only_one(send_back=send_back, approve=approve)
    if decision is None and (comments or message or file or unverified):
        raise click.UsageError("add --send-back or --approve")
    if decision is not None:
        require_person("review work", hint="a person reviews it")
    client = require_daemon(workflow, os.environ, hint=_START)
    if decision is None:
        ask = partial(client.review, reviewer=_reviewer(), since=since, until=head)
        shown = resolve_issue(issue, ask, client.identifiers, partial(_without_branch, client))
        if as_json:
            options.print_json(shown)
        else:
            print_blocks(console_for(), *_view(shown))
        return
    text = (
        ""
        if message is None and file is None
        else options.read_text_argument(message, file, what="message", most=MAX_REVIEW_CHARS)
    )
    given = ReviewGiven(
        decision=decision,
        head=head,
        message=text,
        comments=tuple(map(_line, comments)),
        unverified=unverified,
        reviewer=_reviewer(),
    )
    done = resolve_issue(issue, partial(client.decide, given), client.identifiers)
    if as_json:
        options.print_json(done)
    else:
        click.echo(f"{one_line(done.issue_identifier)}: {one_line(done.message)}.")


def _reviewer() -> str:
    """Who looks and decides at this terminal."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # the user has no name here
        return f"cli:{os.getuid()}"


def _line(given: tuple[str, str]) -> ReviewLine:
    place, text = given
    found = _PLACE.fullmatch(place)
    if found is None:
        raise click.UsageError(f"--comment takes FILE:LINE and a text, not {one_line(place)!r}")
    text = options.read_text_argument(text, None, what="comment", most=MAX_REVIEW_CHARS)
    return ReviewLine(
        file=visible_name(os.fsencode(found[1])), line=int(found[3]), text=text, old=bool(found[2])
    )


def _without_branch(client: Client, identifier: str) -> CommandError | None:
    """The error for an issue that there is, without work or without such a commit."""
    if client.issue(identifier) is None:
        return None
    return CommandError.of(
        f"{one_line(identifier)} has no delivered branch, or not with that commit",
        hint="a run delivers its commits when it ends; `symphony explain` shows the state of the issue",
    )


# --- what is shown ---------------------------------------------------------------------------------------


def _view(shown: Review) -> Iterator[RenderableType]:
    yield Text.assemble(
        (f"{shown.issue_identifier} ", "bold"), cell(shown.title), (f"  {shown.state}", "dim")
    )
    if shown.summary:
        yield cell(shown.summary)
    size = f"{plural(len(shown.files), 'file')} +{shown.insertions:,} -{shown.deletions:,}"
    yield cell(f"{shown.branch} at {shown.head[:_SHORT]}: {plural(len(shown.commits), 'commit')}, {size}")
    verified = "not verified" if shown.verified is None else shown.verified.message
    yield cell(f"verification: {verified}", "green" if shown.verified and shown.verified.passed else "yellow")
    if shown.looked_at is not None and shown.since == shown.start:
        look = f"symphony review {shown.issue_identifier} --since {shown.looked_at}"
        yield arrow(f"changes since your last look: {look}")
    if shown.decided is not None:
        yield cell(f"decided: {shown.decided.decision.replace('_', ' ')} at {shown.decided.at}", "bold")
    if shown.others:
        yield cell("another person has begun to review it", "yellow")
    yield Text("")
    for one in shown.commits:
        yield cell(f"{one.commit[:_SHORT]} {one.subject}")
    for delivery in shown.deliveries if len(shown.deliveries) > 1 else ():
        yield cell(f"delivered {delivery.at} by run {delivery.run_id}: {delivery.head}", "dim")
    files = table("FILE", "CHANGE", "+", "-", fold={"FILE"})
    for file in shown.files:
        name = file.path if file.old_path is None else f"{file.old_path} -> {file.path}"
        counts = (file.insertions, file.deletions)
        files.add_row(
            cell(name), cell(file.status), *(cell("" if count is None else f"{count:,}") for count in counts)
        )
    if shown.files:
        yield files
    yield arrow(f"the changed lines: symphony diff {shown.issue_identifier}")
    yield from _choice("--send-back", shown.send_back)
    yield from _choice("--approve", shown.approve)
    if shown.approval == "by_hand" and shown.command:
        yield arrow(f"merge it: {shown.command}")


def _choice(option: str, choice: Choice) -> Iterator[RenderableType]:
    if not choice.allowed:
        yield cell(f"{option}: {choice.message}", "yellow")
