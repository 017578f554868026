"""Running the operator's hooks around a run (WS7, WS8, WS12, WS15)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import structlog

from symphony.config import HooksSettings
from symphony.domain import Category, Issue, Redaction
from symphony.processes.base import Completed, Host
from symphony.workspaces.model import WorkspaceError

_MAX_SHOWN_CHARS: Final = 2048
_MAX_OUTPUT_BYTES: Final = 64 * 1024  # more than is shown, so that it is masked before it is cut
# Many a login profile sets PATH anew; what the operator's terminal finds comes behind what it names.
_WIDEN_PATH: Final = 'PATH="$PATH${1:+:$1}"; shift\n'
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A daemon started from a git hook or by an agent must not hand its own situation on.
_NEVER = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|COMMON_DIR|PREFIX)|SYMPHONY_(?:RUN_ID|INSTANCE)"
)

_log = structlog.get_logger(__name__)


class Hook(StrEnum):
    """The four hooks of the specification."""

    AFTER_CREATE = "after_create"
    BEFORE_RUN = "before_run"
    AFTER_RUN = "after_run"
    BEFORE_REMOVE = "before_remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """For which issue and where a hook runs; `attempt` is null for a first run and outside of runs.

    `run_id` marks the hook's processes, so that a successor finds what a killed daemon left running.
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


class HookRunner:
    """Runs hooks with the given environment, secrets taken out; `redaction` masks what they print."""

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
            if name not in secret_names and not _NEVER.fullmatch(name)
        }
        # A login shell reads profiles that may export a secret again, even read-only: then nothing is run.
        unset = " ".join(sorted(name for name in secret_names if _VARIABLE.fullmatch(name)))
        self._preamble = _WIDEN_PATH + (f"unset -v {unset} || exit 78\n" if unset else "")

    def has(self, hook: Hook) -> bool:
        """Whether the operator set this hook."""
        return self._script(hook) is not None

    async def run(self, hook: Hook, call: HookCall) -> None:
        """Run a hook if there is one.

        Raises:
            WorkspaceError: `workspace_hook_failed` or `workspace_hook_timeout`.
        """
        script = self._script(hook)
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
        """Run a hook whose failure changes nothing; it is logged all the same (WS9)."""
        try:
            await self.run(hook, call)
        except WorkspaceError:
            return

    async def _run(self, hook: Hook, script: str, call: HookCall) -> None:
        try:
            done = await self._host.run(
                ["sh", "-lc", self._preamble + script, "sh", self._environment.get("PATH", "")],
                cwd=call.path,
                env=self._environment | _variables(call),
                timeout_ms=self._settings.timeout_ms,
                max_output_bytes=_MAX_OUTPUT_BYTES,
            )
        except OSError as error:
            raise _failed(hook, f"could not be started: {error}") from error
        if done.timed_out:
            raise self._timed_out(hook)
        if done.exit_code != 0:
            raise _failed(hook, f"ended with status {done.exit_code}{self._shown(done)}")

    def _timed_out(self, hook: Hook) -> WorkspaceError:
        return WorkspaceError.of(
            Category.WORKSPACE_HOOK_TIMEOUT,
            f"hook {hook.value} did not end within {self._settings.timeout_ms} ms",
            hint="make it faster or raise hooks.timeout_ms",
        )

    def _shown(self, done: Completed) -> str:
        """The output for people; what went to stderr comes first."""
        output = (done.stderr + done.stdout).decode("utf-8", "replace")
        text = self._redaction.line(output, _MAX_SHOWN_CHARS, joint=" | ")
        return f": {text}" if text else ""

    def _script(self, hook: Hook) -> str | None:
        match hook:
            case Hook.AFTER_CREATE:
                return self._settings.after_create
            case Hook.BEFORE_RUN:
                return self._settings.before_run
            case Hook.AFTER_RUN:
                return self._settings.after_run
            case Hook.BEFORE_REMOVE:
                return self._settings.before_remove


def _variables(call: HookCall) -> dict[str, str]:
    mark = {} if call.run_id is None else {"SYMPHONY_RUN_ID": call.run_id}
    return {
        **mark,
        "SYMPHONY_ISSUE_ID": call.issue_id,
        "SYMPHONY_ISSUE_IDENTIFIER": call.identifier,
        "SYMPHONY_WORKSPACE": str(call.path),
        "SYMPHONY_ATTEMPT": str(call.attempt or 0),
    }


def _failed(hook: Hook, what: str) -> WorkspaceError:
    return WorkspaceError.of(
        Category.WORKSPACE_HOOK_FAILED,
        f"hook {hook.value} {what}",
        hint=f"run the script of hooks.{hook.value} by hand in the workspace",
    )
