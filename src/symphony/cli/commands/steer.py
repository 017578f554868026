"""`symphony stop`, `retry`, `unblock`, `pause` and `resume`: orders to the daemon that runs."""

import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import click

from symphony.api.interface import MAX_ANSWER_CHARS
from symphony.api.models import Verb
from symphony.cli.client import Client, needed_daemon
from symphony.cli.facts import Facts, answer_for
from symphony.cli.failures import CommandError
from symphony.cli.options import (
    issue_argument,
    json_option,
    print_json,
    read_text_argument,
    text_file_option,
    workflow_option,
)
from symphony.domain import one_line

# What an operator orders of the daemon: one request, one line of answer, and how both are told.


def order(workflow: Path, verb: str, *, hint: str) -> Verb:
    """Have the daemon itself do something; `hint` is what to do where none runs.

    Raises:
        CommandError: it does not fit the present state, or there is no daemon.
    """
    with needed_daemon(workflow, os.environ, hint=hint) as client:
        return client.order(verb)


def order_on(workflow: Path, verb: str, identifier: str, *, text: str | None = None) -> Verb:
    """Have the daemon do something about an issue, which may be named in another case.

    Raises:
        CommandError: as `order`, or the daemon does not have the issue.
    """
    hint = "start one: symphony run"
    with needed_daemon(workflow, os.environ, hint=hint) as client:
        ask: Callable[[str], Verb | None] = partial(client.order_on, verb, text=text)
        facts = Facts(workflow, os.environ)
        return answer_for(identifier, ask, partial(_known, client, identifier), facts.elsewhere)


def tell(answer: Verb, *, as_json: bool) -> None:
    """Print what the daemon answered."""
    if as_json:
        print_json(answer)
        return
    name, message = answer.issue_identifier, one_line(answer.message)
    if name is None:
        click.echo(f"{message[:1].upper()}{message[1:]}.")
    else:
        click.echo(f"{one_line(name)}: {message}.")


def _known(client: Client, identifier: str) -> Sequence[str]:
    """Every identifier that the daemon has in hand, to guess what was meant.

    Raises:
        CommandError: it has this very one and said that it has not: the issue came or went just now.
    """
    names = client.identifiers()
    if identifier in names:
        raise CommandError.of(
            f"the daemon did not take this for {one_line(identifier)}, which it has",
            hint="try again; a daemon of an older version does not know the command, so restart it",
        )
    return names


_CODES: Final = (
    "Exit codes: 0 done, 1 refused or no such issue, 5 no daemon is running, or it does not answer."
)
_OWN_CODES: Final = "Exit codes: 0 done, or it is so already, 5 no daemon is running, or it does not answer."
_STOP: Final = f"""\b
Examples:
  symphony stop SYM-7
  symphony stop SYM-7 --json | jq -r .message

What the run committed is delivered; the issue stays blocked until `symphony retry` or `unblock`, or until
somebody changes its state, labels, title or description.

{_CODES}
"""
_RETRY: Final = f"""\b
Examples:
  symphony retry SYM-7          a retry that waits, or a blocked issue: try it now

Budgets stay as they are; `symphony unblock` gives the issue a new one.

{_CODES}
"""
_UNBLOCK: Final = f"""\b
Examples:
  symphony unblock SYM-7        its budget counts anew, and it is tried

{_CODES}
"""
_PAUSE: Final = f"""\b
Examples:
  symphony pause                what runs goes on; `symphony resume` ends it
  symphony pause --json | jq -r .message

A pause outlasts a restart of the daemon.

{_OWN_CODES}
"""
_RESUME: Final = f"""\b
Examples:
  symphony resume

{_OWN_CODES}
"""


@click.command(epilog=_STOP)
@issue_argument
@json_option
@workflow_option
def stop(*, issue: str, as_json: bool, workflow: Path) -> None:
    """End the run of an issue, and keep it from starting."""
    _on(workflow, "stop", issue, as_json=as_json)


@click.command(epilog=_RETRY)
@issue_argument
@json_option
@workflow_option
def retry(*, issue: str, as_json: bool, workflow: Path) -> None:
    """Have an issue tried now."""
    _on(workflow, "retry", issue, as_json=as_json)


@click.command(epilog=_UNBLOCK)
@issue_argument
@json_option
@workflow_option
def unblock(*, issue: str, as_json: bool, workflow: Path) -> None:
    """Give a blocked issue a new budget, and have it tried."""
    _on(workflow, "unblock", issue, as_json=as_json)


@click.command(epilog=_PAUSE)
@json_option
@workflow_option
def pause(*, as_json: bool, workflow: Path) -> None:
    """Have the daemon start nothing new."""
    _own(workflow, "pause", as_json=as_json)


