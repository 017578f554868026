"""`symphony service`: run the daemon of a repository as a systemd service.

All services share one unit template. Each instance adds a drop-in file and a directory for its secrets.
"""

import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from symphony import config
from symphony.cli.documents import ServiceState
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.main import LazyGroup
from symphony.cli.options import json_option, print_json, use_colour, workflow_argument
from symphony.daemon.admission import judge
from symphony.domain import SymphonyError, one_line
from symphony.trackers.registry import TRACKERS, tracker_kind

# --- the files of a service ------------------------------------------------------------------------------

DEFAULT_ACCOUNT: Final = "symphony"
_MARK: Final = "# Written by `symphony service install"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REFERENCE: Final = re.compile(rb"\$([A-Za-z_][A-Za-z0-9_]*)")
_PLACEHOLDER: Final = "set-by-the-service"
_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - PrivateTmp= replaces both
_HOMES: Final = (Path("/home"), Path("/root"), Path("/run/user"))  # ProtectHome= hides these
_SET_BY_UNIT: Final = frozenset({config.STATE_DIR_VARIABLE, "STATE_DIRECTORY"})
_ALWAYS_SET: Final = frozenset(
    {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", config.STATE_DIR_VARIABLE}
)


# --- locations -------------------------------------------------------------------------------------------


class Locations(Struct, frozen=True, kw_only=True):
    """Where the files of services are.

    Attributes:
        of_user: services of a user, not of the system.
        units: systemd's directory for local units.
        settings: has a directory for each instance, with its secrets in `credentials`.
        booted: exists if systemd runs.
        state: has the state directory of each instance; None if the daemon finds its own.
    """

    of_user: bool
    units: Path
    settings: Path
    booted: Path
    state: Path | None

    @classmethod
    def for_system(cls, root: Path = Path("/")) -> "Locations":
        """Locations for services of the system."""
        return cls(
            of_user=False,
            units=root / "etc/systemd/system",
            settings=root / "etc/symphony",
            booted=root / "run/systemd/system",
            state=Path("/var/lib/symphony"),
        )

    @classmethod
    def for_user(cls, environment: Mapping[str, str]) -> "Locations":
        """Locations for services of the current user."""
        home = Path(environment.get("HOME") or "~").expanduser()
        settings = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
        runtime = Path(environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
        return cls(
            of_user=True,
            units=settings / "systemd/user",
            settings=settings / "symphony",
            booted=runtime / "systemd",
            state=None,
        )

    @property
    def template(self) -> Path:
        """The unit that all instances share."""
        return self.units / "symphony@.service"

    def drop_in(self, name: str) -> Path:
        """The file that configures one instance."""
        return self.units / f"symphony@{name}.service.d" / "symphony.conf"

    def credentials(self, name: str) -> Path:
        """The directory with the secrets of an instance."""
        return self.settings / name / "credentials"

    @property
    def systemctl(self) -> tuple[str, ...]:
        """The systemctl command for these services."""
        return ("systemctl", "--user") if self.of_user else ("systemctl",)

    def installed_workflow(self, name: str) -> str | None:
        """The workflow that an instance serves; None if Symphony did not install it."""
        try:
            return workflow_of_drop_in(self.drop_in(name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None


def unit_name(name: str) -> str:
    """The systemd unit of an instance."""
    return f"symphony@{name}.service"


def instance_name(workflow: Path, name: str | None) -> str:
    """The name of the instance: the given one, or else one made from the directory of the workflow.

    Raises:
        CommandError: the given name is not possible; exit code 2.
    """
    if name is not None:
        if not _NAME.fullmatch(name):
            raise CommandError.of(
                f"no service can be called {name!r}",
                hint="use up to 64 letters, digits, `.`, `_` and `-`, and begin with a letter or digit",
                code=ExitCode.USAGE,
            )
        return name
    directory = Path(os.path.realpath(workflow)).parent.name
    # systemd would have to escape other characters.
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", directory).strip("-._")[:64]
    return plain if _NAME.fullmatch(plain) else "repository"


# --- an instance -----------------------------------------------------------------------------------------


class Instance(Struct, frozen=True, kw_only=True):
    """The service of one repository.

    Attributes:
        name: as `instance_name` returns it.
        workflow: an absolute path.
        account: the user it runs as; None for a service of the current user.
        path: the directories in which it finds agents and git.
        writable: what it writes besides its state.
        secrets: variables for the tracker and the agents that files in `credentials` can hold.
        notes: what the user should know before it starts, in sentences.
    """

    name: str
    workflow: Path
    account: str | None
    path: Sequence[str]
    writable: Sequence[Path]
    secrets: Sequence[str] = ()
    notes: Sequence[str] = ()


def plan_instance(
    workflow: Path,
    *,
    name: str,
    locations: Locations,
    account: str | None,
    environment: Mapping[str, str],
) -> Instance:
    """Derive a service from a workflow file.

    Raises:
        SymphonyError: the workflow is invalid, apart from missing secrets.
    """
    file = config.read_workflow_file(workflow)
    # The service has its own state directory and home, and not those of the user's shell.
    environment = {key: value for key, value in environment.items() if key not in _SET_BY_UNIT}
    if locations.state is not None:
        state = locations.state / name
        environment |= {"HOME": str(state / "home"), "STATE_DIRECTORY": str(state)}
    parsed, given = _parse_without_secrets(file, environment)
    workspace = parsed.settings.workspace
    repo = workspace.repo or ""
    repository = [Path(repo)] if repo.startswith("/") else []  # not a URL
    writable = dict.fromkeys((file.path.parent, *repository, workspace.root))
    secrets = sorted(filter(config.is_secret_variable, given))
    unset = sorted((given | parsed.variables) - {*secrets, *_ALWAYS_SET})
    notes = []
    if unset:
        edit = f"{' '.join(locations.systemctl)} edit {unit_name(name)}"
        settings = " ".join(f"{variable}=…" for variable in unset)
        notes.append(f"The service has no {', '.join(unset)}: {edit}, [Service], Environment={settings}")
        notes.append(
            f"A secret among them needs a name that ends in one of {', '.join(config.SECRET_ENDINGS)}"
        )
    if locations.of_user:
        notes.append("It ends when you log out, unless you say once: loginctl enable-linger")
    else:
        notes += _account_notes(account or DEFAULT_ACCOUNT)
        notes += _weak_entries(environment.get("PATH", os.defpath), (file.path, *writable))
        notes += [
            f"{what} is in the temp directory, but a service has its own, which is emptied when it stops"
            for what, path in (("workspace.root", workspace.root), (str(file.path), file.path))
            if any(path.is_relative_to(place) for place in _TEMPORARY)
        ]
    return Instance(
        name=name,
        workflow=file.path,
        account=None if locations.of_user else account or DEFAULT_ACCOUNT,
        path=tuple(filter(os.path.isabs, environment.get("PATH", os.defpath).split(":"))),
        writable=() if locations.of_user else tuple(writable),
        secrets=tuple(secrets),
        notes=tuple(notes),
    )


def _weak_entries(search_path: str, needed: Sequence[Path]) -> Iterator[str]:
    """How entries of PATH weaken the protection of the unit, in sentences.

    Args:
        search_path: PATH.
        needed: the directories that the service must see anyway.
    """
    if not any(path.is_relative_to(home) for path in (Path(sys.executable), *needed) for home in _HOMES):
        yield from (
            f"PATH has {entry}, so that the service can read all homes (ProtectHome=read-only): "
            "install again with a PATH without it, if no agent is in there"
            for entry in dict.fromkeys(search_path.split(":"))
            if any(Path(entry).is_relative_to(home) for home in _HOMES)
        )
    for entry in dict.fromkeys(search_path.split(":")):
        with suppress(OSError):
            if entry.startswith("/") and Path(entry).stat().st_mode & stat.S_IWOTH:
                yield f"PATH has {entry}, where every user can put a program that the service then runs"


def _account_notes(account: str) -> Iterator[str]:
    """What to do if the machine has no such user."""
    try:
        pwd.getpwnam(account)
    except KeyError:
        command = f"useradd --system --home-dir /var/lib/symphony --shell /usr/sbin/nologin {account}"
        yield f"There is no user {account}: make one, or name the repository's owner with --as: {command}"


def _parse_without_secrets(
    file: config.WorkflowFile, environment: Mapping[str, str]
) -> tuple[config.Workflow, frozenset[str]]:
    """The workflow, with placeholders for unset variables, and the variables for tracker and agents."""
    referenced = {name.decode() for name in _REFERENCE.findall(file.data)} - _SET_BY_UNIT
    usual = {kind: _usual_secrets(kind) for kind in TRACKERS.names}
    placeholders = dict.fromkeys(referenced.union(*usual.values()), _PLACEHOLDER)
    report = judge(file, environment={**placeholders, **environment}, acknowledged=True)
    workflow = report.workflow
    if workflow is None:
        raise config.WorkflowError(report.failures)
    of_tracker = workflow.secret_names or usual[workflow.settings.tracker.kind]
    of_agents = {name for agent in workflow.agents.values() for name in agent.settings.env}
    return workflow, of_tracker | of_agents


def _usual_secrets(kind: str) -> frozenset[str]:
    """Variables that a tracker reads its credential from if the file names none."""
    try:
        return tracker_kind(kind).secret_names
    except SymphonyError:  # an adapter package that cannot be loaded
        return frozenset()


# --- unit files ------------------------------------------------------------------------------------------


def unit_template(*, of_user: bool) -> str:
    """The unit file of the package."""
    units = resources.files("symphony.cli") / "units"
    file = units / "user" / "symphony@.service" if of_user else units / "symphony@.service"
    return file.read_text(encoding="utf-8")


def drop_in(instance: Instance) -> str:
    """The file beside the template that makes it serve one repository.

    Raises:
        CommandError: a unit file cannot contain one of the paths.
    """
    # systemd starts no program whose path has a quote or a backslash.
    starter = ("/usr/bin/env",) if re.search(r"['\"\\]", sys.executable) else ()
    program = (*starter, sys.executable, "-m", "symphony")
    command = (*program, "run", "--log-format", "json", str(instance.workflow))
    lines = [
        f"{_MARK}`, and written anew by the next; put your own settings into another file.",
        f"# workflow: {_require_printable(str(instance.workflow))}",
        "[Unit]",
        f"RequiresMountsFor={_quote(str(instance.workflow.parent))}",
        "",
        "[Service]",
        "ExecStart=",
        f"ExecStart={' '.join(_quote(word).replace('$', '$$') for word in command)}",
        f"Environment={_quote('PATH=' + ':'.join(instance.path))}",
    ]
    if instance.account is not None:
        lines.append(f"User={instance.account}")
        read = (Path(sys.executable), instance.workflow, *instance.writable, *map(Path, instance.path))
        if any(path.is_relative_to(home) for path in read for home in _HOMES):
            lines.append("ProtectHome=read-only")  # the template hides homes
    lines += [f"ReadWritePaths={_quote(f'-{path}')}" for path in instance.writable]
    return "\n".join(lines) + "\n"


def workflow_of_drop_in(text: str) -> str | None:
    """The workflow of a file that `drop_in` made; None for another file."""
    if not text.startswith(_MARK):
        return None
    found = re.search(r"^# workflow: (.*)$", text, re.MULTILINE)
    return None if found is None else found[1]


def _quote(text: str) -> str:
    """One word of a unit file."""
    escaped = _require_printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _require_printable(text: str) -> str:
    if not text.isprintable():
        what = f"a unit file cannot contain such characters: {text!r}"
        raise CommandError.of(what, hint="move it to a path of plain characters")
    return text


# --- what makes and removes them -------------------------------------------------------------------------


def install_script(instance: Instance, locations: Locations, *, start: bool) -> str:
    """The shell commands that write the files and enable the service; they can be repeated.

    Raises:
        CommandError: a file is there that Symphony did not write, or it serves another repository.
    """
    own, credentials = locations.drop_in(instance.name), locations.credentials(instance.name)
    served = locations.installed_workflow(instance.name)
    if served not in {None, str(instance.workflow)}:
        hint = "give this one another name with --name, or uninstall that one"
        raise CommandError.of(f"a service of this name serves {served} already", hint=hint)
    files = {locations.template: unit_template(of_user=locations.of_user), own: drop_in(instance)}
    lines = ["set -e", "umask 022"]
    if instance.account is not None:
        lines.append(f"id {shlex.quote(instance.account)} > /dev/null")
    for path, text in files.items():
        if not _is_ours(path):
            hint = "move it away, or give the service another name with --name"
            raise CommandError.of(f"{path} is there, and symphony did not write it", hint=hint)
        lines += [
            f"mkdir -p {_word(path.parent)}",
            f"cat > {_word(path)} << 'END_OF_UNIT'\n{text}END_OF_UNIT",
        ]
    lines += [
        f"mkdir -p {_word(credentials)}",
        f"chmod 0700 {_word(credentials)}",
        shlex.join((*locations.systemctl, "daemon-reload")),
        shlex.join(
            (*locations.systemctl, "enable", *(("--now",) if start else ()), unit_name(instance.name))
        ),
    ]
    return "\n".join(lines) + "\n"


def uninstall_script(name: str, locations: Locations) -> str:
    """The shell commands that stop the service and remove its files; secrets, state and workspaces stay."""
    systemctl, own, unit = shlex.join(locations.systemctl), locations.drop_in(name), unit_name(name)
    others = {*locations.units.glob("symphony@*.service.d/symphony.conf")} - {own}
    ours = [path for path in ((own,) if others else (own, locations.template)) if _is_ours(path)]
    lines = [
        "set -e",
        f"{systemctl} disable --now {unit} || true",
        *(f"rm -f {_word(path)}" for path in ours),
        f"rmdir {_word(own.parent)} 2> /dev/null || true",  # it may hold files of the user
        f"{systemctl} daemon-reload",
        f"{systemctl} reset-failed {unit} 2> /dev/null || true",
    ]
    return "\n".join(lines) + "\n"


def run_script(script: str) -> None:
    """Carry the commands out.

    Raises:
        CommandError: one of them failed.
    """
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ("/bin/sh", "-c", script),
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
        env=environment,
    )
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip() or f"a command ended with {done.returncode}"
        raise CommandError.of(output, hint="journalctl shows more: journalctl --user -e")


def _is_ours(path: Path) -> bool:
    """Whether Symphony may write a file: it wrote it before, or there is none that can be seen."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").startswith(_MARK)
    except OSError:
        return True


def _word(path: Path) -> str:
    return shlex.quote(str(path))


# --- the commands ----------------------------------------------------------------------------------------

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
  symphony service install --user --now            a service for your account, with your logins
  symphony service install --now | sudo sh         a service for the machine, as the user symphony
  symphony service status

Needs systemd. docs/systemd.md describes the unit and its restrictions.
"""
_INSTALL_EXAMPLES: Final = """\b
Examples:
  symphony service install --user --now
  symphony service install                          prints the unit and the commands
  symphony service install --as alice | sudo sh     as the owner of the repository

Run it again after an upgrade. Exit codes: 0 done, 1 failed, 2 usage, 3 the workflow is invalid.
"""
_STATUS_EXAMPLES: Final = """\b
Examples:
  symphony service status
  symphony service status --user --json | jq .active

Exit codes: 0 it is active, 1 it is not active, or not installed.
"""
_UNINSTALL_EXAMPLES: Final = """\b
Examples:
  symphony service uninstall --user --name app
  symphony service uninstall | sudo sh

Running turns end as with any stop. Secrets, state and workspaces stay.
"""


service = LazyGroup(
    "service",
    help="Run the daemon of a repository as a systemd service.",
    short_help="Run the daemon of a repository as a systemd service.",
    epilog=_GROUP_EXAMPLES,
)


_of_user = click.option(
    "--user", "of_user", is_flag=True, help="A service for your account, not for the machine."
)
_named = click.option(
    "--name", metavar="NAME", help="The name of the instance (default: the directory of the repository)."
)


@service.command(epilog=_INSTALL_EXAMPLES, short_help="Install a service for a repository.")
@workflow_argument
@_of_user
@_named
@click.option(
    "--as", "account", metavar="USER", help=f"The user of the service (default: {DEFAULT_ACCOUNT})."
)
@click.option("--now", is_flag=True, help="Start it as well.")
def install(workflow: Path, *, of_user: bool, name: str | None, account: str | None, now: bool) -> None:
    """Install a service for a repository.

    With --user the command writes and enables the unit. Without it, it prints the unit and the commands
    for root.
    """
    if of_user and account is not None:
        raise click.UsageError("--as is of services of the machine; with --user it is you")
    locations = _locations(of_user=of_user)
    instance = plan_instance(
        workflow,
        name=instance_name(workflow, name),
        locations=locations,
        account=account,
        environment=os.environ,
    )
    _carry_out(install_script(instance, locations, start=now), locations)
    _print_next_steps(instance, locations, started=now)


@service.command(epilog=_STATUS_EXAMPLES, short_help="Show the state of a service.")
@workflow_argument
@_of_user
@_named
@json_option
def status(workflow: Path, *, of_user: bool, name: str | None, as_json: bool) -> int:
    """Show the service of a repository, as systemd sees it."""
    locations = _locations(of_user=of_user)
    _require_systemd(locations)
    state = _read_state(_installed_name(workflow, name, locations), locations)
    if as_json:
        print_json(state)
    else:
        _print_state(state)
    return ExitCode.OK if state.active == "active" else ExitCode.FAILURE


@service.command(epilog=_UNINSTALL_EXAMPLES, short_help="Remove a service.")
@workflow_argument
@_of_user
@_named
def uninstall(workflow: Path, *, of_user: bool, name: str | None) -> None:
    """Stop the service of a repository, and remove its unit.

    Without --user it prints the commands for root.
    """
    locations = _locations(of_user=of_user)
    name = _installed_name(workflow, name, locations)
    _carry_out(uninstall_script(name, locations), locations)
    click.echo(f"Its secrets stay in {locations.credentials(name)}, and its state where it was.", err=True)


def _carry_out(script: str, locations: Locations) -> None:
    """Run the commands for this user, or print them for root."""
    if locations.of_user:
        _require_systemd(locations)
        run_script(script)
    else:
        click.echo(script, nl=False)


def _locations(*, of_user: bool) -> Locations:
    return Locations.for_user(os.environ) if of_user else Locations.for_system()


def _installed_name(workflow: Path, name: str | None, locations: Locations) -> str:
    """The instance that `status` and `uninstall` mean.

    Raises:
        CommandError: no name is given, and the default name belongs to the service of another workflow.
    """
    instance = instance_name(workflow, name)
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
    unit, credentials = unit_name(instance.name), locations.credentials(instance.name)
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
    unit = unit_name(name)
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
