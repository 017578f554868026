"""`symphony service`: run the daemon of a repository as a systemd service."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import click

from symphony.cli import service_unit
from symphony.cli.documents import ServiceState
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.main import LazyGroup
from symphony.cli.options import json_option, print_json, use_colour, workflow_argument
from symphony.cli.service_unit import DEFAULT_ACCOUNT, Instance, Locations
from symphony.domain import one_line

_SHOW_TIMEOUT_S: Final = 20.0
_MAX_CHARS: Final = 1_000
_PROPERTIES: Final = (
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
_GROUP_EXAMPLES: Final = """\b
Examples:
  symphony service install --user --now            one of your own, with your logins
  symphony service install --now | sudo sh         a service of the machine, as the user symphony
  symphony service status

Needs systemd. docs/systemd.md tells what the unit does, and how it is shut off.
"""
_INSTALL_EXAMPLES: Final = """\b
Examples:
  symphony service install --user --now
  symphony service install                          the unit and the commands, to be read
  symphony service install --as alice | sudo sh     with the rights of the repository's owner

Again after an upgrade. Exit codes: 0 done, 1 it cannot be done, 2 usage, 3 the workflow is invalid.
"""
_STATUS_EXAMPLES: Final = """\b
Examples:
  symphony service status
  symphony service status --user --json | jq .active

Exit codes: 0 it is active, 1 it is not, or is not installed.
"""
_UNINSTALL_EXAMPLES: Final = """\b
Examples:
  symphony service uninstall --user --name app
  symphony service uninstall | sudo sh

