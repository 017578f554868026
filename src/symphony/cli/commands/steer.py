"""Steer a daemon: `symphony stop`, `retry`, `move`, `verify`, `answer`, `feedback`, `pause` and others."""

import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Final

import click

from symphony.api.formatting import duration
from symphony.api.interface import MAX_ANSWER_CHARS
from symphony.api.models import Issue, Stars, Verb, feedback_effect
from symphony.cli import options
from symphony.cli.client import Client, require_daemon
from symphony.cli.documents import OrderResult, Orders, VerificationShown
from symphony.cli.endpoint import UnreachableError, find_daemon
from symphony.cli.failures import CommandError, ExitCode, report, require_person
from symphony.cli.queries import Queries, resolve_issue
from symphony.daemon.state_dir import StateDirectory, locate
from symphony.domain import SymphonyError, one_line, plain_text
from symphony.scheduler import OperatorAction

_START: Final = "start one: symphony run"
_NOTHING_TO_DRAIN: Final = "nothing is left to drain"
_LAST_STEPS_S: Final = 10.0  # how long a daemon may take to end after it stopped answering
_MOMENT_S: Final = 1.0
_JOURNAL_TRIES: Final = 20
"""How often a run that is over is looked for: the journal is written beside everything."""
_ISSUE_CODES: Final = """\
Each issue has its own result: a refused one does not stop the others.

Exit codes: 0 done, 1 refused or no such issue, also if it is one of several, 5 no daemon is running, or it
does not answer."""
_DAEMON_CODES: Final = "Exit codes: 0 done, or nothing to do, 5 no daemon is running, or it does not answer."


@click.command(
    epilog=f"""\b
Examples:
  symphony stop SYM-7
  symphony stop SYM-7 SYM-8 --json | jq -r '.orders[].message'

The commits of the run are delivered. The issue stays blocked until `symphony retry` or `unblock`, or until
a person moves it to another state. A restart or other settings do not start it.

{_ISSUE_CODES}
"""
)
@options.issues_argument
@options.json_option
@options.workflow_option
def stop(*, issues: tuple[str, ...], as_json: bool, workflow: Path) -> int:
    """End the runs of issues, and keep them from starting."""
    return _order(workflow, "stop", issues, as_json=as_json)


@click.command(
    epilog=f"""\b
Examples:
  symphony retry SYM-7          try a waiting or blocked issue now
  symphony retry SYM-7 SYM-8

Budgets do not change. `symphony unblock` gives the issue a new budget.

{_ISSUE_CODES}
"""
)
@options.issues_argument
@options.json_option
@options.workflow_option
def retry(*, issues: tuple[str, ...], as_json: bool, workflow: Path) -> int:
    """Retry issues now."""
    return _order(workflow, "retry", issues, as_json=as_json)


@click.command(
    epilog=f"""\b
Examples:
  symphony unblock SYM-7        give it a new budget, and try it
  symphony unblock SYM-7 SYM-8

{_ISSUE_CODES}
"""
)
@options.issues_argument
@options.json_option
@options.workflow_option
def unblock(*, issues: tuple[str, ...], as_json: bool, workflow: Path) -> int:
    """Give blocked issues a new budget and retry them."""
    return _order(workflow, "unblock", issues, as_json=as_json)


@click.command(
    epilog=f"""\b
Examples:
  symphony move SYM-7 SYM-8 --to "Human Review"

The daemon moves them in its tracker. If an issue leaves the active states, its run is stopped. Without a
daemon, use `symphony tracker move`, or `symphony issue move` on a Markdown board.

{_ISSUE_CODES}
"""
)
@options.issues_argument
@click.option("--to", "state", required=True, metavar="STATE", help="The new state.")
@options.json_option
@options.workflow_option
def move(*, issues: tuple[str, ...], state: str, as_json: bool, workflow: Path) -> int:
    """Move issues to another state of the tracker."""
    return _order(workflow, "move", issues, as_json=as_json, text=state)


