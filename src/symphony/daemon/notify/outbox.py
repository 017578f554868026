"""Keeps notifications until they are delivered: gathered, retried, quiet at night, kept across restarts.

Each target has a queue and a task of its own, so a target that hangs delays neither another one nor any work.
A notification is put into the journal in the same turn of the event loop as the step that caused it, and so
in the same transaction: after a crash both are known or neither. It is removed once the target has taken it.
A crash between the answer of a target and that removal delivers it twice, with the same id.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import anyio
import msgspec
import structlog
from typing_extensions import override

from symphony import to_thread
from symphony.api import models
from symphony.api.observer import Observer
from symphony.config import NotifySettings
from symphony.daemon.context import RuntimeContext
from symphony.daemon.notify import notifications
from symphony.daemon.notify.notifications import Notification
from symphony.daemon.notify.targets import Deliverer, DeliveryError, Target, TargetError, resolve_target
from symphony.domain import DECODE_ERRORS
from symphony.journal.model import CodecError, PullRequestRecord, SettingRecord, decode, encode
from symphony.scheduler import Command, Event, Recovered, State

MAX_PENDING: Final = 500
FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 300.0
GIVE_UP_MS: Final = 24 * 3_600_000
FINISH_S: Final = 5.0
_MAX_DOUBLINGS: Final = 12
_RECHECK_S: Final = 60.0
_MAX_SKILL_PROBLEMS: Final = 500
_PENDING: Final = "notify.pending."
_REMINDED: Final = "notify.reminded."
_SKILLS: Final = "notify.skills"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A notification that a target has not taken yet, as the journal keeps it."""

    target: str
    notification: Notification

    @property
    def setting(self) -> str:
        """The name of its record."""
        key = "\n".join([self.target, *self.notification.key])
        return f"{_PENDING}{sha256(key.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminded:
    """When a target was last reminded of the question of an issue, as the journal keeps it."""

    target: str
    issue_id: str
    at_wall_ms: int

    @property
    def setting(self) -> str:
        """The name of its record."""
        return f"{_REMINDED}{sha256(f'{self.target} {self.issue_id}'.encode()).hexdigest()[:32]}"


@dataclass(slots=True)
class _Queue:
    """What waits for one target, the oldest first, and how its deliveries went."""

    pending: dict[tuple[str, str], Pending] = field(default_factory=dict)
    added: anyio.Event = field(default_factory=anyio.Event)
    served: bool = False
    resting: bool = False
    dropped: int = 0
    failures: int = 0
    failure: str | None = None
    problem: str | None = None
    delivered_at_ms: int | None = None


