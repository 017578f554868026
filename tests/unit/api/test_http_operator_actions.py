"""The orders of an operator over HTTP: who may give them, what they may hold, how they are refused."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from harness.asking import (
    BEARER,
    CONTROL,
    LOOPBACK,
    REMOTE,
    SIGN_IN,
    TOKEN,
    FakeOperator,
    asking,
    signed_in,
)
from harness.chronicle import conforms
from harness.journalling import job
from harness.scheduling import make_failure
from symphony.api.access import Access
from symphony.api.http import MAX_ANSWER_BYTES
from symphony.api.interface import MAX_ANSWER_CHARS, ConflictError, UnavailableError
from symphony.api.models import Stars
from symphony.api.routes import ON_DAEMON, ON_ISSUE, ON_OUTBOX
from symphony.domain import SymphonyError
from symphony.journal.jobs import JobState

PATHS = [
    *(f"/api/v1/SYM-1/{verb}" for verb in ON_ISSUE),
    *(f"/api/v1/control/{verb}" for verb in ON_DAEMON),
]
BODIES = {"answer": {"text": "Blue"}, "comment": {"text": "Red"}, "move": {"state": "Done"}}

pytestmark = pytest.mark.asyncio


@pytest.fixture
def operator() -> FakeOperator:
    return FakeOperator()


@pytest_asyncio.fixture
async def client(operator: FakeOperator) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(operator) as client:
        yield client


def body_of(path: str) -> dict[str, str] | None:
    return BODIES.get(path.rpartition("/")[2])


async def order(access: Access, path: str, headers: dict[str, str]) -> tuple[int, list[object]]:
    operator = FakeOperator()
    async with asking(operator, access) as client:
        response = await client.post(path, json=body_of(path) or {}, headers=headers)
    return response.status_code, list(operator.orders)


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    conforms(response.json(), "Error")


# --- what there is ---


@pytest.mark.parametrize("path", PATHS)
async def test_an_order_is_taken_and_says_what_happens_now(
    client: httpx.AsyncClient, operator: FakeOperator, path: str
) -> None:
    response = await client.post(path, json=body_of(path))
    assert response.status_code == 202
    conforms(response.json(), "Verb")
    verb = path.rpartition("/")[2]
    identifier = "SYM-1" if verb in ON_ISSUE else None
    text = {"answer": "Blue", "comment": "Red", "move": "Done"}.get(verb)
    assert operator.orders == [(verb, identifier, text)]
    assert response.json() == {
        "verb": verb,
        "issue_identifier": identifier,
        "changed": True,
        "message": "so it will be",
        "requested_at": "2026-03-01T12:30:00Z",
        "before": None,
    }


async def test_an_identifier_is_decoded_once(client: httpx.AsyncClient, operator: FakeOperator) -> None:
    assert (await client.post("/api/v1/a%2Fb%20%C3%BC/stop")).status_code == 202
    assert operator.orders == [("stop", "a/b ü", None)]


@pytest.mark.parametrize("verb", ON_ISSUE)
async def test_an_issue_that_is_not_known(client: httpx.AsyncClient, verb: str) -> None:
    path = f"/api/v1/SYM-9/{verb}"
    refused(await client.post(path, json=body_of(path)), 404, "issue_not_found")
    path = f"/api/v1/control/{verb}"
    refused(await client.post(path, json=body_of(path)), 404, "issue_not_found")


@pytest.mark.parametrize("path", PATHS)
async def test_an_order_that_does_not_fit_tells_what_to_do_instead(
    client: httpx.AsyncClient, operator: FakeOperator, path: str
) -> None:
    operator.unfit = ConflictError("not_now", "it is over", hint="look at the status")
    response = await client.post(path, json=body_of(path))
    refused(response, 409, "not_now")
    assert response.json()["error"]["hint"] == "look at the status"
    operator.unfit = ConflictError("not_now", "it is over")
    assert "hint" not in (await client.post(path, json=body_of(path))).json()["error"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_daemon_that_cannot_take_orders_now(
    client: httpx.AsyncClient, operator: FakeOperator, path: str
) -> None:
    operator.fails = UnavailableError("orchestrator_unavailable", "starting")
    refused(await client.post(path, json=body_of(path)), 503, "orchestrator_unavailable")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
async def test_an_order_is_given_by_post_alone(
    client: httpx.AsyncClient, operator: FakeOperator, path: str, method: str
) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")
    assert operator.orders == []


# --- who may ---


@pytest.mark.parametrize("path", PATHS)
async def test_over_tcp_an_order_takes_the_token_also_on_this_machine(path: str) -> None:
    for access in (LOOPBACK, REMOTE):
        for headers in ({}, {"authorization": f"Bearer {TOKEN}x"}, {"authorization": f"Basic {TOKEN}"}):
            assert await order(access, path, headers) == (401, [])
        status, orders = await order(access, path, BEARER)
        assert (status, len(orders)) == (202, 1)
    assert (await order(CONTROL, path, {}))[0] == 202


@pytest.mark.parametrize("path", PATHS)
async def test_the_token_excuses_neither_another_origin_nor_another_host(path: str) -> None:
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        for access in (LOOPBACK, REMOTE, CONTROL):
            assert await order(access, path, BEARER | headers) == (403, [])
    assert await order(LOOPBACK, path, BEARER | {"host": "evil.example"}) == (403, [])


@pytest.mark.parametrize("path", PATHS)
async def test_what_a_form_can_send_is_no_order(path: str) -> None:
    kind = {"content-type": "text/plain"}
    for access in (LOOPBACK, REMOTE, CONTROL):
        assert await order(access, path, BEARER | kind) == (415, [])


# --- what it may hold ---


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("Blue", "Blue"),
        ("  two\nlines\t ", "  two\nlines\t "),
        ("a\x1b[31mred\x00\u202e", "ared "),
        ("crlf\r\nend", "crlf\nend"),
        ("{{ issue }} ```\n", "{{ issue }} ```\n"),
        ("\U0001f3bc" * MAX_ANSWER_CHARS, "\U0001f3bc" * MAX_ANSWER_CHARS),
    ],
)
async def test_an_answer_is_text_without_what_steers_a_terminal(
    client: httpx.AsyncClient, operator: FakeOperator, given: str, taken: str
) -> None:
    assert (await client.post("/api/v1/SYM-1/answer", json={"text": given})).status_code == 202
    assert operator.orders == [("answer", "SYM-1", taken)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'"Blue"',
        b'{"text": null}',
        b'{"text": ["a"]}',
        b'{"text": 1}',
        b'{"text": "a", "more": 1}',
        b'{"text": "a"',
        b'{"text": "\xff"}',
        b'{"text": "' + b"x" * (MAX_ANSWER_CHARS + 1) + b'"}',
        b"[" * 100_000,
    ],
)
async def test_a_body_that_is_no_answer(
    client: httpx.AsyncClient, operator: FakeOperator, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    refused(await client.post("/api/v1/SYM-1/answer", content=body, headers=headers), 400, "bad_request")
    assert operator.orders == []


async def test_an_answer_that_is_far_too_long_is_not_read(
    client: httpx.AsyncClient, operator: FakeOperator
) -> None:
    body = b" " * (MAX_ANSWER_BYTES + 1)
    headers = {"content-type": "application/json"}
    response = await client.post("/api/v1/SYM-1/answer", content=body, headers=headers)
    refused(response, 413, "payload_too_large")
    assert operator.orders == []


async def test_a_move_names_one_state(client: httpx.AsyncClient, operator: FakeOperator) -> None:
    path = "/api/v1/SYM-1/move"
    for body in ({}, {"state": None}, {"state": "x" * 256}, {"state": "a", "more": 1}):
        refused(await client.post(path, json=body), 400, "bad_request")
    refused(await client.post(path), 400, "bad_request")
    assert operator.orders == []
    assert (await client.post(path, json={"state": " In \x1b[1mReview "})).status_code == 202
    assert operator.orders == [("move", "SYM-1", "In Review")]
    operator.fails = SymphonyError(make_failure("no such state", hint="states: Todo, Done"))
    response = await client.post(path, json={"state": "Dnoe"})
    refused(response, 409, "turn_failed")
    assert response.json()["error"]["hint"] == "states: Todo, Done"


@pytest.mark.parametrize("path", [path for path in PATHS if path.rpartition("/")[2] not in BODIES])
async def test_other_orders_hold_nothing(
    client: httpx.AsyncClient, operator: FakeOperator, path: str
) -> None:
    refused(await client.post(path, json={"text": "Blue"}), 400, "bad_request")
    assert operator.orders == []


# --- feedback ---


async def test_who_has_write_access_teaches_and_others_only_say_it() -> None:
    public = Access.tcp("127.0.0.1", TOKEN, SIGN_IN, public_reads=True)
    cookie = signed_in(SIGN_IN)
    csrf = SIGN_IN.csrf(cookie["cookie"].partition("=")[2])
    path, body = "/api/v1/SYM-1/feedback", {"stars": 2, "comment": "a\x1b[31m b ", "learn": False}
    for access, headers, status, teaches in (
        (CONTROL, {}, 202, True),
        (LOOPBACK, BEARER, 202, True),
        (LOOPBACK, {}, 401, None),
        (LOOPBACK, cookie, 403, None),
        (LOOPBACK, cookie | {"x-csrf-token": csrf}, 202, True),
        (public, {}, 202, False),
        (public, cookie, 202, False),
        (public, {"authorization": "Bearer wrong"}, 202, False),
        (public, {"sec-fetch-site": "cross-site"}, 403, None),
    ):
        operator = FakeOperator()
        async with asking(operator, access, headers=headers) as client:
            response = await client.post(path, json=body)
        given = Stars(stars=2, comment="a b", learn=False)
        expected = [] if teaches is None else [("SYM-1", given, teaches)]
        assert (response.status_code, operator.ratings) == (status, expected), headers
        if status == 202:
            conforms(response.json(), "Feedback")


async def test_a_body_that_is_no_feedback_and_an_issue_that_is_unknown(
    client: httpx.AsyncClient, operator: FakeOperator
) -> None:
    path = "/api/v1/SYM-1/feedback"
    for body in (
        *({"stars": stars} for stars in (0, 6, "5", 1.5, None)),
        {"comment": "no stars"},
        {"stars": 1, "more": 1},
        {"stars": 1, "comment": "x" * (MAX_ANSWER_CHARS + 1)},
    ):
        refused(await client.post(path, json=body), 400, "bad_request")
    refused(await client.post("/api/v1/SYM-9/feedback", json={"stars": 1}), 404, "issue_not_found")
    assert operator.ratings == []


class TestTheOutbox:
    async def test_it_lists_the_jobs(self, client: httpx.AsyncClient, operator: FakeOperator) -> None:
        operator.jobs = (job(1, attempts=2), replace(job(2), state=JobState.GIVEN_UP, failure="no"))
        response = await client.get("/api/v1/control/outbox")
        assert response.status_code == 200
        conforms(response.json(), "Outbox")
        waiting, given_up = response.json()["jobs"]
        assert (waiting["state"], waiting["attempts"], waiting["failure"]) == ("waiting", 2, None)
        assert (given_up["state"], given_up["due_at"], given_up["failure"]) == ("given_up", None, "no")

    @pytest.mark.parametrize("verb", ON_OUTBOX)
    @pytest.mark.parametrize(("key", "status"), [("SYM-1", 200), (job(1).key, 200), ("SYM-9", 404)])
    async def test_one_or_those_of_an_issue_are_chosen(
        self, client: httpx.AsyncClient, operator: FakeOperator, verb: str, key: str, status: int
    ) -> None:
        operator.jobs = (job(1), job(2))
        response = await client.post(f"/api/v1/control/outbox/{verb}", json={"key": key})
        assert response.status_code == status
        assert operator.orders == ([(verb, key, None)] if status == 200 else [])

    @pytest.mark.parametrize("body", [{}, {"key": 1}, {"key": "SYM-1", "more": 1}, []])
    async def test_nothing_is_changed_by_a_body_that_names_nothing(
        self, client: httpx.AsyncClient, operator: FakeOperator, body: object
    ) -> None:
        operator.jobs = (job(1),)
        response = await client.post("/api/v1/control/outbox/drop", json=body)
        assert response.status_code == 400
        assert operator.orders == []

    @pytest.mark.parametrize("verb", ON_OUTBOX)
    async def test_over_tcp_it_takes_the_token(self, verb: str) -> None:
        for access in (LOOPBACK, REMOTE):
            assert await order(access, f"/api/v1/control/outbox/{verb}", {}) == (401, [])
            status, _ = await order(access, f"/api/v1/control/outbox/{verb}", BEARER)
            assert status == 400, "it may, and has to say what it means"
