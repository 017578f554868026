"""`POST /webhooks/<tracker>`: whom it lets in, how much it reads, what it answers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest

from harness.asking import BEARER, CONTROL, LOOPBACK, REMOTE, FakeOperator, make_app
from symphony.api.access import Access
from symphony.api.http import MAX_WEBHOOK_BYTES
from symphony.api.interface import WebhookAnswer, WebhookDeniedError

pytestmark = pytest.mark.asyncio

PROXIED = {"host": "hooks.example.test", "x-proof": "yes"}


class FakeReceiver:
    """Takes what carries `x-proof`; `taken` holds the bodies."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.is_open = is_open
        self.taken: list[bytes] = []

    @property
    def enabled(self) -> bool:
        return self.is_open

    def check_headers(self, tracker: str, headers: Mapping[str, str]) -> WebhookAnswer | None:
        if not self.is_open or tracker != "github":
            raise WebhookDeniedError(404, "not_found", "there is no such route")
        if word := headers.get("x-hook-secret"):
            return WebhookAnswer(status="handshake", code=200, headers={"x-hook-secret": word})
        if "x-proof" not in headers:
            raise WebhookDeniedError(401, "webhook_unsigned", "the delivery carries no signature")
        return None

    def receive(self, tracker: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        assert (tracker, headers["x-proof"]) == ("github", "yes")
        self.taken.append(body)
        return WebhookAnswer(status="accepted")


@asynccontextmanager
async def sending(
    receiver: FakeReceiver | None, access: Access = LOOPBACK
) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_app(FakeOperator(), access, receiver))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.mark.parametrize("access", [LOOPBACK, REMOTE, CONTROL], ids=["loopback", "public", "control"])
async def test_a_delivery_needs_no_token_and_no_host_of_ours(access: Access) -> None:
    receiver = FakeReceiver()
    async with sending(receiver, access) as client:
        answered = await client.post("/webhooks/github", content=b'{"a": 1}', headers=PROXIED)
    assert (answered.status_code, answered.json()) == (202, {"status": "accepted"})
    assert receiver.taken == [b'{"a": 1}'], "the bytes that were signed"


async def test_what_has_no_proof_is_refused_before_it_is_read() -> None:
    receiver = FakeReceiver()
    async with sending(receiver) as client:
        answered = await client.post("/webhooks/github", content=b"x" * (MAX_WEBHOOK_BYTES + 1))
    assert (answered.status_code, answered.json()["error"]["code"]) == (401, "webhook_unsigned")
    assert receiver.taken == []


async def test_a_delivery_that_is_too_large_is_given_up() -> None:
    receiver = FakeReceiver()
    async with sending(receiver) as client:
        large = await client.post("/webhooks/github", content=b"x" * (MAX_WEBHOOK_BYTES + 1), headers=PROXIED)
        whole = await client.post("/webhooks/github", content=b"x" * MAX_WEBHOOK_BYTES, headers=PROXIED)
    assert (large.status_code, whole.status_code) == (413, 202)
    assert [len(body) for body in receiver.taken] == [MAX_WEBHOOK_BYTES]


async def test_a_handshake_is_answered_with_its_header() -> None:
    async with sending(FakeReceiver()) as client:
        answered = await client.post("/webhooks/github", headers={"x-hook-secret": "abcdefgh"})
    assert (answered.status_code, answered.headers["x-hook-secret"]) == (200, "abcdefgh")


@pytest.mark.parametrize("access", [LOOPBACK, REMOTE], ids=["loopback", "public"])
@pytest.mark.parametrize("receiver", [None, FakeReceiver(is_open=False)], ids=["none", "off"])
async def test_off_changes_nothing_about_who_may_ask(access: Access, receiver: FakeReceiver | None) -> None:
    async with sending(receiver, access) as client:
        answered = await client.post("/webhooks/github", content=b"{}", headers=PROXIED)
        near = await client.post("/webhooks/github", content=b"{}")
    assert answered.status_code in {401, 403}
    assert near.status_code in {401, 404}


async def test_only_that_route_is_open() -> None:
    async with sending(FakeReceiver(), REMOTE) as client:
        statuses = [
            (await client.get("/webhooks/github", headers=PROXIED)).status_code,
            (await client.post("/api/v1/refresh", headers=PROXIED)).status_code,
            (await client.post("/webhooks%2Fgithub", headers=PROXIED)).status_code,
            (await client.post("/webhooks/linear", headers=PROXIED)).status_code,
            (await client.post("/webhooks/", headers=PROXIED)).status_code,
            (await client.post("/webhooks/../api/v1/refresh", headers=PROXIED)).status_code,
        ]
    assert statuses == [401, 401, 401, 404, 404, 401]


async def test_other_methods_are_not_known() -> None:
    async with sending(FakeReceiver()) as client:
        answered = await client.get("/webhooks/github", headers=BEARER)
    assert answered.status_code == 405