class Outbox(Observer):
    """Observes the service, and delivers what people should know.

    Args:
        state: the present state of the scheduler.
        context: the context in force.
        deliverer: sends one batch.
        environment: variables of the daemon.
        recovered: the settings that the previous daemon left in the journal.
        record: puts a setting into the journal; `None` deletes it.
        recorded: returns when everything that was put is written, or cannot be.
        on_result: called with the kind of a target, the result, and the number of notifications.
        now_ms: the monotonic clock.
        wall_ms: the wall clock.
        once: the daemon ends as soon as nothing is left to do, which is no news.
        first_retry_s: the wait after the first failure; it doubles.
        max_pending: how many notifications wait for one target; the oldest are dropped.
    """

    def __init__(
        self,
        *,
        state: Callable[[], State | None],
        context: Callable[[], RuntimeContext],
        deliverer: Deliverer,
        environment: Mapping[str, str],
        recovered: Mapping[str, str],
        record: Callable[[str, str | None], None],
        recorded: Callable[[], Awaitable[None]],
        on_result: Callable[[str, str, int], None],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        once: bool = False,
        first_retry_s: float = FIRST_RETRY_S,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._state = state
        self._context = context
        self._deliverer = deliverer
        self._environment = environment
        self._record = record
        self._recorded = recorded
        self._on_result = on_result
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._once = once
        self._first_retry_s = first_retry_s
        self._max_pending = max_pending
        self._queues: dict[str, _Queue] = {}
        self._reminded: dict[tuple[str, str], Reminded] = {}
        self._skill_problems: list[str] = []
        self._started = anyio.Event()  # the first step was taken: the state is that of the previous daemon
        self._finishing = anyio.Event()
        self._changed = anyio.Event()
        self._recover(recovered)

    # --- what happens ------------------------------------------------------------------------------------

    @override
    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        """Take the notifications of one step."""
        if isinstance(event, Recovered):
            self._started.set()
        decided = notifications.decide(before, event, after, commands, at_wall_ms=self._wall_ms())
        for notification in decided:
            if not (self._once and notification.event == "daemon_down_soon"):
                self._add(notification, self._context().settings.notify)
        if after.blocked is not before.blocked:
            for key in [key for key in self._reminded if key[1] not in after.blocked]:
                self._record(self._reminded.pop(key).setting, None)

    @override
    def skills_loaded(self, issue_id: str, run_id: str, skills: models.Skills) -> None:
        """A run lists these skills: tell about files with errors, each version of a file once."""
        found = {
            f"{one.path} {one.code} {one.sha256}": one for one in skills.problems if one.severity == "error"
        }
        new = [one for key, one in found.items() if key not in self._skill_problems]
        if new:
            known = [*self._skill_problems, *(key for key in found if key not in self._skill_problems)]
            self._skill_problems = known[-_MAX_SKILL_PROBLEMS:]
            self._record(_SKILLS, msgspec.json.encode(self._skill_problems).decode())
            notification = notifications.of_skill_problems(new, self._wall_ms())
            self._add(notification, self._context().settings.notify)

    @override
    def pull_request_judged(self, record: PullRequestRecord, message: str) -> None:
        """The pull request of an issue waits for something else than before: tell if that is a person."""
        if record.needs_you:
            notification = notifications.of_pull_request(record, self._wall_ms())
            self._add(notification, self._context().settings.notify)

    def _add(self, notification: Notification, targets: Iterable[NotifySettings]) -> None:
        public = notifications.public(notification, self._context().redaction)
        for target in targets:
            if notification.event in target.on:
                pending = Pending(target=target.name, notification=public)
                self._enqueue(pending)
                self._record(pending.setting, encode(pending))

    def _enqueue(self, pending: Pending) -> None:
        queue = self._queues.setdefault(pending.target, _Queue())
        queue.pending.pop(pending.notification.key, None)
        queue.pending[pending.notification.key] = pending
        if len(queue.pending) > self._max_pending:
            self._forget(queue, [next(iter(queue.pending.values()))])
            queue.dropped += 1
        queue.added.set()
        self._changed.set()

    def _recover(self, settings: Mapping[str, str]) -> None:
        """Take over what the previous daemon left; what cannot be read is dropped."""
        left: list[Pending] = []
        for name, text in settings.items():
            try:
                if name.startswith(_PENDING):
                    left.append(decode(text, Pending))
                elif name.startswith(_REMINDED):
                    reminded = decode(text, Reminded)
                    self._reminded[reminded.target, reminded.issue_id] = reminded
                elif name == _SKILLS:
                    self._skill_problems = msgspec.json.decode(text, type=list[str])
            except (CodecError, *DECODE_ERRORS):
                self._record(name, None)
        for pending in sorted(left, key=lambda each: each.notification.at_wall_ms):
            self._enqueue(pending)

    # --- for others --------------------------------------------------------------------------------------

    def records(self) -> tuple[SettingRecord, ...]:
        """All records, for a journal that is recreated."""
        pending = (each for queue in self._queues.values() for each in queue.pending.values())
        return (
            *(SettingRecord(name=each.setting, value=encode(each)) for each in pending),
            *(SettingRecord(name=each.setting, value=encode(each)) for each in self._reminded.values()),
            SettingRecord(name=_SKILLS, value=msgspec.json.encode(self._skill_problems).decode()),
        )

    def targets(self) -> tuple[models.NotifyTarget, ...]:
        """The targets, and whether they get what is sent."""
        return tuple(
            target_document(settings, self._queues.get(settings.name, _Queue()))
            for settings in self._context().settings.notify
        )

    # --- delivery ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver and remind until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._remind)
            while True:
                for name, queue in self._queues.items():
                    if not queue.served:
                        queue.served = True
                        tasks.start_soon(self._serve, name, queue)
                await self._changed.wait()
                self._changed = anyio.Event()

    async def finish(self) -> None:
        """Deliver now what can be delivered; the next daemon gets the rest. Takes five seconds at most."""
        self._finishing.set()
        with anyio.move_on_after(FINISH_S):
            while any(queue.pending and not queue.resting for queue in self._queues.values()):
                await self._changed.wait()

    async def _serve(self, name: str, queue: _Queue) -> None:
        await self._started.wait()
        while True:
            await queue.added.wait()
            queue.added = anyio.Event()
            settings = self._settings(name)
            await self._pause(0 if settings is None else settings.gather_ms / 1000)
            while queue.pending:
                pause_s = await self._attempt(name, queue)
                queue.resting = pause_s > 0
                self._changed.set()
                if queue.resting and self._finishing.is_set():
                    return
                await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._finishing.wait()

    def _settings(self, name: str) -> NotifySettings | None:
        return next((each for each in self._context().settings.notify if each.name == name), None)

    async def _attempt(self, name: str, queue: _Queue) -> float:
        """Deliver what waits; returns how long to wait before the next attempt in seconds."""
        settings = self._settings(name)
        if settings is None:
            self._drop(name, queue, queue.pending.values(), "WORKFLOW.md has no such target any more")
            return 0
        now = datetime.fromtimestamp(self._wall_ms() / 1000, UTC).astimezone()
        quiet_s = notifications.quiet_for(settings.quiet_hours, now).total_seconds()
        if quiet_s:
            return min(quiet_s, _RECHECK_S)
        expired_ms = self._wall_ms() - GIVE_UP_MS
        expired = [each for each in queue.pending.values() if each.notification.at_wall_ms < expired_ms]
        self._drop(name, queue, expired, "it was not delivered within a day")
        state = self._state()
        now_ms = self._now_ms()
        batch = [*queue.pending.values()]
        if state is not None:
            over = [each for each in batch if not notifications.is_current(each.notification, state, now_ms)]
            self._forget(queue, over)
            batch = [*queue.pending.values()]
        if not batch:
            return 0
        await self._recorded()
        try:
            target = await to_thread.run_sync(resolve_target, settings, self._environment)
        except TargetError as error:
            if queue.problem != str(error):
                _log.warning("notify_target_off", target=name, reason=str(error), hint=error.hint)
            queue.problem = str(error)
            self._forget(queue, batch)
            return 0
        queue.problem = None
        return await self._deliver(target, queue, batch)

    async def _deliver(self, target: Target, queue: _Queue, batch: Sequence[Pending]) -> float:
        name, kind, context = target.settings.name, target.settings.kind, self._context()
        try:
            await self._deliverer.deliver(
                target,
                [each.notification for each in batch],
                dropped=queue.dropped,
                now_ms=self._wall_ms(),
                secret_names=context.secret_names,
                redaction=context.redaction,
            )
        except Exception as error:  # noqa: BLE001 - whatever happens here, no work may suffer
            if not isinstance(error, DeliveryError):
                _log.exception("notification_crashed", target=name)
            queue.failures += 1
            queue.failure = context.redaction.text(str(error))
            if queue.failures == 1:
                _log.warning("notification_failed", target=name, reason=queue.failure, pending=len(batch))
            else:
                _log.debug("notification_failed", target=name, reason=queue.failure, pending=len(batch))
            self._on_result(kind, "failed", len(batch))
            backoff_s = self._first_retry_s * 2.0 ** min(queue.failures - 1, _MAX_DOUBLINGS)
            asked_s = error.retry_after_s if isinstance(error, DeliveryError) else 0.0
            return max(min(backoff_s, LONGEST_RETRY_S), asked_s)
        if queue.failures:
            _log.info("notify_target_recovered", target=name, failures=queue.failures)
        queue.failures, queue.failure, queue.dropped = 0, None, 0
        queue.delivered_at_ms = self._wall_ms()
        self._forget(queue, batch)
        self._on_result(kind, "delivered", len(batch))
        _log.info("notified", target=name, events=sorted({each.notification.event for each in batch}))
        return 0

    def _drop(self, name: str, queue: _Queue, lost: Iterable[Pending], reason: str) -> None:
        lost = [*lost]
        if lost:
            _log.warning("notifications_dropped", target=name, count=len(lost), reason=reason)
            self._forget(queue, lost)

    def _forget(self, queue: _Queue, done: Iterable[Pending]) -> None:
        for pending in done:
            if queue.pending.get(pending.notification.key) is pending:
                del queue.pending[pending.notification.key]
                self._record(pending.setting, None)

    # --- reminders ---------------------------------------------------------------------------------------

    async def _remind(self) -> None:
        await self._started.wait()
        while True:
            waits_s = (each.remind_after_ms / 2_000 for each in self._context().settings.notify)
            await anyio.sleep(min([_RECHECK_S, *waits_s]))
            state = self._state()
            if state is None or not state.blocked:
                continue
            now_ms, wall_ms = self._now_ms(), self._wall_ms()
            for target in self._context().settings.notify:
                if "question" not in target.on:
                    continue
                told = {
                    key[1]: one.at_wall_ms for key, one in self._reminded.items() if key[0] == target.name
                }
                for reminder in notifications.due_reminders(
                    state, told, remind_after_ms=target.remind_after_ms, now_ms=now_ms, wall_ms=wall_ms
                ):
                    self._add(reminder, [target])
                    _, issue_id = reminder.key
                    reminded = Reminded(target=target.name, issue_id=issue_id, at_wall_ms=wall_ms)
                    self._reminded[target.name, issue_id] = reminded
                    self._record(reminded.setting, encode(reminded))


def target_document(settings: NotifySettings, queue: _Queue) -> models.NotifyTarget:
    """A target as documents show it."""
    at_ms = queue.delivered_at_ms
    return models.NotifyTarget(
        name=settings.name,
        kind=settings.kind,
        on=settings.on,
        problem=queue.problem,
        pending=len(queue.pending),
        delivered_at=None if at_ms is None else models.wall_text(at_ms),
        failure=queue.failure,
    )