@click.command(
    epilog="""\b
Examples:
  symphony verify SYM-7
  symphony verify SYM-7 --json | jq -r '.verified.checks[] | select(.passed | not).output_tail'

The daemon runs `verify.commands` on the delivered commit, on the host of the workspace. A failure moves no
issue and starts no agent. Ctrl-C ends the wait, not the commands.

Exit codes: 0 all checks passed, 1 a check failed, refused, or no such issue, 5 no daemon is running, or it
does not answer.
"""
)
@options.issue_argument
@options.json_option
@options.workflow_option
def verify(*, issue: str, as_json: bool, workflow: Path) -> None:
    """Run the checks on the finished work of an issue."""
    client = require_daemon(workflow, os.environ, hint=_START)
    before = resolve_issue(
        issue,
        client.issue,
        partial(_known_identifiers, client, issue),
        Queries(workflow, os.environ).inactive_error,
    )
    ordered = _act_on_issue(workflow, "verify", before.issue_identifier)
    click.echo(f"{one_line(before.issue_identifier)}: {one_line(ordered.message)} …", err=True)
    found = _verification(client, before)
    if as_json:
        options.print_json(found)
    else:
        for check in found.verified.checks if found.verified else ():
            took = "" if not check.duration_ms else f", after {duration(check.duration_ms / 1000)}"
            click.echo(f"{one_line(check.name)}: {one_line(check.result)}{took}")
            if not check.passed and check.output_tail:
                click.echo(indent(plain_text(check.output_tail), "  "))
        click.echo(f"{one_line(found.issue_identifier)}: {one_line(found.message)}.")
    if not found.passed:
        raise SystemExit(ExitCode.FAILURE)


def _verification(client: Client, before: Issue) -> VerificationShown:
    """The result of the verification, once there is one; `before` is from before the order."""
    identifier, waits = before.issue_identifier, _JOURNAL_TRIES
    known = {run.run_id for run in before.runs}
    while True:
        shown = client.issue(identifier)
        busy = shown is not None and (shown.running is not None or shown.retry is not None)
        new = () if shown is None else (run for run in shown.runs if run.run_id not in known)
        run = next((run for run in new if run.ended_at is not None), None)
        waits -= not busy
        if not busy and (run is not None or waits <= 0):
            break
        time.sleep(_MOMENT_S / 2)
    made = None if shown is None or shown.result is None else shown.result.verified
    if run is None or run.verified is None:
        reason = "no run verified it" if run is None or run.reason is None else run.reason
        made, message = None, f"not verified: {reason}; `symphony logs` tells more"
    elif made is None:
        message = "not verified: the branch no longer has the delivered commit"
    else:
        message = f"{'verified' if made.passed else 'not verified'} at {made.head[:12]}: {made.message}"
    passed = made is not None and made.passed
    return VerificationShown(issue_identifier=identifier, passed=passed, message=message, verified=made)


@click.command(
    epilog="""\b
Examples:
  symphony answer SYM-7 "Take the blue one"
  symphony answer SYM-7 - < answer.md
  symphony answer SYM-7 --file answer.md
  symphony answer SYM-7 --approve              exactly the open request, for this session
  symphony explain SYM-7                       shows the question

The answer goes to the agent only; it does not become a comment on the issue. A person's comment on the
issue is an answer, too.

Without a daemon the answer is stored, and the next daemon gives it to the agent.

Exit codes: 0 done, 1 refused or no such issue, 2 no text or too much text, 5 the daemon does not answer.
"""
)
@options.issue_argument
@click.argument("text", required=False)
@options.text_file_option
@click.option("--approve", is_flag=True, help="Approve the agent's request.")
@click.option("--deny", is_flag=True, help="Deny the agent's request.")
@options.json_option
@options.workflow_option
def answer(
    *,
    issue: str,
    text: str | None,
    file: str | None,
    approve: bool,
    deny: bool,
    as_json: bool,
    workflow: Path,
) -> None:
    """Answer the question of an issue's agent.

    TEXT is the answer, or - for standard input.
    """
    decision = options.only_one(approve=approve, deny=deny)
    require_person("answer questions", hint="a person answers them")
    if decision is None:
        text = options.read_text_argument(text, file, what="answer", most=MAX_ANSWER_CHARS)
    elif text is not None or file is not None:
        raise click.UsageError("--approve and --deny take no text")
    verb = decision or "answer"
    try:
        result = _act_on_issue(workflow, verb, issue, text=text)
    except UnreachableError:
        if find_daemon(workflow, os.environ) is not None:
            raise  # it does not answer
        stored = _store_answer(workflow, verb, issue, text)
        if stored is None:
            raise
        result = stored
    _print_result(result, as_json=as_json)


