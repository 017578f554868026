"""The systemd service of a repository: where its files are, what they contain, and how they are changed.

All services share one unit template. Each instance adds a drop-in file and a directory for its secrets.
"""

import os
import pwd
import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.config import (
    SECRET_ENDINGS,
    STATE_DIR_VARIABLE,
    Workflow,
    WorkflowError,
    WorkflowFile,
    is_secret_variable,
    read_workflow_file,
)
from symphony.daemon.admission import judge
from symphony.domain import SymphonyError
from symphony.files import write_atomic
from symphony.trackers.registry import TRACKERS, tracker_kind

DEFAULT_ACCOUNT: Final = "symphony"
_MARK: Final = "# Written by `symphony service install"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REFERENCE: Final = re.compile(rb"\$([A-Za-z_][A-Za-z0-9_]*)")
_PLACEHOLDER: Final = "set-by-the-service"
_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - PrivateTmp= replaces both
_HOMES: Final = (Path("/home"), Path("/root"), Path("/run/user"))  # ProtectHome= hides these
_SET_BY_UNIT: Final = frozenset({STATE_DIR_VARIABLE, "STATE_DIRECTORY"})
_ALWAYS_SET: Final = frozenset({"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", STATE_DIR_VARIABLE})


# --- locations -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Locations:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
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
    file = read_workflow_file(workflow)
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
    secrets = sorted(filter(is_secret_variable, given))
    unset = sorted((given | parsed.variables) - {*secrets, *_ALWAYS_SET})
    notes = []
    if unset:
        edit = f"{' '.join(locations.systemctl)} edit {unit_name(name)}"
        settings = " ".join(f"{variable}=…" for variable in unset)
        notes.append(f"The service has no {', '.join(unset)}: {edit}, [Service], Environment={settings}")
        notes.append(f"A secret among them needs a name that ends in one of {', '.join(SECRET_ENDINGS)}")
    if locations.of_user:
        notes.append("It ends when you log out, unless you say once: loginctl enable-linger")
    else:
        notes += _weak_entries(environment.get("PATH", os.defpath), (file.path, *writable))
        notes += [
            f"{what} lies in the temp directory, but a service has its own, which is emptied when it stops"
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
    """What entries of PATH cost the protection of the unit, in sentences.

    Args:
        search_path: PATH.
        needed: what the service has to see anyway.
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


def _parse_without_secrets(
    file: WorkflowFile, environment: Mapping[str, str]
) -> tuple[Workflow, frozenset[str]]:
    """The workflow, with placeholders for unset variables, and the variables for tracker and agents."""
    referenced = {name.decode() for name in _REFERENCE.findall(file.data)} - _SET_BY_UNIT
    usual = {kind: _usual_secrets(kind) for kind in TRACKERS.names}
    placeholders = dict.fromkeys(referenced.union(*usual.values()), _PLACEHOLDER)
    report = judge(file, environment={**placeholders, **environment}, acknowledged=True)
    workflow = report.workflow
    if workflow is None:
        raise WorkflowError(report.failures)
    of_tracker = workflow.secret_names or usual[workflow.settings.tracker.kind]
    of_agents = {name for agent in workflow.agents.values() for name in agent.settings.env}
    return workflow, of_tracker | of_agents


def _usual_secrets(kind: str) -> frozenset[str]:
    """Variables that a tracker reads its credential from if the file names none."""
    try:
        return tracker_kind(kind).secret_names
    except SymphonyError:  # an adapter package that cannot be loaded
        return frozenset()


def require_account(account: str | None) -> None:
    """Check that the machine has a user.

    Raises:
        CommandError: it has not.
    """
    try:
        if account is not None:
            pwd.getpwnam(account)
    except KeyError:
        command = f"useradd --system --home-dir /var/lib/symphony --shell /usr/sbin/nologin {account}"
        hint = f"make one: {command}; or name the repository's owner with --as"
        raise CommandError.of(f"there is no user {account}", hint=hint) from None


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
    command = (sys.executable, "-m", "symphony", "run", "--log-format", "json", str(instance.workflow))
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
        what = f"a unit file cannot hold such characters: {text!r}"
        raise CommandError.of(what, hint="move it to a path of plain characters")
    return text


# --- changes ---------------------------------------------------------------------------------------------


def install(instance: Instance, locations: Locations, *, start: bool, dry_run: bool) -> None:
    """Write the files and enable the service; can be repeated. Prints each change.

    Raises:
        CommandError: a change is not possible.
    """
    systemctl, enable = locations.systemctl, ("enable", "--now") if start else ("enable",)
    own = drop_in(instance)  # may fail, so it comes before the first change
    _write_file(locations.template, unit_template(of_user=locations.of_user), dry_run=dry_run)
    _write_file(locations.drop_in(instance.name), own, dry_run=dry_run)
    _make_private_directory(locations.credentials(instance.name), dry_run=dry_run)
    _run(*systemctl, "daemon-reload", dry_run=dry_run)
    _run(*systemctl, *enable, unit_name(instance.name), dry_run=dry_run)


def uninstall(name: str, locations: Locations, *, dry_run: bool) -> None:
    """Stop the service and remove its files, but not its secrets, state and workspaces. Prints each change.

    Raises:
        CommandError: a change is not possible.
    """
    systemctl, own = locations.systemctl, locations.drop_in(name)
    others = {*locations.units.glob("symphony@*.service.d/symphony.conf")} - {own}
    _run(*systemctl, "disable", "--now", unit_name(name), dry_run=dry_run, optional=True)
    for path in (own,) if others else (own, locations.template):
        _remove_file(path, dry_run=dry_run)
    _run(*systemctl, "daemon-reload", dry_run=dry_run)
    _run(*systemctl, "reset-failed", unit_name(name), dry_run=dry_run, optional=True)


def _print_plan(verb: str, what: str, text: str = "") -> None:
    click.echo(f"would {verb:7} {what}")
    click.echo("".join(f"    {line}\n" for line in text.splitlines()), nl=False)


def _print_change(result: str, what: str) -> None:
    click.echo(f"{result:12}  {what}")


def _not_changed(path: Path, error: OSError) -> CommandError:
    message = f"{path} cannot be changed: {error.strerror or error}"
    return CommandError.of(message, hint="do it as root, or with --user for yourself alone")


def _write_file(path: Path, text: str, *, dry_run: bool) -> None:
    """Write a unit file, unless it would replace one of another author or of another repository."""
    if dry_run:
        _print_plan("write", str(path), text)
        return
    try:
        before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
        if before is not None and not before.startswith(_MARK):
            hint = "move it away, or give the service another name with --name"
            raise CommandError.of(f"{path} is there, and symphony did not write it", hint=hint)
        if before is not None and (served := workflow_of_drop_in(before)) != workflow_of_drop_in(text):
            hint = "give this one another name with --name, or uninstall that one"
            raise CommandError.of(f"a service of this name serves {served} already", hint=hint)
        if before != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text.encode(), mode=0o644, exactly=True)
    except OSError as error:
        raise _not_changed(path, error) from error
    _print_change("unchanged" if before == text else "written" if before is None else "rewritten", str(path))


def _make_private_directory(path: Path, *, dry_run: bool) -> None:
    if dry_run:
        _print_plan("create", str(path))
        return
    result = "unchanged"
    try:
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True)
            result = "created"
        elif path.stat().st_mode & 0o077:
            path.chmod(0o700)
            result = "closed"
    except OSError as error:
        raise _not_changed(path, error) from error
    _print_change(result, str(path))


def _remove_file(path: Path, *, dry_run: bool) -> None:
    if dry_run:
        _print_plan("remove", str(path))
        return
    result = "removed"
    try:
        if not path.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
            result = "kept: not ours"
        else:
            path.unlink()
            if path.parent.name.endswith(".d"):
                with suppress(OSError):  # it may hold files of the user
                    path.parent.rmdir()
    except FileNotFoundError:
        result = "not there"
    except OSError as error:
        raise _not_changed(path, error) from error
    _print_change(result, str(path))


def _run(*argv: str, dry_run: bool, optional: bool = False) -> None:
    command = " ".join(argv)
    if dry_run:
        _print_plan("run", command)
        return
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise CommandError.of(
            f"{command}: {error.strerror or error}", hint="see whether it runs: systemctl --version"
        ) from error
    if done.returncode != 0 and not optional:
        output = (done.stderr or done.stdout).strip() or f"it ended with {done.returncode}"
        raise CommandError.of(f"{command}: {output}", hint="journalctl shows more: journalctl -e")
    _print_change("done" if done.returncode == 0 else "not needed", command)
