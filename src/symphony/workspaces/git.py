"""The only place that runs git: a bounded environment, a timeout, and nothing that an agent may have written.

Two postures. *Trusted* commands work on repositories of the operator or of the daemon and see the operator's
own configuration (credential helpers, proxies, `insteadOf`, LFS): without it a private remote cannot be
reached. *Isolated* commands look at what an agent has touched; they see no configuration but that of a git
directory made by the daemon, and may speak no protocol but `file`. In both, hooks, fsmonitor and background
maintenance are off. No command of either kind ever runs with a workspace's own `.git` as its git directory
once an agent has been there (`shadow` shows how).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from symphony.domain.plain import one_line
from symphony.domain.redaction import SHAPES_ONLY, Redaction
from symphony.processes.base import Completed, Host
from symphony.workspaces.remote import Login

__all__ = [
    "LOCAL_TIMEOUT_MS",
    "NETWORK_TIMEOUT_MS",
    "SAFE_DIRECTORY",
    "Git",
    "GitError",
    "config_value",
    "without_credentials",
]

LOCAL_TIMEOUT_MS: Final = 120_000
NETWORK_TIMEOUT_MS: Final = 600_000

SAFE_DIRECTORY: Final = "git config --global --add safe.directory"
"""How git is told that a repository of another user may be worked on."""

_MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
_MAX_MESSAGE_CHARS: Final = 300
_USERINFO = re.compile(r"(?<=://)[^/\s]+@")  # up to the last @, as a password may hold one
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
}
_ISOLATED = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
}
_OPTIONS = [
    option
    for setting in (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.untrackedCache=false",
        "protocol.ext.allow=never",
        "submodule.recurse=false",
        "fetch.recurseSubmodules=false",
        "gc.auto=0",
        "maintenance.auto=false",
    )
    for option in ("-c", setting)
]


class GitError(Exception):
    """git did not do what it was asked; the message is one line without credentials.

    `advice` is the command by which git itself says that it could be mended, or None.
    """

    def __init__(self, message: str, *, advice: str | None = None) -> None:
        super().__init__(message)
        self.advice = advice


class Git:
    """Runs git on a host with what of the environment it needs.

    `redaction` masks what git complains of; `login` is for the commands that ask for it.
    """

    def __init__(
        self,
        host: Host,
        environment: Mapping[str, str],
        secret_names: frozenset[str],
        *,
        network_timeout_ms: int = NETWORK_TIMEOUT_MS,
        redaction: Redaction = SHAPES_ONLY,
        login: Login | None = None,
    ) -> None:
        self._host = host
        self._redaction = redaction
        self.login = login
        self.network_timeout_ms = network_timeout_ms
        self._environment = {
            name: value
            for name, value in environment.items()
            if _INHERITED.fullmatch(name) and name not in secret_names
        }

    async def trusted(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        timeout_ms: int = LOCAL_TIMEOUT_MS,
        login: Login | None = None,
    ) -> bytes:
        """Output of a command on a repository that no agent writes to. Raises `GitError`.

        `login` is for one that speaks with the server of that login.
        """
        told = (*(() if login is None else login.options), *arguments)
        env = {} if login is None else login.environment
        return self._output(arguments, await self._run(told, env, cwd, timeout_ms))

    async def isolated(self, *arguments: str | Path, stdin: bytes = b"") -> bytes:
        """Output of a command that sees what an agent wrote. Raises `GitError`."""
        return self._output(arguments, await self._run(arguments, _ISOLATED, None, LOCAL_TIMEOUT_MS, stdin))

    async def holds(self, *arguments: str | Path) -> bool:
        """The answer of an isolated command that says no with exit code 1. Raises `GitError` for others."""
        done = await self._run(arguments, _ISOLATED, None, LOCAL_TIMEOUT_MS)
        if done.exit_code == 1 and not done.timed_out:
            return False
        self._output(arguments, done)
        return True

    def _output(self, arguments: Sequence[str | Path], done: Completed) -> bytes:
        if done.timed_out:
            raise GitError(f"git {_verb(arguments)} did not end in time")
        if done.exit_code != 0:
            advice = _ADVICE.search(done.stderr.decode("utf-8", "replace"))
            raise GitError(f"git {_verb(arguments)}: {self._complaint(done)}", advice=advice and advice[0])
        return done.stdout

    def _complaint(self, done: Completed) -> str:
        """What git said went wrong, on one line: its own words first, then what the other side said."""
        said = self._redaction.text(without_credentials(done.stderr.decode("utf-8", "replace")))
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        own = [line for line in lines if line.startswith(("fatal:", "error:", "!"))]
        remote = [
            line for line in lines if line.removeprefix("remote:").strip() and line.startswith("remote:")
        ]
        return one_line(
            "; ".join([*own, *remote] or lines) or f"exit code {done.exit_code}", _MAX_MESSAGE_CHARS
        )

    async def _run(
        self,
        arguments: Sequence[str | Path],
        env: Mapping[str, str],
        cwd: Path | None,
        timeout_ms: int,
        stdin: bytes = b"",
    ) -> Completed:
        try:
            return await self._host.run(
                ["git", *_OPTIONS, *map(str, arguments)],
                cwd=cwd,
                env={**self._environment, **_ALWAYS, **env},
                timeout_ms=timeout_ms,
                stdin=stdin,
                max_output_bytes=_MAX_OUTPUT_BYTES,
                tethered=timeout_ms > LOCAL_TIMEOUT_MS,
            )
        except OSError as error:
            raise GitError(f"git could not be started: {error}") from error


def config_value(text: str) -> str:
    """A value as git's configuration files want it, quoted and escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def without_credentials(address: str) -> str:
    """A repository address, or a text that holds one, without the user and password in it."""
    return _USERINFO.sub("", address)


def _verb(arguments: Sequence[str | Path]) -> str:
    """The first word that is a command and neither an option nor the value of one."""
    words = [str(argument) for argument in arguments]
    while words[0].startswith("-"):
        words = words[2 if words[0] in {"-C", "-c"} else 1 :]
    return words[0]
