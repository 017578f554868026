"""Runs git with a minimal environment and a timeout, and reads refs as files.

*Trusted* commands work on repositories of the operator or of the daemon. They see the operator's own
configuration (credential helpers, proxies, `insteadOf`, LFS), because a private remote needs it. *Isolated*
commands read what an agent has written. They see only the configuration of a git directory that the daemon
made, and only the protocol `file` is allowed. Hooks, fsmonitor and background maintenance are off in both. No
other module runs git. Once an agent has been in a workspace, no command uses the workspace's own `.git` (see
`shadow`).
"""

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from symphony.domain import PATTERNS_ONLY, Redaction, disk_full_hint, is_disk_full, one_line
from symphony.files import read_if_there, read_regular
from symphony.processes.base import Completed, Host
from symphony.workspaces.files import MAX_ENTRIES, entries_below, lines_of
from symphony.workspaces.model import Login
from symphony.workspaces.reasons import reason_for, telling_lines

_IDENTITY_KEYS: Final = r"^(user|author|committer)\.(name|email)$"

DEFAULT_IDENTITY: Final = {"user.name": "Symphony Agent", "user.email": "symphony@localhost"}
"""The identity of sessions if the user has configured none in git."""

LOCAL_TIMEOUT_MS: Final = 120_000
FETCH_STALL_MS: Final = 120_000
NETWORK_TIMEOUT_MS: Final = 600_000

SAFE_DIRECTORY: Final = "git config --global --add safe.directory"
"""The command that makes git accept a repository of another user."""

LOCKED: Final = re.compile(r"Unable to create '(.+\.lock)': File exists")
"""What git says if another git has locked a file, or left its lock file; the group is the lock file."""

_MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
_MAX_MESSAGE_CHARS: Final = 400
_USERINFO = re.compile(r"(?<=://)[^/\s]+@")  # up to the last @, because a password may contain one
_PROGRESS = re.compile(r"\d+% \(\d+/\d+\)")
_ADVICE = re.compile(rf"{re.escape(SAFE_DIRECTORY)} [^\n]+")
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|LANG|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS"
    r"|SSH_AUTH_SOCK|GIT_SSH|GIT_SSH_COMMAND|GIT_SSH_VARIANT|GIT_SSL_CAINFO|GIT_SSL_CAPATH"
    r"|GIT_CONFIG_(?:GLOBAL|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|CURL_CA_BUNDLE|(?:https?|all|no|HTTPS?|ALL|NO)_(?:proxy|PROXY)"
)
_ALWAYS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
    "LC_ALL": "C",
    "GIT_DEFAULT_REF_FORMAT": "files",  # refs are read as files
}
_ISOLATED = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
}
_LIMITS: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_NO_ROOM: Final = (
    "a limit of processes, files or memory is reached: see `ulimit -a`, and TasksMax= of a service"
)
_OPTIONS = [
    option
    for setting in (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.untrackedCache=false",
        "core.splitIndex=false",
        "core.sparseCheckout=false",
        "safe.bareRepository=all",  # the mirror is bare
        "protocol.ext.allow=never",
        "protocol.file.allow=always",  # between the mirror and a local repository
        *(f"color.{part}=false" for part in ("ui", "advice", "push", "remote", "transport")),
        "submodule.recurse=false",
        "fetch.recurseSubmodules=false",
        "gc.auto=0",
        "maintenance.auto=false",
    )
    for option in ("-c", setting)
]


class GitError(Exception):
    """A git command failed; the message is one line without credentials.

    Attributes:
        advice: the command that git itself recommends, or `None`.
        hint: what to do about its cause, in one line; `None` if the cause is not known.
        output: the whole output of git, masked; the message is a part of it.
    """

    def __init__(
        self, message: str, *, advice: str | None = None, hint: str | None = None, output: str = ""
    ) -> None:
        super().__init__(message)
        self.advice = advice
        self.hint = hint
        self.output = output or message


class SilentError(GitError):
    """A git command made no headway and was ended together with its children."""