@click.command(
    epilog="""\b
Examples:
  symphony feedback SYM-7 --stars 2 --comment "Run the tests before you commit"
  symphony feedback SYM-7 --stars 5 --no-learn
  symphony explain SYM-7                       shows the feedback and what was learned from it

A learning run uses the feedback to improve skills. `symphony library proposals` lists its proposals, and a
person accepts or rejects them.

Exit codes: 0 stored, 1 no such issue, or the library cannot be written, 2 usage, 5 no daemon is running,
or it does not answer.
"""
)
@options.issue_argument
@click.option("--stars", type=click.IntRange(1, 5), required=True, help="5 is best.")
@click.option("--comment", default="", help="What was good, and what should change.")
@click.option("--no-learn", is_flag=True, help="Only store it, and start no learning run.")
@options.json_option
@options.workflow_option
def feedback(*, issue: str, stars: int, comment: str, no_learn: bool, as_json: bool, workflow: Path) -> None:
    """Rate the work on an issue to improve skills."""
    require_person("rate work", hint="write what you learned into the skills directory of the workspace")
    if comment:
        comment = options.read_text_argument(comment, None, what="comment", most=MAX_ANSWER_CHARS)
    given = Stars(stars=stars, comment=plain_text(comment), learn=not no_learn)
    client = require_daemon(workflow, os.environ, hint=_START)
    stored = resolve_issue(
        issue,
        partial(client.feedback, given),
        partial(_known_identifiers, client, issue),
        Queries(workflow, os.environ).inactive_error,
    )
    if as_json:
        options.print_json(stored)
    else:
        click.echo(f"{one_line(stored.issue_identifier)}: {one_line(feedback_effect(stored))}.")


@click.command(
    epilog=f"""\b
Examples:
  symphony pause                running sessions continue; `symphony resume` ends the pause
  symphony pause --json | jq -r .message

The pause survives a restart of the daemon.

{_DAEMON_CODES}
"""
)
@options.json_option
@options.workflow_option
def pause(*, as_json: bool, workflow: Path) -> None:
    """Start nothing new; running sessions continue."""
    _print_result(require_daemon(workflow, os.environ, hint=_START).act("pause"), as_json=as_json)


@click.command(
    epilog=f"""\b
Examples:
  symphony resume

{_DAEMON_CODES}
"""
)
@options.json_option
@options.workflow_option
def resume(*, as_json: bool, workflow: Path) -> None:
    """Let a paused daemon start issues again."""
    _print_result(require_daemon(workflow, os.environ, hint=_START).act("resume"), as_json=as_json)


@click.command(
    epilog="""\b
Examples:
  symphony drain
  symphony drain --wait && pip install --upgrade ./symphony && symphony run

The next daemon continues the remaining work. Ctrl-C ends the wait, not the drain.

Exit codes: 0 the daemon drains (with --wait: it has ended), 5 no daemon is running, or it does not answer.
"""
)
@click.option("--wait", is_flag=True, help="Return when the daemon has ended.")
@options.json_option
@options.workflow_option
def drain(*, wait: bool, as_json: bool, workflow: Path) -> None:
    """Let running turns end, then end the daemon.

    The daemon starts nothing new. With --wait the command also waits for a daemon that is already draining.
    """
    client = require_daemon(workflow, os.environ, hint=_NOTHING_TO_DRAIN)
    with _process_end(client.endpoint.pid) as end:
        try:
            _print_result(client.act("drain"), as_json=as_json)
        except UnreachableError as error:
            if not _wait_for(end, _LAST_STEPS_S if wait else _MOMENT_S):
                raise
            if not wait:
                message = f"the daemon (pid {client.endpoint.pid}) ended before it answered"
                raise UnreachableError(message, hint=_NOTHING_TO_DRAIN) from error
        if wait:
            _wait_for(end, None)
            click.echo("The daemon has ended.", err=as_json)


@click.command(
    epilog="""\b
Examples:
  symphony refresh
  symphony refresh --json | jq .coalesced

Exit codes: 0 accepted, 5 no daemon is running, or it does not answer.
"""
)
@options.json_option
@options.workflow_option
def refresh(*, as_json: bool, workflow: Path) -> None:
    """Poll the tracker now."""
    answer = require_daemon(workflow, os.environ, hint=f"{_START}; it polls at once").refresh()
    if as_json:
        options.print_json(answer)
    elif answer.coalesced:
        click.echo("A poll is running or due already; this refresh joins it.")
    else:
        click.echo("The tracker is polled now.")


