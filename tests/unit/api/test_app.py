import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import anyio
import httpx
import pytest
import pytest_asyncio
from starlette.types import Message
from structlog.testing import capture_logs

from harness.asking import FakeOperator, asking, make_app
from harness.chronicle import conforms, sent
from harness.scheduling import make_failure
from kit.virtual_time import in_virtual_time
from symphony.api.explain import explain
from symphony.api.http import MAX_BODY_BYTES, SECURITY_HEADERS
from symphony.api.interface import UnavailableError
from symphony.domain import Category, Selection, SymphonyError

pytestmark = pytest.mark.asyncio


@pytest.fixture
def operator() -> FakeOperator:
    return FakeOperator()


@pytest_asyncio.fixture
async def client(operator: FakeOperator) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(operator) as client:
        yield client


def refused(response: httpx.Response, status: int, code: str) -> str:
    """The message of an error envelope of that status and code."""
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    conforms(response.json(), "Error")
    return str(response.json()["error"]["message"])


# --- what there is ---


@pytest.mark.conformance("H-2")
async def test_the_state(client: httpx.AsyncClient, operator: FakeOperator) -> None:
    response = await client.get("/api/v1/state")
    assert response.status_code == 200
    assert response.json() == operator.story.document()
    conforms(response.json(), "State")


async def test_a_part_of_the_state(client: httpx.AsyncClient, operator: FakeOperator) -> None:
    response = await client.get("/api/v1/state?waiting=1&state=Todo&state=Doing&reason=no_slot&other=x")
    only = Selection(limit=1, states=frozenset({"Todo", "Doing"}), codes=frozenset({"no_slot"}))
    assert response.json() == operator.story.document(only)
    conforms(response.json(), "State")


@pytest.mark.parametrize(
    "query", ["waiting=-1", "waiting=", "waiting=x", "waiting=1e3", "waiting=9999999999", "reason=no"]
)
async def test_a_part_that_makes_no_sense(client: httpx.AsyncClient, query: str) -> None:
    refused(await client.get(f"/api/v1/state?{query}"), 400, "bad_request")


@pytest.mark.conformance("H-2")
@pytest.mark.parametrize("identifier", ["SYM-1", "a/b ü"])
async def test_an_issue_by_its_encoded_identifier(client: httpx.AsyncClient, identifier: str) -> None:
    response = await client.get(f"/api/v1/{quote(identifier, safe='')}")
    assert response.status_code == 200
    conforms(response.json(), "Issue")
    assert response.json()["issue_identifier"] == identifier


async def test_a_prompt(client: httpx.AsyncClient) -> None:
    response = await client.get("/api/v1/a%2Fb%20%C3%BC/prompt")
    assert response.status_code == 200
    conforms(response.json(), "Prompt")
    assert response.json()["issue_identifier"] == "a/b ü"


async def test_a_prompt_that_cannot_be_made_says_what_a_dispatch_would_say(
    client: httpx.AsyncClient, operator: FakeOperator
) -> None:
    failure = make_failure("no such variable", category=Category.TEMPLATE_RENDER_ERROR, hint="see line 3")
    operator.unrenderable = SymphonyError(failure)
    response = await client.get("/api/v1/SYM-1/prompt")
    assert refused(response, 409, "template_render_error") == "no such variable"
    assert response.json()["error"]["hint"] == "see line 3"


@pytest.mark.conformance("H-3")
@pytest.mark.parametrize("body", [b"", b"{}", b" {\n} "])
async def test_a_refresh_is_accepted_and_says_whether_it_shares_a_poll(
    client: httpx.AsyncClient, body: bytes
) -> None:
    kind = {"content-type": "application/json"} if body else {}
    first = await client.post("/api/v1/refresh", content=body, headers=kind)
    assert first.status_code == 202
    conforms(first.json(), "Refresh")
    assert first.json() == {
        "queued": True,
        "coalesced": False,
        "requested_at": "2026-03-01T12:30:00Z",
        "operations": ["poll", "reconcile"],
    }
    assert (await client.post("/api/v1/refresh")).json()["coalesced"] is True


