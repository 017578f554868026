"""`symphony service`: have systemd keep a daemon of a repository running."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from symphony.cli.documents import ServiceState
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.main import LazyGroup
from symphony.cli.options import dry_run_option, json_option, print_json, workflow_argument
from symphony.cli.service_unit import (
    ACCOUNT,
    Instance,
    Places,
    Step,
    installing,
    look_around,
    name_for,
    refuse_unknown,
    removing,
    served_by,
)
from symphony.domain import one_line

# How a service is, as systemd tells it.


_ASKED_S: Final = 20.0
_MAX_CHARS: Final = 1_000
_ASKED: Final = (
    "ActiveState",
    "SubState",
    "Result",
    "StatusText",
    "MainPID",
    "NRestarts",
    "ExecMainStatus",
    "UnitFileState",
    "ActiveEnterTimestamp",
)


def look_at(name: str, places: Places) -> ServiceState:
    """Ask systemd about an instance.

    Raises:
        CommandError: it does not answer.
    """
    unit = f"symphony@{name}.service"
    told = _properties(_asked((*places.systemctl, "show", unit, f"--property={','.join(_ASKED)}")))
    workflow = served_by(name, places)
    return ServiceState(
        name=name,
        unit=unit,
        of_user=places.of_user,
        installed=workflow is not None,
        workflow=workflow,
        active=told["ActiveState"] or "unknown",
        sub=told["SubState"] or "unknown",
        result=told["Result"],
        enabled=told["UnitFileState"] or "disabled",
        status_text=told["StatusText"] or None,
        main_pid=_number(told["MainPID"]) or None,
        restarts=_number(told["NRestarts"]),
        exit_status=_number(told["ExecMainStatus"]),
        since=told["ActiveEnterTimestamp"] or None,
    )


def _properties(text: str) -> dict[str, str]:
    told = dict.fromkeys(_ASKED, "")
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name in told:
            told[name] = one_line(value, _MAX_CHARS)
    return told


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0


def _asked(argv: tuple[str, ...]) -> str:
    hint = "see whether it runs: systemctl is-system-running"
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_ASKED_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError.of(f"systemd does not answer: {error}", hint=hint) from error
    if done.returncode != 0:
        said = done.stderr.strip() or f"{argv[0]} ended with {done.returncode}"
        raise CommandError.of(f"systemd does not answer: {said}", hint=hint)
    return done.stdout


_GROUP_EXAMPLES: Final = """\b
Examples:
  sudo symphony service install --now      a service of the machine, as the user symphony
  symphony service install --user --now    one of your own, with your logins
  symphony service status

Needs systemd. docs/systemd.md tells what the unit does, and how it is shut off.
"""
_INSTALL_EXAMPLES: Final = """\b
Examples:
  symphony service install --dry-run                what would be written and run
  sudo symphony service install --now ../app/WORKFLOW.md
  sudo symphony service install --as alice          with the rights of the repository's owner

Again after an upgrade: what is as it should be stays. Exit codes: 0 done, 1 it cannot be done, 2 usage,
3 the workflow is invalid.
"""
_STATUS_EXAMPLES: Final = """\b
Examples:
  symphony service status
  symphony service status --user --json | jq .active

Exit codes: 0 it is active, 1 it is not, or is not installed.
"""
_UNINSTALL_EXAMPLES: Final = """\b
Examples:
  sudo symphony service uninstall
  symphony service uninstall --user --name app

Running turns are ended as by any stop. Secrets, state and workspaces stay.
"""


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=_GROUP_EXAMPLES,
    short_help="Run the daemon of a repository as a systemd service.",
)
@click.pass_context
def service(ctx: click.Context) -> None:
    """Run the daemon of a repository as a systemd service."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


_of_user = click.option(
    "--user", "of_user", is_flag=True, help="Your own: a service of yours, and not of the machine."
)
_named = click.option(
    "--name", metavar="NAME", help="Of the instance (default: the directory of the repository)."
)


@service.command(epilog=_INSTALL_EXAMPLES, short_help="Make a service of a repository.")
@workflow_argument
@_of_user
@_named
@click.option("--as", "account", metavar="USER", help=f"Whose rights it has (default: {ACCOUNT}).")
@click.option("--now", is_flag=True, help="Start it as well.")
@dry_run_option
def install(
    workflow: Path, *, of_user: bool, name: str | None, account: str | None, now: bool, dry_run: bool
) -> None:
    """Make a service of a repository: writes the unit, enables it, and makes a place for its secrets."""
    if of_user and account is not None:
        raise click.UsageError("--as is of services of the machine; with --user it is you")
    places = _places(of_user=of_user)
    if not dry_run:
        _able(places)
    called = name_for(workflow, name)
    found = look_around(workflow, name=called, places=places, account=account, environment=os.environ)
    if not dry_run:
        refuse_unknown(found.account)
    _go(installing(found, places, start=now), dry_run=dry_run)
    _tell(found, places, started=now)