Running turns are ended as by any stop. Secrets, state and workspaces stay.
"""


service = LazyGroup(
    "service",
    help="Run the daemon of a repository as a systemd service.",
    short_help="Run the daemon of a repository as a systemd service.",
    epilog=_GROUP_EXAMPLES,
)


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
@click.option("--as", "account", metavar="USER", help=f"Whose rights it has (default: {DEFAULT_ACCOUNT}).")
@click.option("--now", is_flag=True, help="Start it as well.")
def install(workflow: Path, *, of_user: bool, name: str | None, account: str | None, now: bool) -> None:
    """Make a service of a repository.

    With --user the unit is written and enabled. Without it the unit and the commands are printed for root.
    """
    if of_user and account is not None:
        raise click.UsageError("--as is of services of the machine; with --user it is you")
    locations = _locations(of_user=of_user)
    instance = service_unit.plan_instance(
        workflow,
        name=service_unit.instance_name(workflow, name),
        locations=locations,
        account=account,
        environment=os.environ,
    )
    _carry_out(service_unit.install_script(instance, locations, start=now), locations)
    _print_next_steps(instance, locations, started=now)


@service.command(epilog=_STATUS_EXAMPLES, short_help="Tell how a service is.")
@workflow_argument
@_of_user
@_named
@json_option
def status(workflow: Path, *, of_user: bool, name: str | None, as_json: bool) -> int:
    """Tell how the service of a repository is, as systemd sees it."""
    locations = _locations(of_user=of_user)
    _require_systemd(locations)
    state = _read_state(_installed_name(workflow, name, locations), locations)
    if as_json:
        print_json(state)
    else:
        _print_state(state)
    return ExitCode.OK if state.active == "active" else ExitCode.FAILURE


@service.command(epilog=_UNINSTALL_EXAMPLES, short_help="Take a service away again.")
@workflow_argument
@_of_user
@_named
def uninstall(workflow: Path, *, of_user: bool, name: str | None) -> None:
    """Stop the service of a repository, and take its unit away.

    Without --user the commands are printed for root.
    """
    locations = _locations(of_user=of_user)
    name = _installed_name(workflow, name, locations)
    _carry_out(service_unit.uninstall_script(name, locations), locations)
    click.echo(f"Its secrets stay in {locations.credentials(name)}, and its state where it was.", err=True)


def _carry_out(script: str, locations: Locations) -> None:
    """Run the commands for this user, or print them for root."""
    if locations.of_user:
        _require_systemd(locations)
        service_unit.run_script(script)
    else:
        click.echo(script, nl=False)


def _locations(*, of_user: bool) -> Locations:
    return Locations.for_user(os.environ) if of_user else Locations.for_system()


def _installed_name(workflow: Path, name: str | None, locations: Locations) -> str:
    """The instance that `status` and `uninstall` mean.

    Raises:
        CommandError: no name is given, and the default name belongs to the service of another workflow.
    """
    instance = service_unit.instance_name(workflow, name)
    served = locations.installed_workflow(instance)
    if name is None and served is not None and os.path.realpath(served) != os.path.realpath(workflow):
        hint = "name the service that is meant with --name"
        raise CommandError.of(f"symphony@{instance} serves {served}, and not {workflow}", hint=hint)
    return instance


def _require_systemd(locations: Locations) -> None:
    if shutil.which("systemctl") is None or not locations.booted.is_dir():
        which = "your own systemd" if locations.of_user else "systemd"
        hint = "use a container instead, or start `symphony run` by what starts services here"
        raise CommandError.of(f"{which} does not run here", hint=hint)


def _print_next_steps(instance: Instance, locations: Locations, *, started: bool) -> None:
    """Print what the user still has to do."""
    unit, credentials = service_unit.unit_name(instance.name), locations.credentials(instance.name)
    lines = list(instance.notes)
    if missing := [name for name in instance.secrets if not os.path.exists(credentials / name)]:  # noqa: PTH110 - Path.exists raises where only root may look
        lines.append(f"Put each secret into a file of its name in {credentials}: {', '.join(missing)}")
    if not started or missing:
        lines.append(f"Then: {' '.join(locations.systemctl)} {'restart' if started else 'start'} {unit}")
    lines.append(f"What it says: journalctl {'--user ' if locations.of_user else ''}-u {unit} -f")
    click.echo("\n".join(lines), err=True)


# --- the state of a service ------------------------------------------------------------------------------


def _read_state(name: str, locations: Locations) -> ServiceState:
    """Ask systemd for the state of an instance.

    Raises:
        CommandError: systemd does not answer.
    """
    unit = service_unit.unit_name(name)
    shown = _systemctl_output(*locations.systemctl, "show", unit, f"--property={','.join(_PROPERTIES)}")
    properties = dict.fromkeys(_PROPERTIES, "")
    for line in shown.splitlines():
        key, _, value = line.partition("=")
        if key in properties:
            properties[key] = one_line(value, _MAX_CHARS)

    def number(key: str) -> int:
        value = properties[key]
        return int(value) if value.isascii() and value.isdecimal() else 0

    workflow = locations.installed_workflow(name)
    return ServiceState(
        name=name,
        unit=unit,
        of_user=locations.of_user,
        installed=workflow is not None,
        workflow=workflow,
        active=properties["ActiveState"] or "unknown",
        sub=properties["SubState"] or "unknown",
        result=properties["Result"],
        enabled=properties["UnitFileState"] or "disabled",
        status_text=properties["StatusText"] or None,
        main_pid=number("MainPID") or None,
        restarts=number("NRestarts"),
        exit_status=number("ExecMainStatus"),
        since=properties["ActiveEnterTimestamp"] or None,
    )


def _systemctl_output(*argv: str) -> str:
    hint = "see whether it runs: systemctl is-system-running"
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_SHOW_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError.of(f"systemd does not answer: {error}", hint=hint) from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"{argv[0]} ended with {done.returncode}"
        raise CommandError.of(f"systemd does not answer: {reason}", hint=hint)
    return done.stdout


def _print_state(state: ServiceState) -> None:
    colour = use_colour()
    style = {"active": "green", "failed": "red"}.get(state.active)
    click.echo(f"{state.unit}  {click.style(state.active, fg=style)} ({state.sub})", color=colour)
    succeeded = state.result in {"", "success"}
    rows = {
        "serves": state.workflow or ("unknown" if state.installed else "nothing: it is not installed"),
        "says": state.status_text,
        "process": None if state.main_pid is None else str(state.main_pid),
        "since": state.since,
        "at boot": state.enabled,
        "restarts": str(state.restarts),
        "ended": None if succeeded else f"{state.result}, exit status {state.exit_status}",
    }
    for label, text in rows.items():
        if text:
            click.echo(f"  {label:9} {text}")
