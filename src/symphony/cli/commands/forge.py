"""`symphony forge`: check the access to pull requests, without a daemon."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from symphony.cli.commands.tracker import run_on_tracker
from symphony.cli.documents import ForgeCheck
from symphony.cli.failures import ExitCode
from symphony.cli.main import LazyGroup
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.daemon.context import RuntimeContext
from symphony.domain import one_line
from symphony.services.forges import connect_forge

forge = LazyGroup(
    "forge",
    help="Check the forge of WORKFLOW.md, which hosts the pull requests.",
    short_help="Check the access to pull requests.",
    epilog="""\b
Examples:
  symphony forge check

It uses `forge` of WORKFLOW.md, with or without a running daemon.
""",
)


@forge.command(
    epilog="""\b
Examples:
  symphony forge check
  symphony forge check --json | jq '.missing[]'

Changes nothing. Exit codes: 0 fine, 1 the token lacks a right or there is no answer, 3 the configuration is
invalid, 4 the token is missing or refused.
"""
)
@json_option
@workflow_option
def check(*, as_json: bool, workflow: Path) -> int:
    """Show the account of the forge's token, and missing rights."""
    found = run_on_tracker(workflow, partial(check_forge, environment=os.environ))
    if as_json:
        print_json(found)
    else:
        click.echo(f"forge     {found.kind} as {one_line(found.login, 300)}, {one_line(found.repo, 300)}")
        for missing in found.missing:
            click.echo(f"error: the token lacks {one_line(missing, 300)}")
        for limit in found.limits:
            click.echo(f"note      {one_line(limit, 300)}")
        if found.missing:
            click.echo("  hint: docs/forges.md lists the rights that a token needs")
    return ExitCode.OK if found.ok else ExitCode.FAILURE


async def check_forge(context: RuntimeContext, environment: Mapping[str, str]) -> ForgeCheck:
    """The account of the token, and its missing rights.

    Raises:
        SymphonyError: `forge` is not set or cannot be used, or the forge refuses.
    """
    settings = context.settings.forge
    access = await connect_forge(settings, environment).access()
    return ForgeCheck(
        ok=not access.missing,
        kind=str(settings.kind),
        repo=str(settings.repo),
        login=access.login,
        missing=access.missing,
        limits=access.limits,
    )
