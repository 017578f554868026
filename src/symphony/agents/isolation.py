"""Confines an agent's processes to its workspace, whatever sandbox the agent has of its own.

`workspace.isolation: bwrap` puts bubblewrap in front of the agent's command. The whole file system is visible
and read-only, so that compilers and tools are found. In addition, from the weakest rule to the strongest:

- `/run` and the `hidden` paths are empty: other workspaces, the daemon's state, a person's credentials, and
  the sockets of services of this machine;
- `/tmp`, `/var/tmp`, the daemon's temp directory and `~/.cache` are private, writable, and gone at the end;
- `readable` paths, and the installation of Symphony, are visible although they lie in a hidden one;
- the workspace, and what the agent needs to write to (its home), are writable.

A deeper path overrides the rule of its parent; for one path the stronger rule holds. Processes outside can
neither be seen nor signalled, and all processes inside die with the daemon.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final

import symphony
from symphony.domain import holds_credential

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
# An agent reaches its tools by a program of ours, wherever that is installed.
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


class _Access(IntEnum):
    """What happens to a path; of two rules for one path the greater holds."""

    HIDDEN = 0
    SCRATCH = 1
    READABLE = 2
    WRITABLE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The rules of an isolation. Paths that do not exist are skipped, links are followed.

    Attributes:
        program: bubblewrap, by name or path.
        network: the agent reaches the network, including the loopback interface.
        writable: what the agent may write to besides the workspace, such as its home.
        readable: what is visible although it lies in a hidden path.
        scratch: directories that are private and empty, besides the temp directories.
        hidden: directories and files that are empty for the agent.
        confidential: files that are empty for the agent if they hold a credential.
    """

    program: str = "bwrap"
    network: bool = True
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    scratch: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    confidential: tuple[Path, ...] = ()

    def allowing(self, *, writable: Iterable[Path] = (), readable: Iterable[Path] = ()) -> "Isolation":
        """Return the same isolation with these paths opened for one agent."""
        return replace(self, writable=(*self.writable, *writable), readable=(*self.readable, *readable))

    def wrap(self, argv: Sequence[str], *, cwd: Path) -> tuple[str, ...]:
        """Return the command that runs `argv` confined, in `cwd`. Reads the disk: call it in a thread."""
        mounts: list[str] = []
        read_only: list[str] = []
        for path, access in self._rules(cwd):
            match access:
                case _Access.WRITABLE:
                    mounts += ("--bind", str(path), str(path))
                case _Access.READABLE:
                    mounts += ("--ro-bind", str(path), str(path))
                case _ if not path.is_dir():
                    mounts += ("--ro-bind", str(_EMPTY_FILE), str(path))
                case _:
                    mounts += ("--tmpfs", str(path))
                    read_only += ("--remount-ro", str(path)) if access is _Access.HIDDEN else ()
        root = os.geteuid() == 0
        return (
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

    def _rules(self, cwd: Path) -> list[tuple[Path, _Access]]:
        """Return the existing paths with their rules, parents first."""
        rules = {
            _Access.HIDDEN: (_RUN, *self.hidden, *filter(_holds_credential, self.confidential)),
            _Access.SCRATCH: (*_TEMP, *self.scratch),
            _Access.READABLE: (*_READABLE_RUN, *_INSTALLATION, *self.readable),
            _Access.WRITABLE: (*self.writable, cwd),
        }
        found: dict[Path, _Access] = {}
        for access, paths in rules.items():
            for path in paths:
                real = Path(os.path.realpath(path))
                if real.exists() and real != Path("/"):
                    found[real] = access
        return sorted(found.items(), key=lambda item: len(item[0].parts))


def _holds_credential(file: Path) -> bool:
    try:
        return holds_credential(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False


_KEYS: Final = (
    *(".ssh", ".gnupg", ".password-store", ".local/share/keyrings"),
    *(".config/op", ".config/sops", ".config/age", ".ray"),
    *(".netrc", ".git-credentials", ".config/git/credentials", ".vault-token", ".pgpass", ".my.cnf"),
)
_CLOUDS: Final = (
    *(".aws", ".azure", ".config/gcloud", ".config/doctl", ".config/rclone", ".boto", ".s3cfg", ".oci"),
    *(".kube", ".docker", ".config/containers", ".terraform.d", ".terraformrc", ".fly", ".config/hcloud"),
)
_FORGES: Final = (
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/tea", ".config/jira", ".config/.jira"),
    *(".npmrc", ".yarnrc.yml", ".pypirc", ".gem/credentials"),
    *(".cargo/credentials", ".cargo/credentials.toml"),
    *(".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".config/pip/pip.conf"),
)
_HISTORIES: Final = (
    *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".lesshst"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
)
_AGENTS: Final = (
    *(".codex", ".claude", ".claude.json", ".config/claude", ".gemini", ".config/opencode", ".aider"),
    *(".local/share/opencode", ".aider.conf.yml", ".config/goose", ".qwen", ".cursor", ".copilot"),
)


def sensitive_paths(home: Path) -> tuple[Path, ...]:
    """Return the paths of a person's home that no isolated agent sees; they need not exist.

    They hold logins, keys, histories and other agents' homes of widely used programs. No list of names can be
    complete: `home: private` is the stronger choice. Tools and settings stay visible, as builds need them.
    """
    return tuple(home / name for name in (*_KEYS, *_CLOUDS, *_FORGES, *_HISTORIES, *_AGENTS))
