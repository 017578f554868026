"""Confines an agent's processes to its workspace, in addition to any sandbox of the agent.

`workspace.isolation: bwrap` puts bubblewrap in front of the agent's command. The whole file system is visible
and read-only, so that compilers and tools are found. In addition, from the weakest rule to the strongest:

- `/run` and the `hidden` paths are empty: other workspaces, the daemon's state, a person's credentials, and
  the sockets of services of this machine;
- `/tmp`, `/var/tmp`, the daemon's temp directory and `~/.cache` are private, writable, and gone at the end;
- `readable` paths, and the installation of Symphony, are visible although they lie in a hidden one;
- the workspace, and what the agent needs to write to, are writable.

An agent that lives in the operator's home gets its own folder there as an `AgentFolder`: of what it writes
only its login and its threads stay. Everything in the folder that a later session would execute or obey is
read-only or a copy, and so is what does not exist yet, because the folder itself is one in memory.

Sockets and named pipes of other programs are covered, wherever they lie: a read-only mount does not keep
anybody from connecting to one.

A deeper path overrides the rule of its parent; for one path the stronger rule holds. Processes outside can
neither be seen nor signalled, and all processes inside die with the daemon.
"""

import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final

import symphony
from symphony.agents.folders import AgentFolder
from symphony.agents.secret_places import git_configurations, look, mode_of, unclean_git_configurations

_TEMP: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - private inside
_RUN: Final = Path("/run")
# Name resolution, and the programs of NixOS.
_READABLE_RUN: Final = tuple(
    _RUN / name
    for name in (
        *("systemd/resolve", "resolvconf", "NetworkManager/resolv.conf", "nscd"),
        *("current-system", "wrappers", "opengl-driver"),
    )
)
# An agent reaches its tools by a program of Symphony, wherever that is installed.
_INSTALLATION: Final = (Path(sys.base_prefix), Path(sys.prefix), Path(symphony.__file__).parent)
# A daemon that is root could write to it, as it belongs to root, whatever capabilities were dropped.
_KERNEL_SETTINGS: Final = ("--ro-bind", "/proc/sys", "/proc/sys")
_NAMESPACES: Final = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--die-with-parent"),
)
# Root needs it to make the namespaces of a nested sandbox. Within a user namespace it grants nothing else.
_NESTED_SANDBOX: Final = ("--cap-add", "CAP_SETFCAP")
_EMPTY_FILE: Final = Path(symphony.__file__).with_name("py.typed")
_FIRST_DESCRIPTOR: Final = 100  # beyond those that this process and its subreaper hand on
_MAX_COPY_BYTES: Final = 33_554_432

TRIES: Final = 3
"""How often a command is started: a socket that is to be covered may vanish before bubblewrap covers it."""


