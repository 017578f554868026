"""`symphony pr`: how the pull request of an issue stands."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import click

from symphony import to_thread
from symphony.cli.commands.open import open_in_browser
from symphony.cli.commands.tracker import find_issue, run_on_tracker
from symphony.cli.documents import OpenThread, PullCheck, PullRequestShown, PullReview
from symphony.cli.failures import CommandError
from symphony.cli.options import issue_argument, json_option, print_json, workflow_option
from symphony.daemon.context import RuntimeContext
from symphony.daemon.state_dir import journal_path
from symphony.domain import PullState, UnsafeKeyError, branch_name, one_line, workspace_key
from symphony.journal.model import PullRequestRecord, UnusableError
from symphony.journal.reader import open_reader
from symphony.services.forges import connect_forge

_MAX_CHARS: Final = 300


@click.command(
    epilog="""\b
Examples:
  symphony pr SYM-3
  symphony pr SYM-3 --json | jq -r '.checks[] | select(.state == "failed") | .name'
  symphony pr SYM-3 --open

Asks the forge of WORKFLOW.md for the pull request of the issue's branch, with or without a running daemon.
Changes nothing. Exit codes: 0 shown, 1 there is none or no answer, 3 the configuration is invalid,
4 the token is missing or refused.
"""
)
@issue_argument
@click.option("--open", "open_page", is_flag=True, help="Open its page in a browser, or print its address.")
@json_option
@workflow_option
def pr(*, issue: str, open_page: bool, as_json: bool, workflow: Path) -> None:
    """Show the pull request of an issue.

    It shows the checks, the reviews, the unresolved threads, and what the daemon waits for.
    """
    shown = run_on_tracker(
        workflow, partial(show_pull_request, identifier=issue.strip(), environment=os.environ)
    )
    if as_json:
        print_json(shown)
    elif not open_page:
        _print(shown)
    if open_page and not open_in_browser(shown.url) and not as_json:
        click.echo(shown.url)


def _print(shown: PullRequestShown) -> None:
    state = f"{shown.state}, draft" if shown.draft else shown.state
    click.echo(f"#{shown.number} {one_line(shown.title, _MAX_CHARS)}: {state}  {one_line(shown.url)}")
    if shown.state == "open":
        merge = {None: "not known yet", True: f"conflicts with {shown.base}", False: f"into {shown.base}"}
        remarks = [merge[shown.conflicts]]
        remarks += ["reviews are missing"] if shown.rules_met is False else []
        remarks += ["the forge merges it once it may"] if shown.armed else []
        remarks += ["it is in the merge queue"] if shown.queued else []
        _line("merge", ", ".join(remarks))
    for check in shown.checks:
        required = " (required)" if check.required else ""
        where = "" if check.at_head else ", on an earlier commit"
        summary = f": {check.summary}" if check.summary and check.state != "passed" else ""
        _line(check.state, f"{check.name}{required}{where}{summary}")
    for review in shown.reviews:
        _line("review", f"{review.login}: {review.state.replace('_', ' ')}")
    for thread in shown.open_threads:
        place = thread.path or "the change"
        place = place if thread.line is None else f"{place}:{thread.line}"
        _line("thread", f"{place} {thread.login}: {thread.body}")
    if shown.message is not None:
        _line("symphony", f"{shown.message} ({shown.code})")
    if not shown.complete:
        _line("note", "a list is too long to read: look at the page")


def _line(name: str, text: str) -> None:
    click.echo(f"{name:<9} {one_line(text, _MAX_CHARS * 2)}")


# --- asking the forge -------------------------------------------------------------------------------------


async def show_pull_request(
    context: RuntimeContext, identifier: str, environment: Mapping[str, str]
) -> PullRequestShown:
    """The pull request of an issue: the open one, or else the newest.

    Raises:
        SymphonyError: there is none, `forge` is not set or cannot be used, or the forge refuses.
    """
    forge = connect_forge(context.settings.forge, environment)
    if identifier.removeprefix("#").isdigit():
        identifier = (await find_issue(context, identifier)).identifier
    try:
        branch = branch_name(workspace_key(identifier))
    except UnsafeKeyError as error:
        raise CommandError.of(f"{error}", hint="give the identifier of an issue") from error
    found = sorted(await forge.find(branch), key=lambda pull: pull.state is not PullState.OPEN)
    seen = await forge.observe([found[0].number], fresh=True) if found else {}
    pull = next(iter(seen.values()), None)
    if pull is None:
        raise CommandError.of(
            f"there is no pull request of the branch {branch} in {context.settings.forge.repo}",
            hint="is it pushed, and is the identifier right? `symphony status` lists the issues",
        )
    watched = await to_thread.run_sync(_watched, context, environment, identifier, pull.number)
    return PullRequestShown(
        code=None if watched is None else watched.code,
        message=None if watched is None else context.redaction.text(watched.message),
        issue_identifier=identifier,
        number=pull.number,
        url=pull.url,
        title=pull.title,
        state=pull.state.value,
        draft=pull.draft,
        branch=pull.head_branch,
        base=pull.base_branch,
        head=pull.head_sha,
        conflicts=pull.conflicts,
        rules_met=pull.rules_met,
        armed=bool(pull.armed),
        queued=pull.queued,
        complete=pull.complete,
        labels=pull.labels,
        checks=tuple(
            PullCheck(
                name=check.name,
                state=check.state.value,
                required=check.required,
                at_head=check.sha == pull.head_sha,
                summary=check.summary,
                url=check.url,
            )
            for check in pull.checks
        ),
        reviews=tuple(
            PullReview(login=review.author.login, state=review.state.value, can_write=review.author.can_write)
            for review in pull.reviews
        ),
        open_threads=tuple(
            OpenThread(
                path=thread.path,
                line=thread.line,
                login=thread.comments[-1].author.login,
                body=thread.comments[-1].body,
            )
            for thread in pull.threads
            if thread.comments and not thread.resolved
        ),
    )


def _watched(
    context: RuntimeContext, environment: Mapping[str, str], identifier: str, number: int
) -> PullRequestRecord | None:
    """What the daemon recorded of a pull request; `None` without a record, or a journal."""
    try:
        with open_reader(journal_path(context.workflow.path, environment)) as reader:
            records = reader.recovered_state().pull_requests
    except UnusableError:
        return None
    mine = (one for one in records if one.issue.identifier == identifier and one.number == number)
    return next(mine, None)
