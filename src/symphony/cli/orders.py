"""What an operator orders of the daemon: one request, one line of answer, and how both are told."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from symphony.cli.client import Client, needed_daemon
from symphony.cli.facts import Facts
from symphony.cli.failures import CommandError
from symphony.cli.unknown import answer_for
from symphony.cli.workflow_option import print_json
from symphony.domain.plain import one_line
from symphony.observability.model import Verb

__all__ = ["order", "order_on", "tell"]


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