class Git:
    """Runs git commands on a host.

    Args:
        host: where the processes run.
        environment: git inherits the variables that it needs.
        secret_names: variables that git never inherits.
        network_timeout_ms: the timeout of commands that use the network.
        fetch_stall_ms: how long they may make no headway.
        redaction: masks git's error messages.
        login: the login for commands that use the network, if the caller asks for it.
    """

    def __init__(
        self,
        host: Host,
        environment: Mapping[str, str],
        secret_names: frozenset[str],
        *,
        network_timeout_ms: int = NETWORK_TIMEOUT_MS,
        fetch_stall_ms: int = FETCH_STALL_MS,
        redaction: Redaction = PATTERNS_ONLY,
        login: Login | None = None,
    ) -> None:
        self._host = host
        self._redaction = redaction
        self.login = login
        self.network_timeout_ms = network_timeout_ms
        self._fetch_stall_ms = fetch_stall_ms
        self._environment = {
            name: value
            for name, value in environment.items()
            if _INHERITED.fullmatch(name) and name not in secret_names
        }

    async def trusted(
        self,
        *arguments: str | Path,
        timeout_ms: int = LOCAL_TIMEOUT_MS,
        login: Login | None = None,
        env: Mapping[str, str] | None = None,
        silence_ms: int | None = None,
    ) -> bytes:
        """Output of a command on a repository that no agent writes to; `login` is for its server.

        With `silence_ms` it is ended after writing nothing for that time. Raises `GitError`.
        """
        options, own = ((), {}) if login is None else (login.options, login.environment)
        variables = {**own, **(env or {})}
        done = await self._run((*options, *arguments), variables, timeout_ms, silence_ms=silence_ms)
        if done.silent and silence_ms is not None:
            raise SilentError(f"git {_subcommand(arguments)} made no headway for {silence_ms / 1000:g} s")
        return self._output(arguments, done)

    async def over_network(
        self, *arguments: str | Path, login: Login | None = None, env: Mapping[str, str] | None = None
    ) -> bytes:
        """Output of a trusted command that reads from a server, or sends a host a repository.

        The command must report its progress. Raises `GitError`; `SilentError` if it made no headway for too
        long.
        """
        return await self.trusted(
            *arguments,
            timeout_ms=self.network_timeout_ms,
            login=login,
            env=env,
            silence_ms=self._fetch_stall_ms,
        )

    async def fetch(
        self, *arguments: str | Path, login: Login | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Fetch from a server with `FETCH_FAR`. Raises `GitError`, as `over_network`.

        Git unpacks fewer than a hundred objects without output, even large ones. So a silent fetch is
        repeated as a pack, and git reports the progress of a pack.
        """
        try:
            await self.over_network(*arguments, login=login, env=env)
        except SilentError:
            await self.over_network("-c", "fetch.unpackLimit=1", *arguments, login=login, env=env)

    async def isolated(
        self, *arguments: str | Path, stdin: bytes = b"", max_output_bytes: int = _MAX_OUTPUT_BYTES
    ) -> bytes:
        """Output of a command that reads what an agent has written. Raises `GitError`."""
        done = await self._run(arguments, _ISOLATED, LOCAL_TIMEOUT_MS, stdin, max_output_bytes)
        return self._output(arguments, done)

    async def is_ancestor(self, git_dir: Path, ancestor: str, commit: str) -> bool:
        """Whether a commit contains another one. Raises `GitError`."""
        arguments = (f"--git-dir={git_dir}", "merge-base", "--is-ancestor", ancestor, commit)
        done = await self._run(arguments, _ISOLATED, LOCAL_TIMEOUT_MS)
        if done.exit_code == 1 and not done.timed_out:
            return False
        self._output(arguments, done)
        return True

    async def _run(
        self,
        arguments: Sequence[str | Path],
        env: Mapping[str, str],
        timeout_ms: int,
        stdin: bytes = b"",
        max_output_bytes: int = _MAX_OUTPUT_BYTES,
        silence_ms: int | None = None,
    ) -> Completed:
        try:
            return await self._host.run(
                ["git", *_OPTIONS, *map(str, arguments)],
                cwd=None,
                env={**self._environment, **_ALWAYS, **env},
                timeout_ms=timeout_ms,
                stdin=stdin,
                max_output_bytes=max_output_bytes,
                supervised=timeout_ms > LOCAL_TIMEOUT_MS,
                silence_ms=silence_ms,
            )
        except OSError as error:
            hint = _NO_ROOM if error.errno in _LIMITS else None
            raise GitError(f"git could not be started: {error}", hint=hint) from error

    def _output(self, arguments: Sequence[str | Path], done: Completed) -> bytes:
        if done.timed_out:
            raise GitError(f"git {_subcommand(arguments)} did not end in time")
        if done.exit_code == 0:
            return done.stdout
        stderr = done.stderr.decode("utf-8", "replace")
        said = self._redaction.text(without_credentials(stderr))
        lines = [line for line in telling_lines(said) if not _PROGRESS.search(line)]
        complaint = one_line("; ".join(lines) or f"exit code {done.exit_code}", _MAX_MESSAGE_CHARS)
        # It may be cut off, or not in the last line.
        if is_disk_full(stderr) and not is_disk_full(complaint):
            complaint = f"no space left on device; {complaint}"
        advice, reason = _ADVICE.search(stderr), reason_for("\n".join(lines))
        raise GitError(
            f"git {_subcommand(arguments)}: {complaint}",
            advice=advice and advice[0],
            hint=None if reason is None else reason.hint,
            output=said,
        )


def hint_of(error: Exception, place: Path, usual: str | None = None) -> str | None:
    """What to do about a failure of git or of the system below `place`; `usual` if the cause is unknown."""
    if isinstance(error, SilentError):
        return f"{usual or 'see the network'}; or raise workspace.fetch_stall_timeout_ms"
    if is_disk_full(error):
        return disk_full_hint(place)
    return (error.hint if isinstance(error, GitError) else None) or usual


def _subcommand(arguments: Sequence[str | Path]) -> str:
    """The first word that is neither an option nor the value of one."""
    words = [str(argument) for argument in arguments]
    while words[0].startswith("-"):
        words = words[2 if words[0] in {"-C", "-c"} else 1 :]
    return words[0]


def repository_config(commit: str | None, *, bare: bool = False, precious: bool = False) -> str:
    """Configuration of a repository whose object format is that of a commit: SHA-1 or SHA-256.

    Git deletes no object of a `precious` repository.
    """
    sha256 = commit is not None and is_sha256(commit)
    extensions = {"preciousObjects": precious and "true", "objectFormat": sha256 and "sha256"}
    lines = [f"\t{name} = {value}\n" for name, value in extensions.items() if value]
    core = (
        f"\trepositoryformatversion = {int(bool(lines))}\n\tfilemode = true\n\tbare = {str(bare).lower()}\n"
    )
    return f"[core]\n{core}" + (f"[extensions]\n{''.join(lines)}" if lines else "")


def write_git_dir(
    git_dir: Path, config: str, *, head: str = "ref: refs/heads/none", borrowed: Iterable[Path | str] = ()
) -> None:
    """Write an empty git directory that borrows objects from these stores; blocking. Raises `OSError`.

    The daemon never runs `git init`, whose result depends on the templates and default formats of the user.
    """
    for directory in ("refs/heads", "objects/info"):
        (git_dir / directory).mkdir(parents=True)
    lines = "".join(f"{store}\n" for store in dict.fromkeys(map(str, borrowed)))
    contents = {"HEAD": f"{head}\n", "config": config, "objects/info/alternates": lines}
    for name, content in contents.items():
        (git_dir / name).write_text(content, encoding="utf-8", errors="surrogateescape")


def is_sha256(commit: str) -> bool:
    """Whether an object id is a SHA-256 and not a SHA-1."""
    return len(commit) == len("0" * 64)


def config_value(text: str) -> str:
    """A value for a git configuration file, quoted and escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def without_credentials(address: str) -> str:
    """A repository address, or a text that contains one, without user and password."""
    return _USERINFO.sub("", address)


# --- Refs ---
# Refs are read as files, so that nothing in the git directory can make git do anything. An agent may have
# written anything there: content that is not exactly a ref reads as `None`. Unreadable or too large files
# raise `OSError`, because work could otherwise go unnoticed.

_COMMIT = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_NAME = re.compile(r"refs/(?!.*(?:\.\.|//|\\|@\{))[^\x00-\x20\x7f~^:?*\[]+")
_MAX_REF_BYTES = 4_096
_MAX_PACKED_BYTES = 16 * 1024 * 1024
_MAX_SYMBOLIC_REFS = 5


def common_dir(repository: Path) -> Path | None:
    """The resolved git directory with the branches of an operator's repository; `None` if there is none.

    Linked worktrees share it with their repository. The git directory of a submodule lies in its parent.
    """
    own = repository / ".git"
    if not own.is_dir():
        pointer = (read_regular(own, _MAX_REF_BYTES) or b"").decode("utf-8", "surrogateescape")
        target = pointer.removeprefix("gitdir:").strip()
        own = repository / target if pointer.startswith("gitdir:") else repository
    shared = (read_regular(own / "commondir", _MAX_REF_BYTES) or b"").decode("utf-8", "surrogateescape")
    real = Path(os.path.realpath(own / shared.strip()))
    return real if (real / "objects").is_dir() else None


def packed_refs(git_dir: Path) -> dict[str, str]:
    """The refs in `packed-refs`. A loose ref of the same name takes precedence over one of these."""
    found: dict[str, str] = {}
    for line in lines_of(git_dir / "packed-refs", _MAX_PACKED_BYTES):
        object_id, _, name = line.rstrip(b"\r\n").partition(b" ")
        text = name.decode("utf-8", "surrogateescape")
        if _COMMIT.fullmatch(object_id) and _NAME.fullmatch(text):
            found[text] = object_id.decode()
        if len(found) > MAX_ENTRIES:
            raise OSError(errno.EFBIG, f"more than {MAX_ENTRIES} refs", str(git_dir / "packed-refs"))
    return found


def read_ref(git_dir: Path, name: str, packed: Mapping[str, str] | None = None) -> str | None:
    """The object of a ref (or of `HEAD`), following symbolic refs; `None` if there is none.

    `packed` is the result of `packed_refs`, for callers that read several refs.
    """
    for _ in range(_MAX_SYMBOLIC_REFS):
        content = _loose_ref(git_dir, name)
        target = _symbolic_target(content)
        if target is None:
            return _commit(content) or (packed_refs(git_dir) if packed is None else packed).get(name)
        name = target
    return None


def branch_of_head(git_dir: Path) -> str | None:
    """The short name of the branch that `HEAD` is on; `None` if it is detached or unreadable."""
    target = _symbolic_target(_loose_ref(git_dir, "HEAD"))
    return target.removeprefix("refs/heads/") if target and target.startswith("refs/heads/") else None


def all_refs(git_dir: Path, prefix: str, packed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every ref below a prefix such as `refs/heads/` with its object, without symbolic refs."""
    known = packed_refs(git_dir) if packed is None else packed
    found = {name: commit for name, commit in known.items() if name.startswith(prefix)}
    for _, path in entries_below(git_dir / prefix):
        name = f"{prefix}{path}"
        commit = _commit(_loose_ref(git_dir, name)) if _NAME.fullmatch(name) else None
        if commit is not None:
            found[name] = commit
    return dict(sorted(found.items()))


def _loose_ref(git_dir: Path, name: str) -> bytes:
    return (read_if_there(git_dir / name, _MAX_REF_BYTES) or b"").strip()


def _symbolic_target(content: bytes) -> str | None:
    if not content.startswith(b"ref: "):
        return None
    name = content.removeprefix(b"ref: ").decode("utf-8", "surrogateescape").strip()
    return name if _NAME.fullmatch(name) else None


def _commit(content: bytes) -> str | None:
    return content.decode() if _COMMIT.fullmatch(content) else None


async def identity_at(git: Git, place: Path) -> Mapping[str, str]:
    """The names and addresses for commits in a repository, by their keys in git's configuration.

    The configuration of the repository, of the user and of the system is read there, so that conditions hold
    (`includeIf`).
    """
    try:
        listing = await git.trusted("-C", place, "config", "-z", "--get-regexp", _IDENTITY_KEYS)
    except GitError:  # this is how git reports that there is none
        return {}
    entries = (entry.partition("\n") for entry in listing.decode("utf-8", "replace").split("\0"))
    return {key: value for key, _, value in entries if value}


def identity_config(identity: Mapping[str, str]) -> str:
    """The sections of a configuration file that state an identity, or the default one.

    It is written into the clone, because an agent may run with another home than the user.
    """
    named = {**DEFAULT_IDENTITY, **identity}
    entries = [(*key.split("."), config_value(value)) for key, value in named.items()]
    return "".join(f"[{section}]\n\t{name} = {value}\n" for section, name, value in entries)