@click.command(epilog=_RESUME)
@json_option
@workflow_option
def resume(*, as_json: bool, workflow: Path) -> None:
    """Have a paused daemon start issues again."""
    _own(workflow, "resume", as_json=as_json)


def _on(workflow: Path, verb: str, issue: str, *, as_json: bool) -> None:

    tell(order_on(workflow, verb, issue), as_json=as_json)


def _own(workflow: Path, verb: str, *, as_json: bool) -> None:

    tell(order(workflow, verb, hint="start one: symphony run"), as_json=as_json)


# `symphony answer`: tell an agent what it asked, so that it goes on.


_ANSWER_EPILOG = """\b
Examples:
  symphony answer SYM-7 "Take the blue one"
  symphony answer SYM-7 - < answer.md
  symphony answer SYM-7 --file answer.md
  symphony explain SYM-7                       shows the question

The answer goes to the agent, and nowhere else: it is no comment on the issue. A comment that a person writes
on the issue is an answer, too.

Exit codes: 0 done, 1 refused or no such issue, 2 no text, or too much of it, 5 no daemon is running, or it
does not answer.
"""


@click.command(epilog=_ANSWER_EPILOG)
@issue_argument
@click.argument("text", required=False)
@text_file_option
@json_option
@workflow_option
def answer(*, issue: str, text: str | None, file: str | None, as_json: bool, workflow: Path) -> None:
    """Answer the question of an issue's agent.

    TEXT is the answer, or - for what comes on standard input.
    """
    words = read_text_argument(text, file, what="answer", most=MAX_ANSWER_CHARS)

    tell(order_on(workflow, "answer", issue, text=words), as_json=as_json)


# `symphony drain`: have the daemon end once its present turns have.


_ENDING_S: Final = 10.0
_MOMENT_S: Final = 1.0

_DRAIN_EPILOG = """\b
Examples:
  symphony drain
  symphony drain --wait && pip install --upgrade ./symphony && symphony run

What is left is taken up by the next daemon. Ctrl-C ends the waiting, not the drain.

Exit codes: 0 asked for, or it drains already (with --wait: it has ended), 5 no daemon is running, or it does
not answer.
"""


@click.command(epilog=_DRAIN_EPILOG)
@click.option("--wait", is_flag=True, help="Return when the daemon has ended.")
@json_option
@workflow_option
def drain(*, wait: bool, as_json: bool, workflow: Path) -> None:
    """Have the daemon end once its present turns have.

    It starts nothing any more. A daemon that drains already can be waited for.
    """
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.client import UnreachableError, needed_daemon, unreachable

    with (
        needed_daemon(workflow, os.environ, hint="nothing is left to drain") as client,
        _end_of(client.control.pid) as end,
    ):
        try:
            tell(client.order("drain"), as_json=as_json)
        except UnreachableError as error:
            if not _ended(end, _ENDING_S if wait else _MOMENT_S):  # it may be on its last steps
                raise
            if not wait:
                told = f"the daemon (pid {client.control.pid}) ended before it answered"
                raise unreachable(told, hint="nothing is left to drain") from error
        if wait:
            _ended(end, None)
            click.echo("The daemon has ended.", err=as_json)


def _ended(end: int | None, timeout_s: float | None) -> bool:
    """Wait for the end of the process, so long at most."""
    return end is None or bool(select.select([end], [], [], timeout_s)[0])


@contextmanager
def _end_of(pid: int) -> Iterator[int | None]:
    """A descriptor that becomes readable when the process ends; null where it has ended already.

    It is opened before the process is asked to end, so that it cannot stand for another one of that number.
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


# `symphony refresh`: have the daemon ask the tracker now instead of at the next poll.


_REFRESH_EPILOG = """\b
Examples:
  symphony refresh
  symphony refresh --json | jq .coalesced

Exit codes: 0 asked for, 5 no daemon is running, or it does not answer.
"""


@click.command(epilog=_REFRESH_EPILOG)
@json_option
@workflow_option
def refresh(*, as_json: bool, workflow: Path) -> None:
    """Have the daemon poll the tracker now."""
    # Imported here: `--help` of any command stays fast.
    from symphony.cli.client import needed_daemon

    with needed_daemon(workflow, os.environ, hint="start one: symphony run; it polls at once") as client:
        answer = client.refresh()
    if as_json:
        print_json(answer)
    elif answer.coalesced:
        click.echo("A poll is under way or due already; this refresh goes with it.")
    else:
        click.echo("The tracker is polled now.")
