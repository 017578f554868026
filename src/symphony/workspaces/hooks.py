"""Runs the operator's hooks around a run (specification section 9.4)."""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import structlog
from msgspec import Struct

from symphony.config import HooksSettings
from symphony.domain import Category, Issue, Redaction
from symphony.processes.base import Completed, Host
from symphony.workspaces.model import WorkspaceError

_MAX_SHOWN_CHARS: Final = 2048
_MAX_OUTPUT_BYTES: Final = 64 * 1024  # more than is shown, so that secrets are masked before the text is cut
# Many login profiles replace PATH, so the daemon's directories are appended to the profile's.
_WIDEN_PATH: Final = 'PATH="$PATH${1:+:$1}"; shift\n'
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# These are set if a git hook or an agent started the daemon; a hook must not inherit them.
_NEVER_INHERITED = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|COMMON_DIR|PREFIX)|SYMPHONY_(?:RUN_ID|INSTANCE)"
)
_log = structlog.get_logger(__name__)


class Hook(StrEnum):
    """The hooks; each value is also the name of a setting."""

    AFTER_CREATE = "after_create"
    BEFORE_RUN = "before_run"
    AFTER_RUN = "after_run"
    BEFORE_REMOVE = "before_remove"


HOOK_VARIABLES: Final = (
    "SYMPHONY_ISSUE_ID",
    "SYMPHONY_ISSUE_IDENTIFIER",
    "SYMPHONY_WORKSPACE",
    "SYMPHONY_ATTEMPT",
    "SYMPHONY_RUN_ID",
)
"""The variables that describe a call to the hook."""


class HookCall(Struct, frozen=True, kw_only=True):
    """One call of a hook.

    Attributes:
        path: the workspace.
        attempt: `None` for a first run and outside of runs.
        run_id: marks the processes of the hook, so that a later daemon finds them after a crash.
    """

    issue_id: str
    identifier: str
    path: Path
    attempt: int | None = None
    run_id: str | None = None

    @classmethod
    def of(cls, issue: Issue, path: Path, attempt: int | None, run_id: str | None) -> Self:
        """The call for an attempt."""
        return cls(issue_id=issue.id, identifier=issue.identifier, path=path, attempt=attempt, run_id=run_id)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that describe the call to the script."""
        return {
            **({} if self.run_id is None else {"SYMPHONY_RUN_ID": self.run_id}),
            "SYMPHONY_ISSUE_ID": self.issue_id,
            "SYMPHONY_ISSUE_IDENTIFIER": self.identifier,
            "SYMPHONY_WORKSPACE": str(self.path),
            "SYMPHONY_ATTEMPT": str(self.attempt or 0),
        }


class HookRunner:
    """Runs hooks with an environment without secrets; `redaction` masks their output."""

    def __init__(
        self,
        host: Host,
        settings: HooksSettings,
        environment: Mapping[str, str],
        secret_names: frozenset[str],
        redaction: Redaction,
    ) -> None:
        self._host = host
        self._redaction = redaction
        self._settings = settings
        self._environment = {
            name: value
            for name, value in environment.items()
            if name not in secret_names and not _NEVER_INHERITED.fullmatch(name)
        }
        # A login shell reads profiles that may export a secret again. If the secret cannot be unset, nothing
        # runs.
        unset = " ".join(sorted(name for name in secret_names if _VARIABLE.fullmatch(name)))
        self._preamble = _WIDEN_PATH + (f"unset -v {unset} || exit 78\n" if unset else "")

    def has(self, hook: Hook) -> bool:
        """Whether the operator has set this hook."""
        return getattr(self._settings, hook.value) is not None

    async def run(self, hook: Hook, call: HookCall) -> None:
        """Run a hook if it is set.

        Raises:
            WorkspaceError: `workspace_hook_failed` or `workspace_hook_timeout`.
        """
        script: str | None = getattr(self._settings, hook.value)
        if script is None:
            return
        log = _log.bind(hook=hook.value, issue_id=call.issue_id, issue_identifier=call.identifier)
        log.info("hook_started")
        try:
            await self._run(hook, script, call)
        except WorkspaceError as error:
            log.warning("hook_failed", category=error.failure.category.value, error=error.failure.message)
            raise

    async def run_ignoring_failure(self, hook: Hook, call: HookCall) -> None:
        """Run a hook whose failure is only logged."""
        try:
            await self.run(hook, call)
        except WorkspaceError:
            return

    async def _run(self, hook: Hook, script: str, call: HookCall) -> None:
        try:
            done = await self._start(script, call, timeout_ms=self._settings.timeout_ms)
        except OSError as error:
            raise _failed(hook, f"could not be started: {error}") from error
        if done.timed_out:
            raise WorkspaceError.of(
                Category.WORKSPACE_HOOK_TIMEOUT,
                f"hook {hook.value} did not end within {self._settings.timeout_ms} ms",
                hint="make it faster or raise hooks.timeout_ms",
            )
        if done.exit_code != 0:
            raise _failed(hook, self._ended(done))

    async def _start(
        self,
        script: str,
        call: HookCall,
        *,
        timeout_ms: int,
    ) -> Completed:
        """The result of a script. Raises `OSError`."""
        argv = ("sh", "-lc", self._preamble + script, "sh", self._environment.get("PATH", ""))
        return await self._host.run(
            argv,
            cwd=call.path,
            env={**self._environment, **call.variables},
            timeout_ms=timeout_ms,
            max_output_bytes=_MAX_OUTPUT_BYTES,
        )

    def _ended(self, done: Completed) -> str:
        output = (done.stderr + done.stdout).decode("utf-8", "replace")
        shown = self._redaction.line(output, _MAX_SHOWN_CHARS, joint=" | ")
        return f"ended with status {done.exit_code}{f': {shown}' if shown else ''}"


def _failed(hook: Hook, problem: str) -> WorkspaceError:
    return WorkspaceError.of(
        Category.WORKSPACE_HOOK_FAILED,
        f"hook {hook.value} {problem}",
        hint=f"run the script of hooks.{hook.value} by hand in the workspace",
    )
