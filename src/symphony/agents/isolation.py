"""What holds an agent's processes inside its workspace, whatever sandbox the agent has of its own (DESIGN 9).

`workspace.isolation: bwrap` puts bubblewrap before the agent's command. The whole file system is there and
read-only, so that compilers and tools are found; then, in this order of strength:

- the workspace, and what the agent says it writes to (its home), can be written to;
- `/tmp`, `/var/tmp`, the daemon's temp directory and `~/.cache` are private, writable, and gone afterwards;
- `/run` and what is `hidden` is empty: other workspaces, the daemon's state, a person's credentials, and the
  sockets by which services of this machine are reached;
- nothing is seen or signalled of processes outside, and all of them inside die with the daemon.

The deeper of two places decides, and of one place the more open.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final

import symphony
from symphony.domain import holds_credential

_SCRATCH: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - private ones
_RUN: Final = Path("/run")
# What names are resolved with, and what NixOS keeps its programs in.
_OF_RUN: Final = tuple(
    _RUN / name
    for name in (
        *("systemd/resolve", "resolvconf", "NetworkManager/resolv.conf", "nscd"),
        *("current-system", "wrappers", "opengl-driver"),
    )
)
# What belongs to root, and so can be written to by a daemon that is root, whatever rights it has dropped.
_KERNEL: Final = ("--ro-bind", "/proc/sys", "/proc/sys")
_NAMESPACES: Final = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--die-with-parent"),
)
# Without it root cannot make the namespaces of a sandbox inside; in a namespace it gives nothing else.
_NESTING: Final = ("--cap-add", "CAP_SETFCAP")
_EMPTY: Final = Path(symphony.__file__).with_name("py.typed")


class _Kind(IntEnum):
    """What happens to a place; of two the greater holds."""

    HIDDEN = 0
    SCRATCH = 1
    READABLE = 2
    WRITABLE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How closed. Places that do not exist are left out, links are followed.

    Attributes:
        program: bubblewrap, by name or path.
        network: whether the agent reaches the network, the loopback interface included.
        writable: what the agent writes to besides the workspace, such as its home.
        readable: what is seen although it lies in a hidden place.
        scratch: directories that are private and empty, besides the temp directories.
        hidden: directories that are empty for the agent, and files that are.
        confidential: files that are empty for the agent where they hold a credential.
    """

    program: str = "bwrap"
    network: bool = True
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    scratch: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    confidential: tuple[Path, ...] = ()

    def reaching(self, *, writable: Iterable[Path] = (), readable: Iterable[Path] = ()) -> "Isolation":
        """The same, but for these places: what one agent needs."""
        return replace(self, writable=(*self.writable, *writable), readable=(*self.readable, *readable))

    def enclose(self, argv: Sequence[str], *, cwd: Path) -> tuple[str, ...]:
        """The command that runs `argv` inside, in `cwd`. Looks at the disk, so use it in a thread."""
        places = self._places(cwd)
        hidden = [place for place, kind in places.items() if kind is _Kind.HIDDEN and place.is_dir()]
        root = os.geteuid() == 0
        closed = [word for place in hidden for word in ("--remount-ro", str(place))]
        return (
            *(self.program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *(_KERNEL if root else ()),
            *(word for place in places for word in _mount(place, places[place])),
            *closed,
            *("--setenv", "TMPDIR", str(_SCRATCH[0]), "--unsetenv", "XDG_RUNTIME_DIR"),
            *_NAMESPACES,
            *(_NESTING if root else ()),
            *(() if self.network else ("--unshare-net",)),
            *("--chdir", str(cwd), "--", *argv),
        )

    def _places(self, cwd: Path) -> dict[Path, _Kind]:
        """What happens to which place, the upper ones first."""
        asked = {
            _Kind.HIDDEN: (_RUN, *self.hidden, *filter(_holds_credential, self.confidential)),
            _Kind.SCRATCH: (*_SCRATCH, *self.scratch),
            _Kind.READABLE: (*_OF_RUN, *self.readable),
            _Kind.WRITABLE: (*self.writable, cwd),
        }
        found = {place: kind for kind, paths in asked.items() for place in _existing(paths)}
        return dict(sorted(found.items(), key=lambda item: len(item[0].parts)))


def _existing(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        real = Path(os.path.realpath(path))
        if real.exists() and real != Path("/"):
            yield real


def _holds_credential(file: Path) -> bool:
    try:
        return holds_credential(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return False


def _mount(place: Path, kind: _Kind) -> tuple[str, ...]:
    match kind:
        case _Kind.WRITABLE:
            return ("--bind", str(place), str(place))
        case _Kind.READABLE:
            return ("--ro-bind", str(place), str(place))
        case _Kind.SCRATCH | _Kind.HIDDEN:
            if stat.S_ISDIR(place.stat().st_mode):
                return ("--tmpfs", str(place))
            return ("--ro-bind", str(_EMPTY), str(place))


# What of a person's home no isolated agent sees: logins, keys, wallets, histories, and other agents' homes.
#
# A list of names cannot be complete, which is why `home: private` is the stronger choice; it holds what
# programs in wide use keep there. Tools and settings stay: without them nothing builds.


_KEYS: Final = (
    *(
        ".ssh",
        ".gnupg",
        ".password-store",
        ".local/share/keyrings",
        ".config/op",
        ".config/sops",
        ".config/age",
    ),
    *(".netrc", ".git-credentials", ".config/git/credentials", ".vault-token", ".pgpass", ".my.cnf"),
)
_CLOUDS: Final = (
    *(".aws", ".azure", ".config/gcloud", ".config/doctl", ".config/rclone", ".boto", ".s3cfg", ".oci"),
    *(".kube", ".docker", ".config/containers", ".terraform.d", ".terraformrc", ".fly", ".config/hcloud"),
)
_FORGES: Final = (
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/tea", ".config/jira", ".config/.jira"),
    *(
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
        ".gem/credentials",
        ".cargo/credentials",
        ".cargo/credentials.toml",
    ),
    *(".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".config/pip/pip.conf"),
)
_PERSON: Final = (
    *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".lesshst"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
)
_AGENTS: Final = (
    *(".codex", ".claude", ".claude.json", ".config/claude", ".gemini", ".config/opencode", ".aider"),
    *(".local/share/opencode", ".aider.conf.yml", ".config/goose", ".qwen", ".cursor", ".copilot"),
)


def sensitive_paths(home: Path) -> tuple[Path, ...]:
    """The places below `home`; whether they exist is for others to see."""
    return tuple(home / name for name in (*_KEYS, *_CLOUDS, *_FORGES, *_PERSON, *_AGENTS))
