"""`symphony notify`: where people are notified, and whether that works."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import click

from symphony import to_thread
from symphony.api.models import NotifyTarget
from symphony.cli.client import connect
from symphony.cli.documents import NotifyTargets, NotifyTest, NotifyTested
from symphony.cli.failures import CommandError, ExitCode, printable
from symphony.cli.main import LazyGroup
from symphony.cli.offline import open_context
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.config import NotifySettings, did_you_mean_one_of, read_secrets
from symphony.daemon.context import RuntimeContext
from symphony.daemon.notify.notifications import Notification
from symphony.daemon.notify.targets import Deliverer, DeliveryError, TargetError, resolve_target
from symphony.domain import Selection
from symphony.processes.local import LocalHost

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
  symphony notify list                 the targets, their events and their last deliveries
  symphony notify list --json | jq '.targets[] | select(.problem or .failure)'

Exit codes: 0 shown, 3 the configuration is invalid, 5 the daemon does not answer.
""",
)
@json_option
@workflow_option
def list_(*, as_json: bool, workflow: Path) -> None:
    """List the targets and their last deliveries."""
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

This command sends it once, with its own environment. Exit codes: 0 delivered, 1 not delivered, 3 the
configuration is invalid or has no such target.
""",
)
@click.argument("name", required=False)
@json_option
@workflow_option
def test_(*, name: str | None, as_json: bool, workflow: Path) -> int:
    """Send a test notification.

    NAME is a target of `notify`. Without it, all targets get the test.
    """
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


# --- without a daemon ------------------------------------------------------------------------------------


def list_targets(workflow: Path, environment: Mapping[str, str]) -> NotifyTargets:
    """The targets, with their deliveries if a daemon runs.

    Raises:
        SymphonyError: the workflow is not usable, or the daemon does not answer.
    """
    client = connect(workflow, environment)
    if client is not None:
        return NotifyTargets(source="daemon", targets=client.state(Selection(limit=0)).notifications)
    context = open_context(workflow, environment)
    return NotifyTargets(source="files", targets=targets_of(context, read_secrets(environment).environment))


def targets_of(context: RuntimeContext, environment: Mapping[str, str]) -> tuple[NotifyTarget, ...]:
    """The targets as the files have them."""
    return tuple(
        NotifyTarget(name=each.name, kind=each.kind, on=each.on, problem=_problem(each, environment))
        for each in context.settings.notify
    )


def _problem(settings: NotifySettings, environment: Mapping[str, str]) -> str | None:
    try:
        resolve_target(settings, environment)
    except TargetError as error:
        return str(error)
    return None


def send_test(workflow: Path, name: str | None, environment: Mapping[str, str]) -> NotifyTested:
    """Send one test notification to a target, or to all of them if `name` is `None`.

    Raises:
        SymphonyError: the workflow is not usable, or has no such target.
    """
    context, environment = open_context(workflow, environment), read_secrets(environment).environment
    names = [target.name for target in context.settings.notify]
    if name is not None and name not in names:
        message = f"WORKFLOW.md has no usable target of notify called {name}"
        raise CommandError.of(message, hint=did_you_mean_one_of(name, names), code=ExitCode.CONFIGURATION)
    chosen = [target for target in context.settings.notify if name in {None, target.name}]
    return NotifyTested(tests=tuple(anyio.run(_test_all, context, chosen, environment)))


async def _test_all(
    context: RuntimeContext, targets: Sequence[NotifySettings], environment: Mapping[str, str]
) -> list[NotifyTest]:
    deliverer = Deliverer(LocalHost(), environment, context.workflow.path.parent)
    return [await _test(context, target, deliverer, environment) for target in targets]


async def _test(
    context: RuntimeContext, settings: NotifySettings, deliverer: Deliverer, environment: Mapping[str, str]
) -> NotifyTest:
    now_ms = time.time_ns() // 1_000_000
    sample = Notification(
        id=f"test:{now_ms}", event="test", at_wall_ms=now_ms, message="a test of symphony notify"
    )
    reason, hint = None, None
    try:
        await deliverer.deliver(
            await to_thread.run_sync(resolve_target, settings, environment),
            [sample],
            dropped=0,
            now_ms=now_ms,
            secret_names=context.secret_names,
            redaction=context.redaction,
        )
    except TargetError as error:
        reason, hint = str(error), error.hint
    except DeliveryError as error:
        reason, hint = error.failure.message, "see whether the address is right and can be reached from here"
        if settings.kind == "command":
            hint = "run the command by hand with a JSON document on its standard input"
    return NotifyTest(
        name=settings.name,
        kind=settings.kind,
        delivered=reason is None,
        reason=None if reason is None else context.redaction.text(reason),
        hint=hint,
    )
