"""Takes over changes of the workflow file while the daemon runs."""

from collections.abc import Callable
from typing import Final

import anyio
import structlog
from msgspec import Struct

from symphony import to_thread
from symphony.config import Rejected, Reload, Reloaded, Workflow, WorkflowStore, changed_keys
from symphony.daemon.context import RuntimeContext, scheduler_settings
from symphony.daemon.core import Core
from symphony.daemon.preflight import changed_agents, preflight_agents
from symphony.domain import Failure, SymphonyError
from symphony.scheduler import SettingsChanged, WorkflowRejected

_RETRY_MS: Final = 30_000
_log = structlog.get_logger(__name__)


class _Refused(Struct, frozen=True, kw_only=True):
    """A valid workflow file that could not be applied, why, and when that was last tried."""

    workflow: Workflow
    failure: Failure
    at_ms: int


class Reloader:
    """Keeps the runtime context in line with the workflow file.

    A valid change goes to `Core.reconfigure`; runs that started earlier keep their context. After an invalid
    change the last context stays in force, and the scheduler starts nothing new until the file is valid.
    """

    def __init__(
        self,
        core: Core,
        *,
        store: WorkflowStore,
        build: Callable[[Workflow], RuntimeContext],
    ) -> None:
        self._core = core
        self._store = store
        self._build = build
        self._refused: _Refused | None = None
        self._lock = anyio.Lock()

    async def check(self, *, retry: bool = False) -> None:
        """Take over the workflow file if it changed; failures are posted or logged.

        A valid file can be refused because of its agent or its repository, which can be repaired without a
        change of the file. It is tried again after a while, or at once with `retry`.
        """
        async with self._lock:
            try:
                match self._store.reload_if_changed():
                    case Reloaded(workflow=workflow):
                        await self._take_over(workflow)
                    case Rejected(failures=failures):
                        self._refused = None
                        self._core.post(WorkflowRejected(failure=failures[0]))
                    case None:
                        refused = self._refused
                        if refused is not None and (
                            retry or self._core.now_ms() - refused.at_ms >= _RETRY_MS
                        ):
                            await self._take_over(refused.workflow)
            except Exception:  # noqa: BLE001 - what is in force stays in force
                _log.exception("reload_failed")

    async def _take_over(self, workflow: Workflow) -> None:
        try:
            context = await to_thread.run_sync(self._build, workflow)  # isolation looks at files
            await context.workspaces.check_root()
            if context.carrier is None:
                await preflight_agents(context, changed_agents(self._core.in_force, context))
        except SymphonyError as error:
            repeated = self._refused is not None and self._refused.failure == error.failure
            self._refused = _Refused(workflow=workflow, failure=error.failure, at_ms=self._core.now_ms())
            if not repeated:
                self._core.post(WorkflowRejected(failure=error.failure))
            return
        before, self._refused = self._core.in_force, None
        self._core.reconfigure(context)
        log_warnings(workflow)
        _log.info("workflow_reloaded", workflow=str(workflow.path))
        if keys := changed_keys(before.settings, workflow.settings, Reload.RESTART):
            _log.warning("restart_needed", keys=keys)
        self._core.post(SettingsChanged(settings=scheduler_settings(context)))


def log_warnings(workflow: Workflow) -> None:
    """Log the warnings of a workflow file."""
    for warning in workflow.warnings:
        _log.warning("workflow_warning", where=warning.where, reason=warning.message, hint=warning.hint)
