"""Deliveries of trackers and forges: taken once, gathered, and no more than a wake."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from structlog.testing import capture_logs

from harness.binding import Mailbox, StoryCore
from symphony.api.interface import WebhookAnswer, WebhookDeniedError
from symphony.config import AGENT_SECTIONS, WorkflowFile, parse_workflow
from symphony.daemon import webhooks as module
from symphony.daemon.context import RuntimeContext
from symphony.daemon.webhooks import Webhooks
from symphony.scheduler import WakeAsked

pytestmark = pytest.mark.asyncio

SECRET, FORGE_SECRET = "correct-horse-battery", "staple-correct-horse"
NOW_MS = 1_795_800_000_000


REFERENCE = "$HOOK_SECRET"


def _context(kind: str = "github", secret: str | None = REFERENCE, forge: str = "") -> RuntimeContext:
    more = f"forge:\n  kind: {forge}\n  webhook_secret: $FORGE_SECRET\n" if forge else ""
    text = f"---\ntracker:\n  kind: {kind}\n  webhook_secret: {secret or 'null'}\n{more}---\nDo it.\n"
    file = WorkflowFile(path=Path("/w/WORKFLOW.md"), data=text.encode())
    workflow = parse_workflow(file, environment={}, tracker_kinds=(kind,), agent_kinds=AGENT_SECTIONS)

    class Served:
        settings = workflow.settings

    return cast("RuntimeContext", Served())


class Naps:
    """Sleeps that end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._wakes: list[anyio.Event] = []
        self._new = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        wake = anyio.Event()
        self._wakes.append(wake)
        self._new.set()
        await wake.wait()

    async def end_next(self) -> float:
        while not self._wakes:
            await self._new.wait()
            self._new = anyio.Event()
        self._wakes.pop(0).set()
        await anyio.wait_all_tasks_blocked()
        return self.asked[-1]


class Desk:
    def __init__(self, context: RuntimeContext | None = None) -> None:
        self.mailbox = Mailbox()
        self.naps = Naps()
        self.now_ms = NOW_MS
        self.looks = list[int]()
        self.hooks = Webhooks(
            StoryCore(
                post=self.mailbox.post,
                wall_ms=lambda: self.now_ms,
                environment={"HOOK_SECRET": SECRET, "FORGE_SECRET": FORGE_SECRET},
            ),
            lambda: self.looks.append(self.now_ms),
            sleep=self.naps.sleep,
        )
        self.hooks.reconfigure(context or _context())
        self._count = 0

    def send(self, content: Any = None, *, event: str = "issues", delivery: str = "") -> WebhookAnswer:
        self._count += 1
        body = json.dumps({"n": self._count} if content is None else content).encode()
        mac = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "x-hub-signature-256": f"sha256={mac}",
            "x-github-event": event,
            "x-github-delivery": delivery or f"d-{self._count}",
        }
        assert self.hooks.check_headers("github", headers) is None
        return self.hooks.receive("github", headers, body)

    def comment(self, comment_id: int, body: str = "Please.") -> WebhookAnswer:
        return self.send({"comment": {"id": comment_id, "body": body}}, event="issue_comment")

    def wakes(self) -> int:
        assert {type(fact) for fact in self.mailbox.facts} <= {WakeAsked}, "a delivery is a wake and no more"
        return len(self.mailbox.facts)


@asynccontextmanager
async def at_work(desk: Desk) -> AsyncIterator[Desk]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.hooks.run)
        yield desk
        tasks.cancel_scope.cancel()


async def test_a_delivery_wakes_the_poller_after_a_moment() -> None:
    async with at_work(Desk()) as desk:
        assert desk.send() == WebhookAnswer(status="accepted")
        assert desk.wakes() == 0
        await desk.naps.end_next()
        assert [fact.reason for fact in desk.mailbox.facts] == ["webhook"]  # type: ignore[union-attr]


async def test_a_storm_is_one_wake_and_then_another_one_after_a_pause() -> None:
    async with at_work(Desk()) as desk:
        for _ in range(module.MAX_WAITING + 100):
            assert desk.send().status == "accepted"
        await desk.naps.end_next()
        assert desk.wakes() == 1
        for _ in range(100):
            desk.send()
        await anyio.wait_all_tasks_blocked()
        assert desk.wakes() == 1
        assert desk.naps.asked[-1] == module.PAUSE_S
        await desk.naps.end_next()
        await desk.naps.end_next()
        assert desk.wakes() == 2


async def test_the_same_delivery_counts_once_by_its_id_and_by_its_body() -> None:
    desk = Desk()
    assert desk.send({"n": "a"}, delivery="d-a").status == "accepted"
    assert desk.send({"n": "a"}, delivery="d-b").status == "duplicate"
    assert desk.send({"n": "c"}, delivery="d-a").status == "duplicate"


async def test_what_was_seen_is_bounded() -> None:
    desk = Desk()
    assert [desk.send({"n": n}).status for n in (1, 1)] == ["accepted", "duplicate"]
    for number in range(2, module.MAX_SEEN + 2):
        assert desk.send({"n": number}).status == "accepted"
    assert desk.send({"n": module.MAX_SEEN + 1}).status == "duplicate"
    assert desk.send({"n": 1}).status == "accepted"


async def test_a_ping_is_ignored() -> None:
    assert Desk().send(event="ping").status == "ignored"


async def test_our_own_comments_wake_nothing_by_their_id() -> None:
    desk = Desk()
    desk.hooks.ignore_comment("7/77")
    assert desk.comment(77).status == "ignored"
    assert desk.comment(78).status == "accepted"


