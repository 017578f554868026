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

from symphony.hosts.base import Completed, Host

__all__ = ["LOCAL_TIMEOUT_MS", "NETWORK_TIMEOUT_MS", "Git", "GitError", "config_value", "without_credentials"]

LOCAL_TIMEOUT_MS: Final = 120_000
NETWORK_TIMEOUT_MS: Final = 600_000

_MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
_MAX_MESSAGE_CHARS: Final = 300
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|LANG|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS"
    r"|SSH_AUTH_SOCK|GIT_SSH|GIT_SSH_COMMAND|GIT_SSH_VARIANT|GIT_SSL_CAINFO|GIT_SSL_CAPATH"
    r"|GIT_CONFIG_(?:GLOBAL|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|CURL_CA_BUNDLE|(?:https?|all|no|HTTPS?|ALL|NO)_(?:proxy|PROXY)"
)
_ALWAYS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
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
    """git did not do what it was asked; the message is one line without credentials."""


class Git:
    """Runs git on a host with what of the environment it needs."""

    def __init__(self, host: Host, environment: Mapping[str, str], secret_names: frozenset[str]) -> None:
        self._host = host
        self._environment = {
            name: value
            for name, value in environment.items()
            if _INHERITED.fullmatch(name) and name not in secret_names
        }

    async def trusted(
        self, *arguments: str | Path, cwd: Path | None = None, timeout_ms: int = LOCAL_TIMEOUT_MS
    ) -> bytes:
        """Output of a command on a repository that no agent writes to. Raises `GitError`."""
        return _output(arguments, await self._run(arguments, {}, cwd, timeout_ms))

    async def isolated(self, *arguments: str | Path, stdin: bytes = b"") -> bytes:
        """Output of a command that sees what an agent wrote. Raises `GitError`."""
        return _output(arguments, await self._run(arguments, _ISOLATED, None, LOCAL_TIMEOUT_MS, stdin))

    async def holds(self, *arguments: str | Path) -> bool:
        """The answer of an isolated command that says no with exit code 1. Raises `GitError` for others."""
        done = await self._run(arguments, _ISOLATED, None, LOCAL_TIMEOUT_MS)
        if done.exit_code == 1 and not done.timed_out:
            return False
        _output(arguments, done)
        return True

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


def _output(arguments: Sequence[str | Path], done: Completed) -> bytes:
    if done.timed_out:
        raise GitError(f"git {_verb(arguments)} did not end in time")
    if done.exit_code != 0:
        raise GitError(f"git {_verb(arguments)}: {_complaint(done)}")
    return done.stdout


def _verb(arguments: Sequence[str | Path]) -> str:
    """The first word that is a command and neither an option nor the value of one."""
    words = [str(argument) for argument in arguments]
    while words[0].startswith("-"):
        words = words[2 if words[0] == "-C" else 1 :]
    return words[0]


def _complaint(done: Completed) -> str:
    """What git said went wrong, on one line."""
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "!"))] or lines
    text = without_credentials("; ".join(telling) or f"exit code {done.exit_code}")
    return text[:_MAX_MESSAGE_CHARS]
