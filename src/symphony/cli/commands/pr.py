"""`symphony pr`: how the pull request of an issue stands."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from symphony.cli.options import issue_argument, json_option, print_json, workflow_option
from symphony.domain import one_line

if TYPE_CHECKING:
    from symphony.cli.documents import PullRequestShown

_MAX_CHARS: Final = 300


@click.command(
    epilog="""\b
Examples:
  symphony pr SYM-3
  symphony pr SYM-3 --json | jq -r '.checks[] | select(.state == "failed") | .name'

  symphony pr SYM-3 --open          show its page in the browser of this machine

Asks the forge of WORKFLOW.md for the pull request of the issue's branch, beside a running daemon and without
one. Nothing is changed. Exit codes: 0 shown, 1 there is none or no answer, 3 the configuration is invalid,
4 the token is missing or refused.
"""
)
@issue_argument
@click.option("--open", "open_page", is_flag=True, help="Show its page in a browser, or print its address.")
@json_option
@workflow_option
def pr(*, issue: str, open_page: bool, as_json: bool, workflow: Path) -> None:
    """Show the pull request of an issue.

    Its checks, its reviews, the threads that nobody has resolved, and what the daemon waits for.
    """
    # Imported here: `--help` stays fast.
    from symphony.cli.browser import open_in_browser
    from symphony.cli.forge_access import show_pull_request
    from symphony.cli.tracker_access import run_on_tracker

    shown = run_on_tracker(
        workflow, partial(show_pull_request, identifier=issue.strip(), environment=os.environ)
    )
    if as_json:
        print_json(shown)
    elif not open_page:
        _print(shown)
    if open_page and not open_in_browser(shown.url) and not as_json:
        click.echo(shown.url)


def _print(shown: "PullRequestShown") -> None:
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
        _line("note", "a list is too long to be read: look at the page")


def _line(name: str, text: str) -> None:
    click.echo(f"{name:<9} {one_line(text, _MAX_CHARS * 2)}")