async def test_health_and_description(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/api/v1/openapi.json")).json()["openapi"].startswith("3.1")


# --- what there is not ---


@pytest.mark.conformance("H-3")
@pytest.mark.parametrize(
    "path", ["/index.html", "/api/v1", "/api/v1/", "/api/v1/state/", "/api/v1/SYM-1/other", "/api/v2/state"]
)
async def test_an_unknown_route(client: httpx.AsyncClient, path: str) -> None:
    refused(await client.get(path), 404, "not_found")


@pytest.mark.conformance("H-3")
@pytest.mark.parametrize(
    "name",
    [
        "SYM-9",
        "sym-1",
        "..%2F..%2Fetc%2Fpasswd",
        "%2E%2E",
        "%2e",
        "a%2Fb",
        "%00",
        "%F0%9F%8E%BC",
        "x" * 4_000,
    ],
)
async def test_an_unknown_issue(client: httpx.AsyncClient, name: str) -> None:
    message = refused(await client.get(f"/api/v1/{name}"), 404, "issue_not_found")
    assert name not in message
    refused(await client.get(f"/api/v1/{name}/prompt"), 404, "issue_not_found")


@pytest.mark.parametrize("name", ["%", "%zz", "%2", "a%2", "%ff", "%C3", "%ed%a0%80"])
async def test_a_path_that_is_no_encoding_of_a_text(client: httpx.AsyncClient, name: str) -> None:
    request = client.build_request("GET", "/api/v1/x")
    request.url = httpx.URL("http://localhost:8787").copy_with(raw_path=f"/api/v1/{name}".encode())
    refused(await client.send(request), 400, "bad_request")


async def test_an_identifier_is_decoded_once(client: httpx.AsyncClient, operator: FakeOperator) -> None:
    await client.get("/api/v1/a%252Fb")
    assert operator.asked == ["a%2Fb"]


@pytest.mark.conformance("H-3")
@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/api/v1/state", "GET, HEAD, OPTIONS"),
        ("GET", "/api/v1/refresh", "OPTIONS, POST"),
        ("HEAD", "/api/v1/refresh", "OPTIONS, POST"),
        ("DELETE", "/api/v1/SYM-1", "GET, HEAD, OPTIONS"),
        ("PATCH", "/api/v1/SYM-1/prompt", "GET, HEAD, OPTIONS"),
        ("PUT", "/api/v1/openapi.json", "GET, HEAD, OPTIONS"),
        ("TRACE", "/healthz", "GET, HEAD, OPTIONS"),
        ("BREW", "/api/v1/state", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_wrong_method_of_a_route_that_is_there(
    client: httpx.AsyncClient, method: str, path: str, allow: str
) -> None:
    response = await client.request(method, path)
    assert response.headers["allow"] == allow
    assert response.status_code == 405
    if method != "HEAD":
        refused(response, 405, "method_not_allowed")


@pytest.mark.conformance("H-3")
async def test_a_fixed_route_wins_over_an_issue_of_its_name(
    client: httpx.AsyncClient, operator: FakeOperator
) -> None:
    await client.get("/api/v1/state")
    await client.get("/api/v1/refresh")
    assert operator.asked == []


async def test_options_tells_the_methods_and_allows_no_other_site(client: httpx.AsyncClient) -> None:
    response = await client.options("/api/v1/refresh", headers={"origin": "https://evil.example"})
    assert (response.status_code, response.headers["allow"]) == (204, "OPTIONS, POST")
    assert not [name for name in response.headers if name.startswith("access-control")]


async def test_head_has_the_headers_of_get_and_no_body(client: httpx.AsyncClient) -> None:
    head, get = await client.head("/api/v1/state"), await client.get("/api/v1/state")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


# --- bodies ---


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"null", b"[]", b'{"a": 1}', b'{"a": "\xff"}', b"\xff", b"[" * 60_000, b"0", b'"x"', b"\x00"),
        *(b" ", b"\r", b"\n\n"),
    ],
)
async def test_a_body_that_is_not_empty_and_not_an_empty_object(
    client: httpx.AsyncClient, operator: FakeOperator, body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    refused(await client.post("/api/v1/refresh", content=body, headers=headers), 400, "bad_request")
    assert operator.refreshes == 0


async def test_a_large_body_is_refused_before_it_is_read(
    client: httpx.AsyncClient, operator: FakeOperator
) -> None:
    headers = {"content-type": "application/json"}
    big = b" " * (10 * 1024 * 1024)
    refused(await client.post("/api/v1/refresh", content=big, headers=headers), 413, "payload_too_large")
    assert operator.refreshes == 0


async def test_a_large_body_without_a_length_is_given_up_at_the_limit(client: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 16_384
            yield b" " * 16_384

    response = await client.post(
        "/api/v1/refresh", content=endless(), headers={"content-type": "application/json"}
    )
    refused(response, 413, "payload_too_large")
    assert sent <= MAX_BODY_BYTES + 2 * 16_384


@in_virtual_time
async def test_a_body_that_does_not_arrive_is_given_up(operator: FakeOperator) -> None:
    async def silent() -> AsyncIterator[bytes]:
        yield b" "
        await anyio.sleep_forever()

    headers = {"content-type": "application/json"}
    async with asking(operator) as client:
        response = await client.post("/api/v1/refresh", content=silent(), headers=headers)
    refused(response, 408, "request_timeout")
    assert operator.refreshes == 0


async def test_a_client_that_goes_away_in_mid_body_changes_nothing(operator: FakeOperator) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/refresh",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }
    await make_app(operator)(scope, receive, send)
    assert sent[0]["status"] == 400
    assert operator.refreshes == 0


async def test_what_is_not_http_is_left_alone(operator: FakeOperator) -> None:
    async def receive() -> Message:
        raise AssertionError("nobody asks")

    async def send(_: Message) -> None:
        raise AssertionError("nobody answers")

    await make_app(operator)({"type": "websocket", "path": "/"}, receive, send)


# --- when the daemon cannot ---


@pytest.mark.conformance("H-3", "O-8")
@pytest.mark.parametrize(
    ("code", "method", "path"),
    [
        ("snapshot_unavailable", "GET", "/api/v1/state"),
        ("snapshot_timeout", "GET", "/api/v1/state"),
        ("snapshot_unavailable", "GET", "/api/v1/SYM-1"),
        ("snapshot_unavailable", "GET", "/api/v1/SYM-1/prompt"),
        ("orchestrator_unavailable", "POST", "/api/v1/refresh"),
    ],
)
async def test_a_daemon_that_cannot_answer_now(
    client: httpx.AsyncClient, operator: FakeOperator, code: str, method: str, path: str
) -> None:
    operator.fails = UnavailableError(code, "starting")
    response = await client.request(method, path)
    assert refused(response, 503, code) == "starting"
    assert response.json()["generated_at"].endswith("Z")


async def test_a_bug_of_ours_is_an_envelope_and_a_log_line_and_shows_no_stack(
    client: httpx.AsyncClient, operator: FakeOperator
) -> None:
    operator.fails = RuntimeError("hunter2")
    with capture_logs() as logs:
        response = await client.get("/api/v1/state")
    refused(response, 500, "internal")
    assert "hunter2" not in response.text
    assert [line["event"] for line in logs] == ["request_failed"]


# --- headers ---


@pytest.mark.parametrize("path", ["/api/v1/state", "/nowhere", "/api/v1/%zz", "/healthz"])
async def test_every_answer_has_the_headers_that_keep_browsers_harmless(
    client: httpx.AsyncClient, path: str
) -> None:
    response = await client.get(path)
    assert {name: response.headers[name] for name in SECURITY_HEADERS} == dict(SECURITY_HEADERS)
    assert response.headers["content-type"] == "application/json"


@pytest.mark.conformance("H-4")
async def test_a_hostile_title_is_data_in_json(client: httpx.AsyncClient) -> None:
    response = await client.get("/api/v1/state")
    titles = [row["title"] for row in response.json()["waiting"]]
    assert any("<script>" in title for title in titles)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "\x1b" not in response.text
    assert json.loads(response.text) == response.json()


async def test_an_explanation_is_that_of_the_issue(client: httpx.AsyncClient, operator: FakeOperator) -> None:
    issue = await operator.issue("SYM-4")
    assert issue is not None
    response = await client.get("/api/v1/SYM-4/explanation")
    assert response.json() == sent(explain(issue))
    conforms(response.json(), "Explanation")
    refused(await client.get("/api/v1/SYM-99/explanation"), 404, "issue_not_found")
