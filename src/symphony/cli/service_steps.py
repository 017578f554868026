"""What installing and removing a service do to a machine, as a list that can be shown before it is done."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from symphony.cli.failures import CommandError
from symphony.cli.service_facts import ACCOUNT, Places
from symphony.cli.service_unit import MARK, Instance, drop_in, workflow_of

__all__ = ["Directory", "Removal", "Run", "Step", "Text", "carry_out", "installing", "removing", "systemctl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A file with this content; it is ours to write over where it begins as ours do."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory that only its owner may enter."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A file of ours that goes, and its directory where nothing else is in it."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command; with `optional` nothing is wrong where it fails."""

    argv: tuple[str, ...]
    optional: bool = False


Step = Text | Directory | Removal | Run


def installing(instance: Instance, places: Places, *, start: bool) -> list[Step]:
    """The steps that make a service of a repository; each may be done again.

    Raises:
        CommandError: a path holds what a unit file cannot.
    """
    try:
        text = drop_in(instance)
    except ValueError as error:
        raise CommandError.of(str(error), hint="move it to a path of plain characters") from error
    begin = ["enable", "--now"] if start else ["enable"]
    return [
        *_account(instance),
        Text(path=places.template, text=template(of_user=places.of_user)),
        Text(path=places.drop_in(instance.name), text=text),
        Directory(path=places.credentials(instance.name)),
        _systemctl(places, "daemon-reload"),
        _systemctl(places, *begin, instance.unit),
    ]


def removing(name: str, places: Places) -> list[Step]:
    """The steps that take it away again; secrets, state and workspaces stay."""
    unit = f"symphony@{name}.service"
    ours = places.drop_in(name)
    others = [path for path in places.units.glob("symphony@*.service.d/symphony.conf") if path != ours]
    return [
        _systemctl(places, "disable", "--now", unit, optional=True),
        Removal(path=ours),
        *([] if others else [Removal(path=places.template)]),
        _systemctl(places, "daemon-reload"),
        _systemctl(places, "reset-failed", unit, optional=True),
    ]


def template(*, of_user: bool) -> str:
    """The unit that the package brings along."""
    units = resources.files("symphony.cli") / "units"
    found = units / "user" / "symphony@.service" if of_user else units / "symphony@.service"
    return found.read_text(encoding="utf-8")


def systemctl(places: Places) -> tuple[str, ...]:
    """How systemctl is called for this kind of service."""
    return ("systemctl", "--user") if places.of_user else ("systemctl",)


def _systemctl(places: Places, *words: str, optional: bool = False) -> Run:
    return Run(argv=(*systemctl(places), *words), optional=optional)


def _account(instance: Instance) -> Sequence[Run]:
    """The dedicated user, made where it is missing; another one has to be there."""
    if instance.account is None or _exists(instance.account):
        return ()
    if instance.account != ACCOUNT and not instance.account.startswith(f"{ACCOUNT}-"):
        raise CommandError.of(
            f"there is no user {instance.account}",
            hint=f"make one first, or name one that begins with `{ACCOUNT}-` and have it made",
        )
    rest = ("--home-dir", "/var/lib/symphony", "--no-create-home", "--shell", "/usr/sbin/nologin")
    return (Run(argv=("useradd", "--system", *rest, instance.account)),)


def _exists(account: str) -> bool:
    try:
        pwd.getpwnam(account)
    except KeyError:
        return False
    return True


# --- doing it --------------------------------------------------------------------------------------------


def carry_out(step: Step) -> str:
    """Do one step, and say in one word what it came to.

    Raises:
        CommandError: it cannot be done.
    """
    match step:
        case Text():
            return _told(step.path, lambda: _write(step))
        case Directory():
            return _told(step.path, lambda: _make(step.path))
        case Removal():
            return _told(step.path, lambda: _remove(step.path))
        case Run():
            return _ran(step)


def _told(path: Path, act: Callable[[], str]) -> str:
    try:
        return act()
    except OSError as error:
        what = f"{path} cannot be changed: {error.strerror or error}"
        raise CommandError.of(what, hint="do it as root, or with --user for yourself alone") from error


def _write(step: Text) -> str:
    before = step.path.read_text(encoding="utf-8", errors="replace") if step.path.exists() else None
    if before == step.text:
        return "unchanged"
    if before is not None and not before.startswith(MARK):
        raise CommandError.of(
            f"{step.path} is there, and symphony did not write it",
            hint="move it away, or give the service another name with --name",
        )
    if before is not None and workflow_of(before) != workflow_of(step.text):
        raise CommandError.of(
            f"a service of this name serves {workflow_of(before)} already",
            hint="give this one another name with --name, or uninstall that one",
        )
    step.path.parent.mkdir(parents=True, exist_ok=True)
    fresh = step.path.with_name(f".{step.path.name}.new")
    fresh.write_text(step.text, encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(step.path)
    return "written" if before is None else "rewritten"


def _make(path: Path) -> str:
    if path.is_dir():
        return "unchanged"
    path.mkdir(mode=0o700, parents=True)
    return "created"


def _remove(path: Path) -> str:
    if not path.exists():
        return "not there"
    if not path.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        return "kept: not ours"
    path.unlink()
    if path.parent.name.endswith(".d"):
        with suppress(OSError):  # a person keeps settings of their own there
            path.parent.rmdir()
    return "removed"


def _ran(step: Run) -> str:
    if shutil.which(step.argv[0]) is None:
        raise CommandError.of(
            f"{step.argv[0]} is not installed", hint="it comes with systemd, or with passwd"
        )
    done = subprocess.run(
        step.argv,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    if done.returncode == 0:
        return "done"
    if step.optional:
        return "not needed"
    said = (done.stderr or done.stdout).strip() or f"it ended with {done.returncode}"
    raise CommandError.of(f"{' '.join(step.argv)}: {said}", hint="journalctl tells more: journalctl -e")