async def test_a_comment_that_becomes_known_as_ours_in_the_meantime_wakes_nothing() -> None:
    """The tracker may tell of a comment before it has answered the daemon that wrote it."""
    async with at_work(Desk()) as desk:
        assert desk.comment(77).status == "accepted"
        desk.hooks.ignore_comment("77")
        await desk.naps.end_next()
        assert desk.wakes() == 0


async def test_how_many_own_comments_are_known_is_bounded() -> None:
    desk = Desk()
    for number in range(module.MAX_OWN + 1):
        desk.hooks.ignore_comment(str(number))
    assert desk.comment(0).status == "accepted"
    assert desk.comment(1).status == "ignored"


# --- the forge ---

SIGNED_AS = {"github": "x-hub-signature-256", "gitlab": "x-gitlab-token", "forgejo": "x-forgejo-signature"}


def _from_forge(desk: Desk, kind: str, content: Any, *, secret: str = FORGE_SECRET) -> WebhookAnswer:
    body = json.dumps(content).encode()
    proof = secret if kind == "gitlab" else hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {SIGNED_AS[kind]: proof, "x-github-event": "check_run"}
    assert desk.hooks.check_headers("forge", headers) is None
    return desk.hooks.receive("forge", headers, body)


@pytest.mark.parametrize("kind", SIGNED_AS)
async def test_a_storm_of_the_forge_is_one_look_at_pull_requests_and_no_poll(kind: str) -> None:
    async with at_work(Desk(_context("linear", forge=kind))) as desk:
        for number in range(module.MAX_WAITING + 10):
            assert _from_forge(desk, kind, {"n": number}).status == "accepted"
        assert _from_forge(desk, kind, {"n": 0}).status == "duplicate"
        await desk.naps.end_next()
        assert (desk.wakes(), len(desk.looks)) == (0, 1)
        assert desk.naps.asked[-1] == module.PAUSE_S


async def test_the_forge_and_the_tracker_hold_each_other_up_in_nothing() -> None:
    async with at_work(Desk(_context(forge="github"))) as desk:
        assert _from_forge(desk, "github", {"n": 1}).status == "accepted"
        assert desk.send({"n": 1}).status == "accepted", "the same body, of another sender"
        await desk.naps.end_next()
        await desk.naps.end_next()
        assert (desk.wakes(), len(desk.looks)) == (1, 1)


async def test_the_forge_has_a_secret_of_its_own() -> None:
    desk = Desk(_context(secret=None, forge="github"))
    assert desk.hooks.enabled
    assert _denied(desk).status == 404
    with pytest.raises(WebhookDeniedError) as denied:
        _from_forge(desk, "github", {"n": 1}, secret=SECRET)
    assert denied.value.code == "webhook_signature"
    assert _denied(Desk(), "forge").status == 404


# --- refused ---


def _denied(desk: Desk, tracker: str = "github", headers: dict[str, str] | None = None) -> WebhookDeniedError:
    try:
        if desk.hooks.check_headers(tracker, headers or {}) is None:
            desk.hooks.receive(tracker, headers or {}, b"{}")
    except WebhookDeniedError as error:
        return error
    raise AssertionError("it was taken")


async def test_off_is_as_if_there_were_nothing() -> None:
    for desk in (Desk(_context(secret=None)), Desk(_context("redmine")), Desk(_context(secret="$UNSET"))):
        assert not desk.hooks.enabled
        assert _denied(desk).status == 404
    starting = Webhooks(StoryCore(environment={"HOOK_SECRET": SECRET}), lambda: None)
    assert not starting.enabled
    assert Desk().hooks.enabled


async def test_another_tracker_is_not_served() -> None:
    assert _denied(Desk(), "linear").status == 404


async def test_what_is_refused_is_told_without_the_secret_and_not_again_at_once() -> None:
    desk = Desk()
    forged = {"x-hub-signature-256": "sha256=" + "0" * 64}
    with capture_logs() as lines:
        for _ in range(3):
            assert (_denied(desk, headers=forged).status, _denied(desk).status) == (401, 401)
    assert [line["code"] for line in lines] == ["webhook_signature", "webhook_unsigned"]
    assert SECRET not in str(lines)
    desk.now_ms += 60_000
    with capture_logs() as later:
        _denied(desk)
    assert [line["event"] for line in later] == ["webhook_refused"]


async def test_the_secret_may_change_while_it_runs() -> None:
    desk = Desk()
    desk.hooks.reconfigure(_context(secret="another-one"))
    with pytest.raises(WebhookDeniedError):
        desk.send()


# --- the handshake of Asana ---


async def test_a_handshake_is_answered_and_not_believed() -> None:
    desk = Desk(_context("asana"))
    word = "b537207f20cbfa02357cf448134da559"
    with capture_logs() as lines:
        answered = desk.hooks.check_headers("asana", {"x-hook-secret": word})
    assert answered == WebhookAnswer(status="handshake", code=200, headers={"x-hook-secret": word})
    assert word not in str(lines)
    body = b'{"events": [{"resource": {"gid": "7", "resource_type": "task"}}]}'
    mac = hmac.new(word.encode(), body, hashlib.sha256).hexdigest()
    with pytest.raises(WebhookDeniedError):
        desk.hooks.receive("asana", {"x-hook-signature": mac}, body)


@pytest.mark.parametrize("word", ["short", "a b c d e f g h", "x" * 300, "line\r\nset-cookie: a=b"])
async def test_only_a_plain_word_is_given_back(word: str) -> None:
    assert _denied(Desk(_context("asana")), "asana", {"x-hook-secret": word}).status == 400


async def test_only_asana_shakes_hands() -> None:
    assert _denied(Desk(), headers={"x-hook-secret": "b537207f20cbfa02357cf448134da559"}).status == 401