@service.command(epilog=_STATUS_EXAMPLES, short_help="Tell how a service is.")
@workflow_argument
@_of_user
@_named
@json_option
def status(workflow: Path, *, of_user: bool, name: str | None, as_json: bool) -> int:
    """Tell how the service of a repository is, as systemd sees it."""
    places = _places(of_user=of_user)
    _able(places, root=False)
    found = look_at(_meant(workflow, name, places), places)
    if as_json:
        print_json(found)
    else:
        _show(found)
    return ExitCode.OK if found.active == "active" else ExitCode.FAILURE


@service.command(epilog=_UNINSTALL_EXAMPLES, short_help="Take a service away again.")
@workflow_argument
@_of_user
@_named
@dry_run_option
def uninstall(workflow: Path, *, of_user: bool, name: str | None, dry_run: bool) -> None:
    """Stop the service of a repository, and take its unit away."""
    places = _places(of_user=of_user)
    if not dry_run:
        _able(places)
    called = _meant(workflow, name, places)
    _go(removing(called, places), dry_run=dry_run)
    click.echo(f"Its secrets stay in {places.credentials(called)}, and its state where it was.")


def _places(*, of_user: bool) -> Places:
    return Places.of_person(os.environ) if of_user else Places.of_system()


def _meant(workflow: Path, name: str | None, places: Places) -> str:
    """The instance of a workflow that is installed.

    Raises:
        CommandError: the one that is called so serves another workflow, and nobody has named it.
    """
    called = name_for(workflow, name)
    served = served_by(called, places)
    if name is None and served is not None and os.path.realpath(served) != os.path.realpath(workflow):
        hint = "name the service that is meant with --name"
        raise CommandError.of(f"symphony@{called} serves {served}, and not {workflow}", hint=hint)
    return called


def _able(places: Places, *, root: bool = True) -> None:
    """Refuse what could only fail half-way.

    Raises:
        CommandError: systemd does not run here, or this is not root.
    """
    if shutil.which("systemctl") is None or not places.booted.is_dir():
        which = "your own systemd" if places.of_user else "systemd"
        hint = "use a container instead, or start `symphony run` by what starts services here"
        raise CommandError.of(f"{which} does not run here", hint=hint)
    if root and not places.of_user and os.geteuid() != 0:
        hint = "use sudo, or --user for a service of your own; --dry-run shows what would be done"
        raise CommandError.of("only root can change services of the machine", hint=hint)


def _go(steps: Iterable[Step], *, dry_run: bool) -> None:
    for step in steps:
        if not dry_run:
            click.echo(f"{step.carry_out():12}  {step.what}")
            continue
        click.echo(f"would {step.verb:7} {step.what}")
        click.echo("".join(f"    {line}\n" for line in step.text.splitlines()), nl=False)


def _tell(instance: Instance, places: Places, *, started: bool) -> None:
    """What a person still has to do."""
    place = places.credentials(instance.name)
    words = " ".join(places.systemctl)
    lines = list(instance.notes)
    if missing := [name for name in instance.secrets if not os.path.exists(place / name)]:  # noqa: PTH110 - only root may look in there, and Path.exists raises
        lines.append(f"Put each secret into a file of its name in {place}: {', '.join(missing)}")
    if not started or missing:
        lines.append(f"Then: {words} {'restart' if started else 'start'} {instance.unit}")
    lines.append(f"What it says: journalctl {'--user ' if places.of_user else ''}-u {instance.unit} -f")
    click.echo("\n" + "\n".join(lines))


def _show(found: ServiceState) -> None:
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    style = {"active": "green", "failed": "red"}.get(found.active)
    click.echo(f"{found.unit}  {click.style(found.active, fg=style)} ({found.sub})", color=colour)
    rows = {
        "serves": found.workflow or ("nothing: it is not installed" if not found.installed else "unknown"),
        "says": found.status_text,
        "process": None if found.main_pid is None else str(found.main_pid),
        "since": found.since,
        "at boot": found.enabled,
        "restarts": str(found.restarts),
        "ended": None
        if found.result in {"", "success"}
        else f"{found.result}, exit status {found.exit_status}",
    }
    for label, text in rows.items():
        if text:
            click.echo(f"  {label:9} {text}")