@click.command(
    epilog="""\b
Examples:
  symphony comment SYM-7 "Please keep the old name."
  symphony comment SYM-7 - < review.md
  symphony comment SYM-7 --file review.md

The daemon posts the comment in the tracker, also after an outage, with a line that an operator wrote it.
The next session of the issue gets it. If an agent waits for an answer, the comment is the answer.

Exit codes: 0 done, 1 refused or no such issue, 2 no text or too much text, 5 no daemon is running, or it does
not answer.
"""
)
@options.issue_argument
@click.argument("text", required=False)
@options.text_file_option
@options.json_option
@options.workflow_option
def comment(*, issue: str, text: str | None, file: str | None, as_json: bool, workflow: Path) -> None:
    """Comment on an issue as a person.

    TEXT is the comment, or - for standard input.
    """
    require_person("comment as a person", hint="an agent has a tool for comments")
    text = options.read_text_argument(text, file, what="comment", most=MAX_ANSWER_CHARS)
    _print_result(_act_on_issue(workflow, "comment", issue, text=text), as_json=as_json)


def _order(
    workflow: Path, verb: str, issues: Sequence[str], *, as_json: bool, text: str | None = None
) -> int:
    """Run an operator action on one issue or on several, print what came of it, and return the exit code.

    Raises:
        CommandError: as `_act_on_issue`, for a single issue; for several, no daemon is running.
    """
    issues = tuple(dict.fromkeys(issues))
    if len(issues) == 1:
        _print_result(_act_on_issue(workflow, verb, issues[0], text=text), as_json=as_json)
        return ExitCode.OK
    require_daemon(workflow, os.environ, hint=_START)
    code, orders = ExitCode.OK, list[OrderResult]()
    for issue in issues:
        try:
            done = _act_on_issue(workflow, verb, issue, text=text)
        except SymphonyError as error:
            failure = error.failure
            code = max(code, getattr(error, "code", None) or ExitCode.FAILURE)
            orders.append(
                OrderResult(issue_identifier=issue, done=False, message=failure.message, hint=failure.hint)
            )
            if not as_json:
                report(CommandError.of(f"{issue}: {failure.message}", hint=failure.hint or "symphony status"))
        else:
            name = done.issue_identifier or issue
            orders.append(
                OrderResult(issue_identifier=name, done=True, changed=done.changed, message=done.message)
            )
            if not as_json:
                _print_result(done, as_json=False)
    if as_json:
        options.print_json(Orders(verb=verb, orders=tuple(orders)))
    return code


def _act_on_issue(workflow: Path, verb: str, identifier: str, *, text: str | None = None) -> Verb:
    """Run an operator action on an issue, whose name may differ in upper and lower case.

    Raises:
        CommandError: the daemon refuses or does not answer, or it does not know the issue.
    """
    client = require_daemon(workflow, os.environ, hint=_START)
    return resolve_issue(
        identifier,
        partial(client.act_on_issue, verb, text=text),
        partial(_known_identifiers, client, identifier),
        Queries(workflow, os.environ).inactive_error,
    )


def _store_answer(workflow: Path, verb: str, identifier: str, text: str | None) -> Verb | None:
    """Keep an answer for the next daemon; None if no question of the issue is known.

    Raises:
        SymphonyError: the answer is refused, or a daemon starts just now.
    """
    from symphony.daemon.stored_answers import store_answer  # noqa: PLC0415 - only without a daemon: slow to import

    state_dir = StateDirectory(locate(workflow, os.environ))
    return store_answer(state_dir, workflow, identifier, OperatorAction(verb), text)


def _known_identifiers(client: Client, refused: str) -> Sequence[str]:
    """The issues that the daemon knows.

    Raises:
        CommandError: it knows the issue that it has just called unknown.
    """
    identifiers = client.identifiers()
    if refused in identifiers:
        raise CommandError.of(
            f"the daemon did not take this for {one_line(refused)}, which it has",
            hint="try again; a daemon of an older version does not know the command, so restart it",
        )
    return identifiers


def _print_result(result: Verb, *, as_json: bool) -> None:
    if as_json:
        options.print_json(result)
        return
    message = one_line(result.message)
    if result.issue_identifier is None:
        click.echo(f"{message[:1].upper()}{message[1:]}.")
    else:
        click.echo(f"{one_line(result.issue_identifier)}: {message}.")


@contextmanager
def _process_end(pid: int) -> Iterator[int | None]:
    """A descriptor that becomes readable when the process ends; None if it has ended already.

    It is opened before the process is asked to end, so that it cannot mean a later process with the same id.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(end: int | None, timeout_s: float | None) -> bool:
    """Whether the process ends within the time."""
    return end is None or bool(select.select([end], [], [], timeout_s)[0])
