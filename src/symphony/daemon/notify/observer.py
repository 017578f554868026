"""Queues jobs with notifications for the targets of `notify`.

A job is queued in the same turn of the event loop as the step that caused it, and so written in the same
transaction: after a crash both are known or neither. Per issue and event only the newest one waits.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final

import anyio
import msgspec
from msgspec import Struct
from typing_extensions import override

from symphony.api import models
from symphony.api.observer import Observer
from symphony.config import NotifySettings
from symphony.daemon.core import Core
from symphony.daemon.jobs import JobRunner
from symphony.daemon.notify import notifications
from symphony.daemon.notify.delivery import Deliveries, receiver_of
from symphony.daemon.notify.notifications import Notification
from symphony.domain import DECODE_ERRORS, Verification
from symphony.journal.model import CodecError, PullRequestRecord, SettingRecord, decode, encode
from symphony.scheduler import Command, Event, RunEnded, State

MAX_PENDING: Final = 500
_RECHECK_S: Final = 60.0
_MAX_SKILL_PROBLEMS: Final = 500
_REMINDED: Final = "notify.reminded."
_SKILLS: Final = "notify.skills"
_BASES: Final = "notify.bases"
_MAX_BASES: Final = 100


class Reminded(Struct, frozen=True, kw_only=True):
    """When a target was last reminded of the question of an issue, for the journal."""

    target: str
    issue_id: str
    at_wall_ms: int

    @property
    def setting(self) -> str:
        """The name of its record."""
        return f"{_REMINDED}{sha256(f'{self.target} {self.issue_id}'.encode()).hexdigest()[:32]}"


class NotificationObserver(Observer):
    """Observes the service, and queues notifications.

    Args:
        core: state, context and clocks.
        jobs: queues the notifications.
        deliveries: the state of deliveries.
        recovered: the settings that the previous daemon left in the journal.
        record: puts a setting into the journal; `None` deletes it.
        once: whether the daemon ends as soon as nothing is left to do, which needs no notification.
        max_pending: how many notifications wait for one target; the oldest are dropped.
    """

    def __init__(
        self,
        core: Core,
        jobs: JobRunner,
        deliveries: Deliveries,
        *,
        recovered: Mapping[str, str],
        record: Callable[[str, str | None], None],
        once: bool = False,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._core = core
        self._jobs = jobs
        self._deliveries = deliveries
        self._record = record
        self._once = once
        self._max_pending = max_pending
        self._reminded: dict[tuple[str, str], Reminded] = {}
        self._skill_problems: list[str] = []
        self._broken_bases: list[str] = []
        for name, text in recovered.items():
            try:
                if name.startswith(_REMINDED):
                    reminded = decode(text, Reminded)
                    self._reminded[reminded.target, reminded.issue_id] = reminded
                elif name == _SKILLS:
                    self._skill_problems = msgspec.json.decode(text, type=list[str])
                elif name == _BASES:
                    self._broken_bases = msgspec.json.decode(text, type=list[str])
            except (CodecError, *DECODE_ERRORS):
                self._record(name, None)

    @override
    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        """Queue the notifications of one step."""
        decided = notifications.decide(before, event, after, commands, at_wall_ms=self._core.wall_ms())
        for notification in decided:
            if not (self._once and notification.event == "daemon_down_soon"):
                self._owe(notification, self._core.in_force.settings.notify)
        if isinstance(event, RunEnded) and event.outcome.verification is not None:
            self._tell_broken_base(event.outcome.verification)
        if after.blocked is not before.blocked:
            for key in [key for key in self._reminded if key[1] not in after.blocked]:
                self._record(self._reminded.pop(key).setting, None)

    @override
    def skills_loaded(self, issue_id: str, run_id: str, skills: models.Skills) -> None:
        """A run lists these skills: notify about files with errors, once for each version of a file."""
        found = {
            f"{one.path} {one.code} {one.sha256}": one for one in skills.problems if one.severity == "error"
        }
        new = [one for key, one in found.items() if key not in self._skill_problems]
        if new:
            known = [*self._skill_problems, *(key for key in found if key not in self._skill_problems)]
            self._skill_problems = known[-_MAX_SKILL_PROBLEMS:]
            self._record(_SKILLS, msgspec.json.encode(self._skill_problems).decode())
            notification = notifications.of_skill_problems(new, self._core.wall_ms())
            self._owe(notification, self._core.in_force.settings.notify)

    def _tell_broken_base(self, verification: Verification) -> None:
        """Notify once about a base commit on which checks fail."""
        notification = notifications.of_broken_base(verification, self._core.wall_ms())
        if notification is None or verification.base is None or verification.base in self._broken_bases:
            return
        self._broken_bases = [*self._broken_bases, verification.base][-_MAX_BASES:]
        self._record(_BASES, msgspec.json.encode(self._broken_bases).decode())
        self._owe(notification, self._core.in_force.settings.notify)

    @override
    def pull_request_judged(self, record: PullRequestRecord, message: str) -> None:
        """The pull request of an issue waits for something else than before: notify if that is a person."""
        if record.needs_you:
            notification = notifications.of_pull_request(record, self._core.wall_ms())
            self._owe(notification, self._core.in_force.settings.notify)

    def _owe(self, notification: Notification, targets: Iterable[NotifySettings]) -> None:
        public = notifications.public(notification, self._core.in_force.redaction)
        issue, (event, about) = public.issue, public.key
        for target in targets:
            if notification.event not in target.on:
                continue
            receiver = receiver_of(target.name)
            self._jobs.queue(
                kind="notification",
                key=f"{target.name}:{event}:{about}",
                receiver=receiver,
                issue_id="" if issue is None else issue.issue_id,
                issue_identifier="" if issue is None else issue.identifier,
                payload=encode(public),
                wait_ms=target.gather_ms,
            )
            for job in self._jobs.waiting(receiver)[: -self._max_pending]:
                self._jobs.drop(job.key, "too much waits for the target")
                self._deliveries.status(target.name).dropped += 1

    def records(self) -> tuple[SettingRecord, ...]:
        """All records, for a journal that is recreated."""
        return (
            *(SettingRecord(name=each.setting, value=encode(each)) for each in self._reminded.values()),
            SettingRecord(name=_SKILLS, value=msgspec.json.encode(self._skill_problems).decode()),
            SettingRecord(name=_BASES, value=msgspec.json.encode(self._broken_bases).decode()),
        )

    def targets(self) -> tuple[models.NotifyTarget, ...]:
        """The targets, and whether notifications reach them."""
        return tuple(self._document(settings) for settings in self._core.in_force.settings.notify)

    def _document(self, settings: NotifySettings) -> models.NotifyTarget:
        status = self._deliveries.status(settings.name)
        at_ms = status.delivered_at_ms
        return models.NotifyTarget(
            name=settings.name,
            kind=settings.kind,
            on=settings.on,
            problem=status.problem,
            pending=len(self._jobs.waiting(receiver_of(settings.name))),
            delivered_at=None if at_ms is None else models.wall_text(at_ms),
            failure=status.failure,
        )

    async def run(self) -> None:
        """Remind of questions without an answer, until cancelled."""
        while True:
            waits_s = (each.remind_after_ms / 2_000 for each in self._core.in_force.settings.notify)
            await anyio.sleep(min([_RECHECK_S, *waits_s]))
            state = self._core.state
            if state is None or not state.blocked:
                continue
            now_ms, wall_ms = self._core.now_ms(), self._core.wall_ms()
            for target in self._core.in_force.settings.notify:
                if "question" not in target.on:
                    continue
                told = {
                    key[1]: one.at_wall_ms for key, one in self._reminded.items() if key[0] == target.name
                }
                for reminder in notifications.due_reminders(
                    state, told, remind_after_ms=target.remind_after_ms, now_ms=now_ms, wall_ms=wall_ms
                ):
                    self._owe(reminder, [target])
                    _, issue_id = reminder.key
                    reminded = Reminded(target=target.name, issue_id=issue_id, at_wall_ms=wall_ms)
                    self._reminded[target.name, issue_id] = reminded
                    self._record(reminded.setting, encode(reminded))
