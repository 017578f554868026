"""`symphony library evaluate`: work on past issues again, without a proposal and with it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import click

from symphony.api import library
from symphony.api.interface import LibraryInUse
from symphony.api.models import LibraryProposalPage
from symphony.cli.failures import CommandError, printable
from symphony.cli.offline import open_context
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.cli.render.library import print_evaluation
from symphony.cli.serving import prepare_process
from symphony.config import read_secrets
from symphony.daemon.learning.evaluation import Evaluator
from symphony.daemon.state_dir import locate
from symphony.domain import SymphonyError
from symphony.library.store import Library, library_path
from symphony.processes.table import RUN_ID_VARIABLE


@click.command(
    epilog="""\b
Examples:
  symphony library evaluate 7
  symphony library evaluate 7 --issues 1
  symphony library evaluate 7 --json | jq .evaluation.recommended

The agent works on each of the newest past issues twice, from the commit where the branch began: without the
change and with it. `agent.library.check` in WORKFLOW.md judges. The table is stored with the proposal. This
uses tokens like runs, but delivers, comments and moves nothing.

Exit codes: 0 recommended, 1 not recommended or not possible, 2 wrong usage, 3 the configuration is invalid,
4 a credential is missing or refused, 130 interrupted; nothing is left of it.
""",
)
@click.argument("proposal", type=click.IntRange(min=1), metavar="PROPOSAL")
@click.option(
    "--issues",
    "count",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    metavar="K",
    help="How many past issues at most.",
)
@json_option
@workflow_option
def evaluate(*, proposal: int, count: int, as_json: bool, workflow: Path) -> int:
    """Test a proposal on past issues."""
    page = evaluate_proposal(
        workflow, proposal, count, say=lambda line: click.echo(printable(line), err=True)
    )
    found = page.evaluation
    if as_json:
        print_json(page)
    elif found is not None:
        print_evaluation(found)
    return 0 if found is not None and found.recommended else 1


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def evaluate_proposal(
    workflow: Path, number: int, count: int, *, say: Callable[[str], None]
) -> LibraryProposalPage:
    """Evaluate a proposal on past issues, at most `count`, and return it with the result.

    Raises:
        SymphonyError: it cannot be evaluated.
        KeyboardInterrupt: a signal ended it; everything is cleaned up.
    """
    if RUN_ID_VARIABLE in os.environ:
        raise CommandError.of("an agent does not evaluate proposals", hint="a person does it")
    prepare_process()  # what agents wrote is run below it
    context, state_dir = open_context(workflow, os.environ), locate(workflow, os.environ)
    evaluator = Evaluator(
        context, environment=read_secrets(os.environ).environment, state_dir=state_dir, say=say
    )
    try:
        anyio.run(_until_signalled, evaluator, number, count)
    except SymphonyError as error:
        raise SymphonyError(context.redaction.failure(error.failure)) from error
    store = Library(library_path(state_dir, context.settings.agent.library.path))
    return library.proposal(LibraryInUse(store=store, mask=context.redaction.text), number)


async def _until_signalled(evaluator: Evaluator, number: int, count: int) -> None:
    """Run the evaluation; a signal cancels it, and its files and processes are gone at the end."""
    failed: SymphonyError | None = None
    signalled = False
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                nonlocal signalled
                async for _ in signals:
                    signalled = True
                    tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                await evaluator.run(number, count)
            except SymphonyError as error:
                failed = error  # raised below, where no task group wraps it
            tasks.cancel_scope.cancel()
    if signalled:
        raise KeyboardInterrupt
    if failed is not None:
        raise failed
