"""`symphony notify`: where people are notified, and whether that works."""

import os
from pathlib import Path

import click

from symphony.cli.failures import ExitCode, printable
from symphony.cli.main import LazyGroup
from symphony.cli.options import json_option, print_json, workflow_option

notify = LazyGroup(
    "notify",
    help="List the targets of notifications, and send a test to them.",
    short_help="List and test the targets of notifications.",
    epilog="""\b
Examples:
  symphony notify list
  symphony notify test team-chat

The targets are those of `notify` in WORKFLOW.md.
""",
)


@notify.command(
    "list",
    epilog="""\b
Examples:
  symphony notify list                 the targets, what they get, and how the last delivery went
  symphony notify list --json | jq '.targets[] | select(.problem or .failure)'

Exit codes: 0 shown, 3 the configuration is invalid, 5 the daemon does not answer.
""",
)
@json_option
@workflow_option
def list_(*, as_json: bool, workflow: Path) -> None:
    """List the targets, and whether they get what is sent."""
    from symphony.cli.notifying import list_targets

    found = list_targets(workflow, dict(os.environ))
    if as_json:
        print_json(found)
        return
    if not found.targets:
        click.echo("Nobody is notified: WORKFLOW.md has no `notify`.")
    for target in found.targets:
        state = "on" if target.problem is None else f"off: {target.problem}"
        if target.failure is not None:
            state = f"failing: {target.failure}"
        waiting = f", {target.pending} pending" if target.pending else ""
        last = "" if target.delivered_at is None else f", last delivery {target.delivered_at}"
        click.echo(printable(f"{target.name} ({target.kind}) {state}{waiting}{last}"))
        click.echo(f"  {', '.join(target.on)}")


@notify.command(
    "test",
    epilog="""\b
Examples:
  symphony notify test                 to every target
  symphony notify test team-chat       to one
  symphony notify test --json | jq '.tests[] | select(.delivered | not)'

It is sent from here, with the environment of this command, and once. Exit codes: 0 delivered, 1 not, 3 the
configuration is invalid or has no such target.
""",
)
@click.argument("name", required=False)
@json_option
@workflow_option
def test_(*, name: str | None, as_json: bool, workflow: Path) -> int:
    """Send a test notification.

    NAME is a target of `notify`; without it, all of them get the test.
    """
    from symphony.cli.notifying import send_test

    done = send_test(workflow, name, dict(os.environ))
    if as_json:
        print_json(done)
    elif not done.tests:
        click.echo("Nobody is notified: WORKFLOW.md has no `notify`.")
    else:
        for one in done.tests:
            click.echo(printable(f"{one.name}: {'delivered' if one.delivered else one.reason}"))
            if one.hint is not None:
                click.echo(printable(f"  hint: {one.hint}"))
    return ExitCode.OK if all(one.delivered for one in done.tests) else ExitCode.FAILURE
