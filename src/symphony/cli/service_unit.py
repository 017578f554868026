"""What a service of a repository is: its files for systemd, what they hold, and what installing one does.

A unit template that the package brings along is shared by all instances; each instance adds one drop-in and a
directory for its secrets.
"""

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final

from symphony.cli.failures import CommandError, ExitCode
from symphony.config import (
    SECRET_ENDINGS,
    STATE_DIR_VARIABLE,
    Settings,
    Workflow,
    WorkflowError,
    WorkflowFile,
    WorkflowReport,
    is_secret_variable,
    read_workflow_file,
)
from symphony.daemon.admission import judge
from symphony.domain import Category, SymphonyError
from symphony.trackers.registry import tracker_kind

ACCOUNT: Final = "symphony"
_MARK: Final = "# Written by `symphony service install"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REFERENCE: Final = re.compile(rb"\$([A-Za-z_][A-Za-z0-9_]*)")
_STANDS_IN: Final = "set-by-the-service"
_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - PrivateTmp= replaces both
_HOMES: Final = (Path("/home"), Path("/root"), Path("/run/user"))  # ProtectHome= hides these
_OWN_PLACES: Final = frozenset({STATE_DIR_VARIABLE, "STATE_DIRECTORY"})
_ALWAYS_SET: Final = frozenset({"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", STATE_DIR_VARIABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the files of a service belong.

    Attributes:
        of_user: whether it is a service of the person and not of the system.
        units: systemd's directory for units of administrators.
        settings: below it each instance has a directory of its own, with its secrets in `credentials`.
        booted: a directory that is there where systemd runs.
        state: below it each instance keeps its state; None where the daemon finds that itself.
    """

    of_user: bool
    units: Path
    settings: Path
    booted: Path
    state: Path | None

    @classmethod
    def of_system(cls, root: Path = Path("/")) -> "Places":
        """Those of the machine."""
        return cls(
            of_user=False,
            units=root / "etc/systemd/system",
            settings=root / "etc/symphony",
            booted=root / "run/systemd/system",
            state=Path("/var/lib/symphony"),
        )

    @classmethod
    def of_person(cls, environment: Mapping[str, str]) -> "Places":
        """Those of the person."""
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
        """The file that makes an instance of it."""
        return self.units / f"symphony@{name}.service.d" / "symphony.conf"

    def credentials(self, name: str) -> Path:
        """Where the secrets of an instance are."""
        return self.settings / name / "credentials"

    @property
    def systemctl(self) -> tuple[str, ...]:
        """How systemctl is called for this kind of service."""
        return ("systemctl", "--user") if self.of_user else ("systemctl",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One repository as a service.

    Attributes:
        name: letters, digits, `.`, `_` and `-`.
        workflow: absolute.
        account: whose rights it has; None for a service of the person, who has their own.
        path: the directories in which it finds agents and git.
        writable: what it writes besides its own state: the repository, and workspaces elsewhere.
        secrets: the variables that its tracker and its agents are given and that files can hold.
        notes: what a person should know before it starts, in whole sentences.
    """

    name: str
    workflow: Path
    account: str | None
    path: Sequence[str]
    writable: Sequence[Path]
    secrets: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def unit(self) -> str:
        """Its name for systemctl."""
        return f"symphony@{self.name}.service"


def instance_name(directory: str) -> str:
    """A name for the service of a directory: what systemd would have to escape becomes a dash."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", directory).strip("-._")[:64]
    return name if _NAME.fullmatch(name) else "repository"


def name_for(workflow: Path, name: str | None) -> str:
    """The instance's name: as given, else of the directory.

    Raises:
        CommandError: exit code 2, no instance can be called so.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise CommandError.of(
            f"no service can be called {name!r}",
            hint="use up to 64 letters, digits, `.`, `_` and `-`, and begin with a letter or digit",
            code=ExitCode.USAGE,
        )
    return name or instance_name(Path(os.path.realpath(workflow)).parent.name)


# --- what is looked up ------------------------------------------------------------------------------------


def look_around(
    workflow: Path, *, name: str, places: Places, account: str | None, environment: Mapping[str, str]
) -> Instance:
    """The service of a workflow.

    Raises:
        SymphonyError: the workflow cannot be used, whatever its secrets are.
    """
    file = read_workflow_file(workflow)
    judged, given = _judged(file, _of_service(name, places, environment))
    root = judged.settings.workspace.root
    secrets = tuple(sorted(filter(is_secret_variable, given)))
    unset = sorted((given | judged.variables) - {*secrets, *_ALWAYS_SET})
    edit = f"{' '.join(places.systemctl)} edit symphony@{name}.service"
    notes = []
    if unset:
        settings = " ".join(f"{one}=…" for one in unset)
        notes.append(f"The service has no {', '.join(unset)}: {edit}, [Service], Environment={settings}")
        notes.append(f"A secret among them needs a name that ends in one of {', '.join(SECRET_ENDINGS)}")
    if places.of_user:
        notes.append("It ends when you log out, unless you say once: loginctl enable-linger")
    else:
        notes.extend(
            f"{what} lies in the temp directory, but a service has its own, which is emptied when it stops"
            for what, path in (("workspace.root", root), (str(file.path), file.path))
            if any(path.is_relative_to(place) for place in _TEMPORARY)
        )
    return Instance(
        name=name,
        workflow=file.path,
        account=None if places.of_user else account or ACCOUNT,
        path=tuple(filter(os.path.isabs, environment.get("PATH", os.defpath).split(":"))),
        writable=() if places.of_user else tuple(_writable(judged.settings, file.path)),
        secrets=secrets,
        notes=tuple(notes),
    )


def _of_service(name: str, places: Places, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that tell the service its own places: none of them is taken from a shell."""
    around = {key: value for key, value in environment.items() if key not in _OWN_PLACES}
    if places.state is None:
        return around
    state = places.state / name
    return {**around, "HOME": str(state / "home"), "STATE_DIRECTORY": str(state)}


def _judged(file: WorkflowFile, environment: Mapping[str, str]) -> tuple[Workflow, frozenset[str]]:
    """The workflow, as if every variable were set that it refers to, and those for tracker and agents."""
    found = {name.decode() for name in _REFERENCE.findall(file.data)}
    asked = dict.fromkeys(found - _OWN_PLACES, _STANDS_IN)
    judgement = judge(file, environment={**asked, **environment}, acknowledged=True)
    usual = _usual_secrets(judgement)
    if any(failure.category is Category.MISSING_TRACKER_SECRET for failure in judgement.failures):
        asked |= dict.fromkeys(usual, _STANDS_IN)
        judgement = judge(file, environment={**asked, **environment}, acknowledged=True)
    if judgement.workflow is None:
        raise WorkflowError(judgement.failures)
    agents = judgement.workflow.agents.values()
    theirs = (name for agent in agents for name in agent.settings.env)
    return judgement.workflow, frozenset({*(judgement.workflow.secret_names or usual), *theirs})


def _usual_secrets(judgement: WorkflowReport) -> frozenset[str]:
    """The variables that the tracker takes its credential from where the file names none."""
    kind = getattr(judgement.sections.get("tracker"), "kind", "")
    try:
        return tracker_kind(kind).secret_names
    except SymphonyError:
        return frozenset()


def _writable(settings: Settings, workflow: Path) -> Iterator[Path]:
    yield workflow.parent
    repo = settings.workspace.repo
    if repo is not None and repo.startswith("/") and Path(repo) != workflow.parent:
        yield Path(repo)
    yield settings.workspace.root


# --- the files --------------------------------------------------------------------------------------------


def template(*, of_user: bool) -> str:
    """The unit that the package brings along."""
    units = resources.files("symphony.cli") / "units"
    found = units / "user" / "symphony@.service" if of_user else units / "symphony@.service"
    return found.read_text(encoding="utf-8")


def drop_in(instance: Instance) -> str:
    """The file beside the template that makes it serve this repository.

    Raises:
        CommandError: a path holds what a unit file cannot.
    """
    command = (sys.executable, "-m", "symphony", "run", "--log-format", "json", str(instance.workflow))
    lines = [
        f"{_MARK}`, and written anew by the next; put your own settings into another file.",
        f"# workflow: {_plain(str(instance.workflow))}",
        "[Unit]",
        f"RequiresMountsFor={_quoted(str(instance.workflow.parent))}",
        "",
        "[Service]",
        "ExecStart=",
        f"ExecStart={' '.join(_quoted(word).replace('$', '$$') for word in command)}",
        f"Environment={_quoted('PATH=' + ':'.join(instance.path))}",
        *([] if instance.account is None else [f"User={instance.account}"]),
        *(["ProtectHome=read-only"] if _lies_in_a_home(instance) else []),
        *(f"ReadWritePaths={_quoted(f'-{path}')}" for path in instance.writable),
    ]
    return "\n".join(lines) + "\n"


def _lies_in_a_home(instance: Instance) -> bool:
    """Whether the service needs to read a home: for its repository, what it writes, or a program."""
    if instance.account is None:
        return False  # a service of a person has their home as it is
    paths = (Path(sys.executable), instance.workflow, *instance.writable, *map(Path, instance.path))
    return any(path.is_relative_to(home) for path in paths for home in _HOMES)


def workflow_of(text: str) -> str | None:
    """Which workflow a drop-in of ours is for; None for a file of others."""
    if not text.startswith(_MARK):
        return None
    found = re.search(r"^# workflow: (.*)$", text, re.MULTILINE)
    return None if found is None else found[1]


def served_by(name: str, places: Places) -> str | None:
    """Which workflow the instance of a name serves; None where it is not installed, or not by us."""
    try:
        return workflow_of(places.drop_in(name).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _quoted(text: str) -> str:
    """One word of a unit file."""
    escaped = _plain(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _plain(text: str) -> str:
    if not text.isprintable():
        what = f"a unit file cannot hold such characters: {text!r}"
        raise CommandError.of(what, hint="move it to a path of plain characters")
    return text


# --- what is done -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of the machine: `act` makes it and says in a word what it came to.

    `verb` and `what` tell it beforehand, with the `text` of a file.
    """

    verb: str
    what: str
    act: Callable[[], str]
    text: str = ""

    def carry_out(self) -> str:
        """Make the change.

        Raises:
            CommandError: it cannot be made.
        """
        try:
            return self.act()
        except OSError as error:
            what = f"{self.what} cannot be changed: {error.strerror or error}"
            raise CommandError.of(what, hint="do it as root, or with --user for yourself alone") from error


def installing(instance: Instance, places: Places, *, start: bool) -> list[Step]:
    """The steps that make a service of a repository; each may be done again.

    Raises:
        CommandError: a path holds what a unit file cannot.
    """
    credentials = places.credentials(instance.name)
    begin = ("enable", "--now") if start else ("enable",)
    return [
        _file(places.template, template(of_user=places.of_user)),
        _file(places.drop_in(instance.name), drop_in(instance)),
        Step(verb="create", what=str(credentials), act=lambda: _closed_directory(credentials)),
        _command(*places.systemctl, "daemon-reload"),
        _command(*places.systemctl, *begin, instance.unit),
    ]


def removing(name: str, places: Places) -> list[Step]:
    """The steps that take it away again; secrets, state and workspaces stay."""
    unit, ours = f"symphony@{name}.service", places.drop_in(name)
    others = [path for path in places.units.glob("symphony@*.service.d/symphony.conf") if path != ours]
    gone = (ours,) if others else (ours, places.template)
    return [
        _command(*places.systemctl, "disable", "--now", unit, optional=True),
        *(Step(verb="remove", what=str(path), act=partial(_removed, path)) for path in gone),
        _command(*places.systemctl, "daemon-reload"),
        _command(*places.systemctl, "reset-failed", unit, optional=True),
    ]


def refuse_unknown(account: str | None) -> None:
    """Refuse an account that the machine does not have.

    Raises:
        CommandError: there is no such user.
    """
    try:
        if account is not None:
            pwd.getpwnam(account)
    except KeyError:
        make = f"useradd --system --home-dir /var/lib/symphony --shell /usr/sbin/nologin {account}"
        hint = f"make one: {make}; or name the repository's owner with --as"
        raise CommandError.of(f"there is no user {account}", hint=hint) from None


def _file(path: Path, text: str) -> Step:
    return Step(verb="write", what=str(path), act=lambda: _written(path, text), text=text)


def _command(*argv: str, optional: bool = False) -> Step:
    return Step(verb="run", what=" ".join(argv), act=lambda: _ran(argv, optional=optional))


def _written(path: Path, text: str) -> str:
    before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
    if before == text:
        return "unchanged"
    if before is not None and not before.startswith(_MARK):
        hint = "move it away, or give the service another name with --name"
        raise CommandError.of(f"{path} is there, and symphony did not write it", hint=hint)
    if before is not None and workflow_of(before) != workflow_of(text):
        hint = "give this one another name with --name, or uninstall that one"
        raise CommandError.of(f"a service of this name serves {workflow_of(before)} already", hint=hint)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)
    return "written" if before is None else "rewritten"


def _closed_directory(path: Path) -> str:
    if not path.is_dir():
        path.mkdir(mode=0o700, parents=True)
        return "created"
    if not path.stat().st_mode & 0o077:
        return "unchanged"
    path.chmod(0o700)
    return "closed"


def _removed(path: Path) -> str:
    if not path.exists():
        return "not there"
    if not path.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        return "kept: not ours"
    path.unlink()
    if path.parent.name.endswith(".d"):
        with suppress(OSError):  # a person keeps settings of their own there
            path.parent.rmdir()
    return "removed"


def _ran(argv: Sequence[str], *, optional: bool) -> str:
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    if done.returncode == 0:
        return "done"
    if optional:
        return "not needed"
    said = (done.stderr or done.stdout).strip() or f"it ended with {done.returncode}"
    raise CommandError.of(f"{' '.join(argv)}: {said}", hint="journalctl tells more: journalctl -e")
