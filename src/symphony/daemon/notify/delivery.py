"""Delivers all notifications for a target in one message: the job kind `notification` of the outbox.

A hanging target delays neither other targets nor any work. A crash between the answer of a target and its
record delivers a message twice, with the same ids.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar, Final

import structlog
from typing_extensions import override

from symphony import to_thread
from symphony.config import NotifySettings
from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import Core
from symphony.daemon.jobs import Attempt, JobKind, NotYetError
from symphony.daemon.notify import notifications
from symphony.daemon.notify.notifications import Notification
from symphony.daemon.notify.targets import Deliverer, DeliveryError, TargetError, resolve_target
from symphony.domain import FaultPoint
from symphony.journal.jobs import Job
from symphony.journal.model import decode
from symphony.scheduler import State

_RECHECK_S: Final = 60.0
_RECEIVER: Final = "notify "
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class TargetStatus:
    """How the deliveries to one target went since the start of the daemon.

    Attributes:
        dropped: how many notifications were dropped since the last delivery.
        failure: why the last attempt failed.
        problem: why the target is off.
        delivered_at_ms: the wall-clock time of its last delivery.
    """

    dropped: int = 0
    failure: str | None = None
    problem: str | None = None
    delivered_at_ms: int | None = None


class Deliveries(JobKind):
    """Delivers notifications.

    Args:
        core: environment and clocks.
        deliverer: sends one batch.
        on_result: called with the kind of a target, the result, and the number of notifications.
    """

    at_once: ClassVar[int] = 1
    timeout_s: ClassVar[float] = math.inf  # `timeout_ms` of the target applies
    together: ClassVar[bool] = True

    def __init__(
        self,
        core: Core,
        deliverer: Deliverer,
        *,
        on_result: Callable[[str, str, int], None],
    ) -> None:
        self._core = core
        self._deliverer = deliverer
        self._on_result = on_result
        self._status: dict[str, TargetStatus] = {}

    def reconfigure(self, context: RuntimeContext) -> None:
        """Forget why targets were off, and forget targets that are not in the new settings."""
        self._status = {
            each.name: replace(self.status(each.name), problem=None) for each in context.settings.notify
        }

    def status(self, target: str) -> TargetStatus:
        """How the deliveries to a target went."""
        return self._status.setdefault(target, TargetStatus())

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        """Whether its target is still in WORKFLOW.md and its content still true."""
        notification = decode(job.payload, Notification)
        return _target(job, context) is not None and notifications.is_current(
            notification, state, self._core.now_ms()
        )

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        """Deliver a batch. A batch for a target that is off is dropped.

        Raises:
            DeliveryError: the target refused it, or its answer was lost.
            NotYetError: the target has quiet hours.
        """
        settings, context = _target(attempt.job, attempt.context), attempt.context
        if settings is None:
            return
        now = datetime.fromtimestamp(self._core.wall_ms() / 1000, UTC).astimezone()
        if quiet_s := notifications.quiet_for(settings.quiet_hours, now).total_seconds():
            raise NotYetError(min(quiet_s, _RECHECK_S))
        name, kind, status = settings.name, settings.kind, self.status(settings.name)
        batch = [decode(job.payload, Notification) for job in attempt.jobs]
        batch.sort(key=lambda each: each.at_wall_ms)
        try:
            target = await to_thread.run_sync(resolve_target, settings, self._core.environment)
        except TargetError as error:
            if status.problem != str(error):
                _log.warning("notify_target_off", target=name, reason=str(error), hint=error.hint)
            status.problem = str(error)
            return
        status.problem = None
        context.fault(FaultPoint.BEFORE_NOTIFICATION)
        try:
            await self._deliverer.deliver(
                target,
                batch,
                dropped=status.dropped,
                now_ms=self._core.wall_ms(),
                secret_names=context.secret_names,
                redaction=context.redaction,
            )
        except Exception as error:
            reason = error.failure.message if isinstance(error, DeliveryError) else repr(error)
            status.failure = context.redaction.text(reason)
            self._on_result(kind, "failed", len(batch))
            raise
        context.fault(FaultPoint.AFTER_NOTIFICATION)
        status.failure, status.dropped, status.delivered_at_ms = None, 0, self._core.wall_ms()
        self._on_result(kind, "delivered", len(batch))
        _log.info("notified", target=name, events=sorted({each.event for each in batch}))


def receiver_of(target: str) -> str:
    """The receiver of the jobs of a target."""
    return f"{_RECEIVER}{target}"


def _target(job: Job, context: RuntimeContext) -> NotifySettings | None:
    name = job.receiver.removeprefix(_RECEIVER)
    return next((each for each in context.settings.notify if each.name == name), None)
