"""What a service of one repository is, as text for systemd. Pure: nothing is looked up or written.

The unit is a template that belongs to the package; an instance adds one drop-in, made here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "DEFAULT_PATH",
    "MARK",
    "Instance",
    "drop_in",
    "instance_name",
    "is_homely",
    "is_name",
    "quoted",
    "workflow_of",
]

MARK: Final = "# Written by `symphony service install"
"""How files begin that may be written over and removed."""

DEFAULT_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STEPS_SINCE: Final = 254  # systemd that knows RestartSteps=
_HOMES: Final = ("/home", "/root", "/run/user")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One repository as a service.

    Attributes:
        name: of the instance; letters, digits, `.`, `_` and `-`.
        workflow: absolute.
        program: the argv that starts `symphony`, absolute.
        account: whose rights it has; null for a service of the person, who has their own.
        writable: what it writes besides its own state: a local repository, a `workspace.root` elsewhere.
        readable: what it reads that may lie in a home: its own program.
        path: the directories in which it finds agents and git.
        systemd: its version; null where that is not known.
    """

    name: str
    workflow: Path
    program: Sequence[str]
    account: str | None
    writable: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    path: Sequence[str] = DEFAULT_PATH
    systemd: int | None = None

    @property
    def unit(self) -> str:
        """Its name for systemctl."""
        return f"symphony@{self.name}.service"


def instance_name(directory: str) -> str:
    """A name for the service of a directory: what systemd would have to escape becomes a dash."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", directory).strip("-._")[:64]
    return name if _NAME.fullmatch(name) else "repository"


def is_name(text: str) -> bool:
    """Whether an instance may be called so."""
    return _NAME.fullmatch(text) is not None


def drop_in(instance: Instance) -> str:
    """The file beside the template that makes it serve this repository.

    Raises:
        ValueError: a path holds what a unit file cannot.
    """
    return "\n".join(
        [
            f"{MARK}`, and written anew by the next; put your own settings into another file.",
            f"# workflow: {_line(str(instance.workflow))}",
            "[Unit]",
            *(f"RequiresMountsFor={quoted(str(path))}" for path in instance.writable),
            "",
            "[Service]",
            "ExecStart=",
            f"ExecStart={_command(instance)}",
            *_who(instance),
            *_where(instance),
            *_patience(instance),
            "",
        ]
    )


def workflow_of(text: str) -> str | None:
    """Which workflow a drop-in of ours is for; null for a file of others."""
    if not text.startswith(MARK):
        return None
    found = re.search(r"^# workflow: (.*)$", text, re.MULTILINE)
    return None if found is None else found[1]


def _command(instance: Instance) -> str:
    argv = [*instance.program, "run", "--log-format", "json", str(instance.workflow)]
    return " ".join(quoted(word).replace("$", "$$") for word in argv)


def _who(instance: Instance) -> list[str]:
    path = quoted(f"PATH={':'.join(instance.path)}")
    return [*([] if instance.account is None else [f"User={instance.account}"]), f"Environment={path}"]


def _where(instance: Instance) -> list[str]:
    """What a shut off file system lets through; a service of the person sees all that the person sees."""
    if instance.account is None:
        return []
    homely = [path for path in (*instance.writable, instance.workflow.parent) if is_homely(path)]
    shown = [path for path in instance.readable if is_homely(path)]
    unseen = dict.fromkeys((*homely, *shown))
    hidden = ["ProtectHome=tmpfs"] if homely or shown else []
    return [
        *hidden,
        *(f"ReadWritePaths={quoted(str(path))}" for path in instance.writable if not is_homely(path)),
        *(f"BindPaths={_bind(path)}" for path in instance.writable if is_homely(path)),
        *(f"BindReadOnlyPaths={_bind(path)}" for path in unseen if path not in instance.writable),
    ]


def _patience(instance: Instance) -> list[str]:
    """Longer and longer waits between restarts, where systemd knows them."""
    steps = ["RestartSteps=6", "RestartMaxDelaySec=300"]
    return steps if instance.systemd is not None and instance.systemd >= _STEPS_SINCE else []


def is_homely(path: Path) -> bool:
    """Whether it lies where `ProtectHome=` hides it."""
    return any(path.is_relative_to(home) for home in _HOMES)


def quoted(text: str) -> str:
    """One word of a unit file.

    Raises:
        ValueError: it holds a line break or another control character.
    """
    escaped = _line(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _bind(path: Path) -> str:
    if ":" in str(path):
        raise ValueError(f"a path below a home cannot hold a colon: {path}")
    return quoted(str(path))


def _line(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"a unit file cannot hold such characters: {text!r}")
    return text
