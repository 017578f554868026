"""Deliveries: to a loopback server that answers as it likes, in order, once, and never in the way."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from typing_extensions import override

from harness.binding import FakeTracker, StoryCore, make_context
from harness.outbox import Outbox
from harness.receiver import HANG, Receiver, receiving
from harness.scheduling import Story, make_failure, make_issue
from harness.shell import word
from symphony.config import NotifySettings
from symphony.daemon.notify.delivery import Deliveries
from symphony.daemon.notify.observer import NotificationObserver
from symphony.daemon.notify.targets import Deliverer, DeliveryError, resolve_target
from symphony.domain import Category, CheckRun, Issue, Verification
from symphony.processes.local import LocalHost
from symphony.scheduler import Command, Event, Outcome, OutcomeKind, RunEnded

pytestmark = pytest.mark.asyncio
QUESTION = make_failure(category=Category.TURN_INPUT_REQUIRED)


class Daemon(Story):
    """A story with an outbox for targets, whose deliveries are real.

    Attributes:
        settings: what the observer recorded.
        outbox: the jobs, with their journal.
        results: what became of deliveries.
    """

    def __init__(
        self,
        place: Path,
        *issues: Issue,
        targets: list[dict[str, Any]],
        before: "Daemon | None" = None,
        **options: Any,
    ) -> None:
        super().__init__(*issues, max_concurrent_agents=10)
        self.settings: dict[str, str] = {} if before is None else before.settings
        self.results: list[tuple[str, str, int]] = []
        self.tried = anyio.Event()
        context = make_context(place, FakeTracker(), more=json.dumps({"notify": targets}))
        core = StoryCore(
            state=lambda: self.state,
            context=lambda: context,
            now_ms=lambda: self.now,
            wall_ms=self.wall_ms,
            environment={"PATH": "/usr/bin:/bin"},
        )
        deliveries = Deliveries(core, Deliverer(LocalHost(), core.environment, place), on_result=self.note)
        kinds = {"notification": deliveries}
        if before is None:
            self.outbox = Outbox(context, kinds=kinds)
        else:
            self.outbox = before.outbox.successor(kinds=kinds)
        self.observer = NotificationObserver(
            core,
            self.outbox.jobs,
            deliveries,
            recovered=dict(self.settings),
            record=self.record,
            **options,
        )

    def wall_ms(self) -> int:
        return 1_772_366_400_000 + self.now

    def record(self, name: str, value: str | None) -> None:
        self.settings.pop(name, None)
        if value is not None:
            self.settings[name] = value

    def note(self, *result: Any) -> None:
        self.results.append(result)
        self.tried.set()
        self.tried = anyio.Event()

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        before = self.state
        commands = super()._step(fact)
        self.outbox.state = self.state
        self.observer(before, fact, self.state, commands)
        return commands

    def asks(self, *names: str) -> "Daemon":
        for name in names:
            self.ends(name, OutcomeKind.INPUT_REQUIRED, QUESTION, question=f"Which of {name}?")
        return self

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[None]:
        async with self.outbox.at_work(), anyio.create_task_group() as tasks:
            tasks.start_soon(self.observer.run)
            yield
            tasks.cancel_scope.cancel()

    async def until(self, *result: Any) -> None:
        """Wait until a delivery had this result."""
        with anyio.fail_after(60):
            while result not in self.results:
                await self.tried.wait()


def webhook(receiver: Receiver, **values: Any) -> dict[str, Any]:
    return {
        "name": "hook",
        "kind": "webhook",
        "url": receiver.url,
        "gather_ms": 50,
        "timeout_ms": 60_000,
        **values,
    }


async def test_a_burst_is_one_delivery_and_what_fails_is_tried_until_it_is_taken(tmp_path: Path) -> None:
    with receiving((302, {"location": "http://127.0.0.1:1/"})) as receiver:
        issues = [make_issue(str(n)) for n in range(3)]
        daemon = Daemon(tmp_path, *issues, targets=[webhook(receiver)])
        daemon.begin()
        async with daemon.delivering():
            daemon.asks("0", "1", "2")
            assert len(daemon.outbox.journal) == 3
            await daemon.until("webhook", "delivered", 3)
            assert daemon.results == [("webhook", "failed", 3), ("webhook", "delivered", 3)]
            await anyio.wait_all_tasks_blocked()
    first, last = receiver.bodies
    assert first["text"] == "3 issues wait for you"
    assert last["id"] == first["id"]
    assert [each["message"] for each in last["notifications"]] == [f"Which of {n}?" for n in range(3)]
    assert daemon.outbox.journal == {}
    (target,) = daemon.observer.targets()
    assert (target.failure, target.pending, bool(target.delivered_at)) == (None, 0, True)


async def test_a_target_that_hangs_delays_no_other_and_is_reported(tmp_path: Path) -> None:
    with receiving(HANG) as stuck, receiving() as good:
        targets = [
            webhook(stuck, name="stuck", gather_ms=0),
            webhook(good, on=["blocked", "question"]),
        ]
        daemon = Daemon(tmp_path, make_issue("1"), targets=targets).begin()
        async with daemon.delivering():
            daemon.asks("1")
            await daemon.until("webhook", "delivered", 1)
            stuck.release.set()
            await daemon.until("webhook", "failed", 1)
            document = next(each for each in daemon.observer.targets() if each.name == "stuck")
            assert document.pending == 1
            assert document.failure is not None
            assert "did not answer" in document.failure


async def test_the_next_daemon_delivers_what_is_still_true(tmp_path: Path) -> None:
    with receiving() as receiver:
        issues, targets = (make_issue("1"), make_issue("2")), [webhook(receiver)]
        before = Daemon(tmp_path, *issues, targets=targets).begin().asks("1", "2")
        before.settings["notify.reminded.broken"] = "{"
        daemon = Daemon(tmp_path, *issues, targets=targets, before=before).begin()
        daemon.asks("1")
        async with daemon.delivering():
            await daemon.until("webhook", "delivered", 1)
            await anyio.wait_all_tasks_blocked()
    (body,) = receiver.bodies
    assert [each["message"] for each in body["notifications"]] == ["Which of 1?"]
    assert (daemon.outbox.journal, daemon.settings) == ({}, {})


async def test_nothing_is_sent_in_quiet_hours_and_the_end_does_not_wait_for_them(tmp_path: Path) -> None:
    with receiving() as receiver:
        targets = [webhook(receiver, gather_ms=0, quiet_hours="00:00-23:59")]
        daemon = Daemon(tmp_path, make_issue("1"), targets=targets).begin()
        daemon.asks("1")
        await daemon.outbox.once()
    assert receiver.requests == []
    (job,) = daemon.outbox.journal.values()
    assert job.attempts == 0


async def test_a_base_on_which_checks_fail_is_told_once_also_after_a_restart(tmp_path: Path) -> None:
    red = CheckRun(name="old", exit_code=1, fails_on_base=True)
    with receiving() as receiver:
        targets = [webhook(receiver, on=["base_broken"])]
        issues = [make_issue(str(number)) for number in range(4)]
        daemon = Daemon(tmp_path, *issues, targets=targets).begin()

        def verified(daemon: Daemon, issue_id: str, *checks: CheckRun, base: str | None) -> None:
            made = Verification(head="abc", checks=checks, base=base)
            outcome = Outcome(kind=OutcomeKind.SUCCEEDED, verification=made)
            daemon.tell(RunEnded(run_id=daemon.run_id(issue_id), outcome=outcome))

        verified(daemon, "0", replace(red, fails_on_base=False), base="1" * 40)
        assert len(daemon.outbox.journal) == 0
        verified(daemon, "1", red, CheckRun(name="new", exit_code=1), base="1" * 40)
        verified(daemon, "2", red, base="1" * 40)
        assert len(daemon.outbox.journal) == 1
        successor = Daemon(tmp_path, *issues, targets=targets, before=daemon).begin()
        verified(successor, "3", red, base="1" * 40)
        async with successor.delivering():
            await successor.until("webhook", "delivered", 1)
    (told,) = receiver.bodies[0]["notifications"]
    assert (told["event"], "1" * 12 in told["message"], "old" in told["message"]) == (
        "base_broken",
        True,
        True,
    )


async def test_a_question_without_an_answer_is_told_again_and_not_again_after_a_restart(
    tmp_path: Path,
) -> None:
    with receiving() as receiver:
        targets = [webhook(receiver, gather_ms=0, remind_after_ms=20)]
        daemon = Daemon(tmp_path, make_issue("1"), targets=targets).begin()
        async with daemon.delivering():
            daemon.asks("1")
            await daemon.until("webhook", "delivered", 1)
            daemon.results.clear()
            daemon.advance(25)
            await daemon.until("webhook", "delivered", 1)
    assert [body["notifications"][0]["reminder"] for body in receiver.bodies] == [False, True]
    (kept,) = daemon.settings.values()
    assert json.loads(kept)["at_wall_ms"] == 1_772_366_400_025


async def test_at_the_end_what_waits_is_delivered_at_once(tmp_path: Path) -> None:
    with receiving() as receiver:
        targets = [webhook(receiver, gather_ms=3_600_000)]
        daemon = Daemon(tmp_path, make_issue("1"), targets=targets).begin()
        async with daemon.delivering():
            daemon.asks("1")
            await anyio.wait_all_tasks_blocked()
            await daemon.outbox.jobs.finish()
    assert len(receiver.bodies) == 1


async def test_a_target_that_never_answers_costs_bounded_memory_and_its_loss_is_told(tmp_path: Path) -> None:
    with receiving() as receiver:
        issues = [make_issue(str(n)) for n in range(8)]
        daemon = Daemon(tmp_path, *issues, targets=[webhook(receiver)], max_pending=3)
        daemon.begin().asks(*(issue.id for issue in issues))
        assert len(daemon.outbox.journal) == 3
        async with daemon.delivering():
            await daemon.until("webhook", "delivered", 3)
    assert receiver.bodies[0]["dropped"] == 5
    assert daemon.outbox.journal == {}


async def test_a_command_gets_the_document_and_no_secret_and_is_ended_when_it_hangs(tmp_path: Path) -> None:
    note = tmp_path / "note"
    program = tmp_path / "tell"
    program.write_text(f"#!/bin/sh\ncat >{word(note)}\nenv >>{word(note)}\n[ $1 = ok ] || exec sleep 60\n")
    program.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "HOOK_TOKEN": "tok-very-secret", "LC_MINE": "kept"}
    deliverer = Deliverer(LocalHost(), environment, tmp_path)
    redaction = make_context(tmp_path, FakeTracker()).redaction

    async def deliver(word: str) -> None:
        timeout_ms = 30_000 if word == "ok" else 300
        values = {"name": "x", "kind": "command", "command": [str(program), word], "timeout_ms": timeout_ms}
        settings = NotifySettings.model_validate(values)
        await deliverer.deliver(
            await to_thread.run_sync(resolve_target, settings, environment),
            [],
            dropped=0,
            now_ms=0,
            secret_names=frozenset({"HOOK_TOKEN"}),
            redaction=redaction,
        )

    await deliver("ok")
    text = await to_thread.run_sync(note.read_text)
    assert json.loads(text[: text.index("}") + 1])["target"] == "x"
    assert "tok-very-secret" not in text
    with pytest.raises(DeliveryError, match="did not end"):
        await deliver("hang")


async def test_the_wait_that_a_target_asks_for_is_respected_and_bounded(tmp_path: Path) -> None:
    found = []
    answers: tuple[tuple[int, dict[str, str]], ...] = (
        (429, {"retry-after": "7"}),
        (503, {"retry-after": "999999"}),
        (400, {}),
    )
    with receiving(*answers) as receiver, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        for url in (receiver.url, receiver.url, receiver.url, closed):
            values = {"name": "x", "kind": "slack", "url": url, "timeout_ms": 60_000}
            with pytest.raises(DeliveryError) as raised:
                await Deliverer(LocalHost(), {}, tmp_path).deliver(
                    resolve_target(NotifySettings.model_validate(values), {}),
                    [],
                    dropped=0,
                    now_ms=0,
                    secret_names=frozenset(),
                    redaction=make_context(tmp_path, FakeTracker()).redaction,
                )
            found.append((raised.value.failure.retry_after_ms or 0) / 1000)
            assert "K7aPzQ91xWv3" not in str(raised.value)
    assert found == [7.0, 3_600.0, 0.0, 0.0]
