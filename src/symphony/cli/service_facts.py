"""What a service of a repository needs, looked up on this machine: its program, its places, its rights."""

import os
import pwd
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import symphony
from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.service_unit import DEFAULT_PATH, Instance, instance_name, is_homely, is_name
from symphony.domain.failures import Category
from symphony.runtime.admission import judge
from symphony.trackers.registry import remote_kind
from symphony.workflow.document import Judgement, WorkflowFile, read_workflow_file
from symphony.workflow.errors import WorkflowError
from symphony.workflow.settings import Settings

__all__ = ["ACCOUNT", "Found", "Places", "look_around", "name_for"]

ACCOUNT: Final = "symphony"
_REFERENCE: Final = re.compile(rb"\$([A-Za-z_][A-Za-z0-9_]*)")
_STANDS_IN: Final = "set-by-the-service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the files of a service belong.

    Attributes:
        of_user: whether it is a service of the person and not of the system.
        units: systemd's directory for units of administrators.
        settings: below it each instance has a directory of its own, with its secrets in `credentials`.
        booted: a directory that is there where systemd runs.
        state: below it each instance keeps its state; null where the daemon finds that itself.
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
        """Where an instance's secrets lie."""
        return self.settings / name / "credentials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An instance, and what a person should know about it before it starts.

    `secrets` are the variables that its tracker and its agents are given; `notes` are whole sentences.
    """

    instance: Instance
    secrets: tuple[str, ...]
    notes: tuple[str, ...]


def name_for(workflow: Path, name: str | None) -> str:
    """The instance's name: as given, else of the directory.

    Raises:
        CommandError: exit code 2, no instance can be called so.
    """
    if name is not None and not is_name(name):
        raise CommandError.of(
            f"no service can be called {name!r}",
            hint="use up to 64 letters, digits, `.`, `_` and `-`, and begin with a letter or digit",
            code=ExitCode.USAGE,
        )
    return name or instance_name(Path(os.path.realpath(workflow)).parent.name)


def look_around(
    workflow: Path,
    *,
    name: str,
    places: Places,
    account: str | None,
    environment: Mapping[str, str],
    systemd: int | None,
) -> Found:
    """Everything that `service install` has to know.

    Raises:
        SymphonyError: the workflow cannot be used, whatever its secrets are.
    """
    home = None if places.state is None else places.state / name / "home"
    file = read_workflow_file(workflow)
    settings, secrets = _judged(file, environment if home is None else {**environment, "HOME": str(home)})
    instance = Instance(
        name=name,
        workflow=file.path,
        program=_program(),
        account=None if places.of_user else account or ACCOUNT,
        writable=() if places.of_user else tuple(_writable(settings, file.path, places, name)),
        readable=tuple(dict.fromkeys(Path(path) for path in (sys.prefix, sys.base_prefix, _package()))),
        path=_search_path(settings, places, environment),
        systemd=systemd,
    )
    return Found(instance=instance, secrets=secrets, notes=tuple(_notes(instance, settings, environment)))


def _judged(file: WorkflowFile, environment: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """The settings, as if every variable were set that the file refers to, and which of them are secrets."""
    asked = {found.decode(): _STANDS_IN for found in _REFERENCE.findall(file.data)}
    judgement = judge(file, environment={**asked, **environment}, acknowledged=True)
    usual = _usual_secrets(judgement)
    if any(failure.category is Category.MISSING_TRACKER_SECRET for failure in judgement.failures):
        asked |= dict.fromkeys(usual, _STANDS_IN)
        judgement = judge(file, environment={**asked, **environment}, acknowledged=True)
    if judgement.workflow is None:
        raise WorkflowError(judgement.failures)
    settings = judgement.workflow.settings
    ours = getattr(settings, settings.agent.kind, None)
    named = judgement.workflow.secret_names or usual
    return settings, tuple(sorted({*named, *getattr(ours, "env", ())}))


def _usual_secrets(judgement: Judgement) -> frozenset[str]:
    """The variables that the tracker takes its credential from where the file names none."""
    kind = getattr(judgement.sections.get("tracker"), "kind", "")
    try:
        return remote_kind(kind).secret_names
    except KeyError:
        return frozenset()


def _program() -> tuple[str, ...]:
    return (sys.executable, "-m", "symphony")


def _package() -> str:
    """Where this package is; an editable one lies outside of its environment."""
    return str(Path(symphony.__file__).parents[1])


def _writable(settings: Settings, workflow: Path, places: Places, name: str) -> Iterator[Path]:
    """The board and a local repository, into which branches are delivered, and workspaces elsewhere."""
    found = [workflow.parent] if settings.tracker.kind == "markdown" else []
    repo = settings.workspace.repo
    if repo is not None and repo.startswith("/"):
        found.append(Path(repo))
    assert places.state is not None  # noqa: S101 - asked of services of the system alone
    inside = (places.state / name, Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - as PrivateTmp= gives them
    if not any(settings.workspace.root.is_relative_to(place) for place in inside):
        found.append(settings.workspace.root)
    for path in dict.fromkeys(found):
        if not any(path != other and path.is_relative_to(other) for other in found):
            yield path


def _search_path(settings: Settings, places: Places, environment: Mapping[str, str]) -> tuple[str, ...]:
    if places.of_user:
        return tuple(filter(os.path.isabs, environment.get("PATH", "").split(":"))) or DEFAULT_PATH
    found = (shutil.which(program, path=environment.get("PATH")) for program in ("git", _agent(settings)))
    ours = (str(Path(one).parent) for one in found if one is not None)
    return tuple(dict.fromkeys((*DEFAULT_PATH, *ours)))


def _agent(settings: Settings) -> str:
    command = getattr(getattr(settings, settings.agent.kind, None), "command", None) or settings.agent.kind
    return str(command).split()[0]


def _notes(instance: Instance, settings: Settings, environment: Mapping[str, str]) -> Iterator[str]:
    agent = shutil.which(_agent(settings), path=environment.get("PATH"))
    if instance.account is None:
        yield "It ends when you log out, unless you say once: loginctl enable-linger"
        return
    if agent is not None and is_homely(Path(agent)):
        yield f"The agent {agent} lies in a home, which the service does not see: install it for all users"
    for path in instance.writable:
        owner = _owner(path)
        if owner is None:
            yield f"{path} is not there yet: make it, as the user {instance.account}"
        elif owner != instance.account:
            whose = f"{path} belongs to {owner}, and the service runs as {instance.account}"
            yield f"{whose}: chown -R {instance.account}: {path}, or name the owner with --as"


def _owner(path: Path) -> str | None:
    try:
        return pwd.getpwuid(path.stat().st_uid).pw_name
    except OSError:
        return None
    except KeyError:
        return f"uid {path.stat().st_uid}"