class _Access(IntEnum):
    """The rule for a path; of two rules for one path the greater one applies."""

    COPIED = 0  # a file of an `AgentFolder`; its directories, links and programs are shown as they are
    HIDDEN = 1
    SCRATCH = 2
    READABLE = 3
    WRITABLE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The rules of an isolation. Paths that do not exist are skipped, links are followed.

    Attributes:
        program: bubblewrap, by name or path.
        network: the agent reaches the network, including the loopback interface.
        writable: what the agent may write to besides the workspace, such as its private home.
        folders: the folders of the agent in the operator's home.
        readable: what is visible although it lies in a hidden path.
        scratch: directories that are private and empty, besides the temp directories.
        hidden: directories and files that are empty for the agent.
        repositories: git directories whose configurations are empty for the agent unless they are clean.
        configurations: git configurations of which the same holds.
        home: the operator's home, whose sockets are covered; None if it is unknown.
        read_only: the workspace is only readable.
    """

    program: str = "bwrap"
    network: bool = True
    writable: tuple[Path, ...] = ()
    folders: tuple[AgentFolder, ...] = ()
    readable: tuple[Path, ...] = ()
    scratch: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    repositories: tuple[Path, ...] = ()
    configurations: tuple[Path, ...] = ()
    home: Path | None = None
    read_only: bool = False

    def allowing(
        self,
        *,
        writable: Iterable[Path] = (),
        readable: Iterable[Path] = (),
        folders: Iterable[AgentFolder] = (),
        repositories: Iterable[Path] = (),
    ) -> "Isolation":
        """Return the same isolation with these paths opened for one agent."""
        return replace(
            self,
            writable=(*self.writable, *writable),
            readable=(*self.readable, *readable),
            folders=(*self.folders, *folders),
            repositories=(*self.repositories, *repositories),
        )

    def wrap(self, argv: Sequence[str], *, cwd: Path) -> tuple[str, ...]:
        """Return the command that runs `argv` confined, in `cwd`. Reads the disk: call it in a thread."""
        mounts: list[str] = []
        read_only: list[str] = []
        copied: list[str] = []
        rules = self._rules(cwd)
        folders = {path for path, access in rules.items() if access is _Access.SCRATCH}
        for path, access in sorted(rules.items(), key=lambda item: len(item[0].parts)):
            match access:
                case _Access.WRITABLE:
                    mounts += ("--bind", os.path.realpath(path), str(path))
                case _Access.READABLE:
                    mounts += ("--ro-bind", str(path), str(path))
                case _Access.COPIED if path.is_symlink():
                    mounts += ("--symlink", str(path.readlink()), str(path))
                case _Access.COPIED if not _is_copied(path):
                    mounts += ("--ro-bind", str(path), str(path))
                case _Access.COPIED:
                    copied.append(str(path))
                    option = "--file" if path.parent in folders else "--bind-data"
                    mounts += (option, str(_FIRST_DESCRIPTOR + len(copied) - 1), str(path))
                case _ if not path.is_dir():
                    mounts += ("--ro-bind", str(_EMPTY_FILE), str(path))
                case _:
                    mounts += ("--tmpfs", str(path))
                    read_only += ("--remount-ro", str(path)) if access is _Access.HIDDEN else ()
        root = os.geteuid() == 0
        return (
            *_opening(copied),
            *(self.program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *(_KERNEL_SETTINGS if root else ()),
            *mounts,
            *read_only,
            *("--setenv", "TMPDIR", str(_TEMP[0]), "--unsetenv", "XDG_RUNTIME_DIR"),
            *_NAMESPACES,
            *(_NESTED_SANDBOX if root else ()),
            *(() if self.network else ("--unshare-net",)),
            *("--chdir", str(cwd), "--", *argv),
        )

    def _rules(self, cwd: Path) -> dict[Path, _Access]:
        """Return the existing paths with their rules."""
        configurations = (
            *self.configurations,
            *(file for each in self.repositories for file in git_configurations(each)),
        )
        rules = {
            _Access.HIDDEN: (_RUN, *self.hidden, *unclean_git_configurations(configurations)),
            _Access.SCRATCH: (*_TEMP, *self.scratch),
            _Access.READABLE: (
                *_READABLE_RUN,
                *_INSTALLATION,
                *self.readable,
                *((cwd,) if self.read_only else ()),
            ),
            _Access.WRITABLE: (*self.writable, *(() if self.read_only else (cwd,))),
        }
        found: dict[Path, _Access] = {}
        for folder in self.folders:
            found |= _folder_rules(folder)
        for access, paths in rules.items():
            for path in paths:
                real = Path(os.path.realpath(path))
                if mode_of(real) and real != Path("/"):
                    found[real] = max(access, found.get(real, access))
        seen = look(self.home)
        others = (file for each in seen.git_dirs for file in git_configurations(each))
        for path in (*seen.sockets, *unclean_git_configurations(others)):
            if path not in found and _is_shown(path, found):
                found[path] = _Access.HIDDEN
        return found


def _is_shown(path: Path, rules: Mapping[Path, _Access]) -> bool:
    """Return whether the agent would see a path of others; writable paths belong to the agent."""
    nearest = next((parent for parent in path.parents if parent in rules), None)
    return nearest is None or (
        rules[nearest] in {_Access.COPIED, _Access.READABLE} and nearest not in _READABLE_RUN
    )


def _folder_rules(folder: AgentFolder) -> dict[Path, _Access]:
    """Return the rules of an agent's folder; make it if it is missing, as the agent would."""
    path = Path(os.path.realpath(folder.path))
    if folder.is_file:
        return {path: _Access.COPIED} if stat.S_ISREG(mode_of(path)) else {}
    if path == Path("/"):
        return {}
    own = {name.split("/", 1)[0] for name in (*folder.kept, *folder.fresh)}
    try:
        for name in ("", *(name for name in folder.kept if name.endswith("/"))):
            (path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        shown = [
            entry
            for entry in path.iterdir()
            if entry.name not in own and (entry.is_symlink() or entry.is_dir() or entry.is_file())
        ]
    except OSError:  # no folder can be made there
        return {}
    kept = [path / name for name in folder.kept if (path / name).exists()]
    return {
        path: _Access.SCRATCH,
        **dict.fromkeys(shown, _Access.COPIED),
        **dict.fromkeys(kept, _Access.WRITABLE),
    }


def _is_copied(path: Path) -> bool:
    """Whether a session can have a copy of a path: directories and programs are shown instead."""
    status = path.stat()
    is_file = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o111
    return is_file and status.st_size <= _MAX_COPY_BYTES and os.access(path, os.R_OK)


def has_failed(exit_code: int | None, stderr: str) -> bool:
    """Return whether bubblewrap could not prepare the place of a command, so that nothing ran in it."""
    return exit_code == 1 and stderr.startswith("bwrap: Can't ")


def _opening(files: Sequence[str]) -> tuple[str, ...]:
    """Return a command that opens files for the command behind it, from `_FIRST_DESCRIPTOR` on."""
    if not files:
        return ()
    opened = " ".join(f'{_FIRST_DESCRIPTOR + index}<"${{{index + 1}}}"' for index in range(len(files)))
    # With -p the shell reads no file that a variable names.
    return ("bash", "--norc", "-pc", f'exec {opened}; shift {len(files)}; exec "$@"', "bash", *files)
