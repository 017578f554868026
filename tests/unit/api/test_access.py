from collections.abc import Mapping

import httpx
import pytest

from harness.asking import FakeOperator, asking
from symphony.api.access import CONTROL, Access, is_loopback

TOKEN = "a-token-of-the-operator"
LOOPBACK = Access.tcp("127.0.0.1", TOKEN)
REMOTE = Access.tcp("0.0.0.0", TOKEN)  # noqa: S104 - an address as data


async def ask(
    access: Access,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    path: str = "/api/v1/state",
    host: str = "localhost:8787",
) -> httpx.Response:
    async with asking(FakeOperator(), access, host=host) as client:
        return await client.request(method, path, headers=dict(headers or {}))


async def write(access: Access, headers: Mapping[str, str], *, host: str = "localhost:8787") -> int:
    response = await ask(access, headers, method="POST", path="/api/v1/refresh", host=host)
    return response.status_code


pytestmark = pytest.mark.asyncio


# --- other sites ---


@pytest.mark.conformance("H-4")
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"origin": "http://localhost"},
        {"origin": "http://127.0.0.1:8787"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": "http://localhost:8787"},
        {"sec-fetch-site": "odd"},
    ],
)
async def test_a_page_of_another_origin_may_not_write(headers: Mapping[str, str]) -> None:
    assert await write(LOOPBACK, headers) == 403
    assert await write(CONTROL, headers) == 403


@pytest.mark.conformance("H-4")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost:8787"},
        {"origin": "http://localhost:8787", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"content-type": "application/json; charset=utf-8"},
    ],
)
async def test_a_page_of_ours_and_a_program_may(headers: Mapping[str, str]) -> None:
    assert await write(LOOPBACK, headers) == 202


@pytest.mark.conformance("H-4")
@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""]
)
async def test_what_a_form_can_send_is_refused(kind: str) -> None:
    assert await write(LOOPBACK, {"content-type": kind}) == 415


# --- DNS rebinding ---


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8787", "127.0.0.1:1", "LOCALHOST:8787", "[::1]:8787", "[::1]"]
)
async def test_the_names_of_the_loopback_interface_are_ours(host: str) -> None:
    assert (await ask(LOOPBACK, {"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8787",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "",
        "::1",
        "[",
    ],
)
async def test_another_name_that_leads_here_is_refused_for_reading_too(host: str) -> None:
    response = await ask(LOOPBACK, {"host": host})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden_host")


async def test_the_name_that_the_daemon_is_bound_to_is_ours() -> None:
    assert (await ask(Access.tcp("127.0.0.2", TOKEN), {"host": "127.0.0.2:80"})).status_code == 200


async def test_on_the_control_socket_the_name_does_not_matter() -> None:
    assert (await ask(CONTROL, {"host": "symphony"})).status_code == 200


# --- off this machine ---


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/api/v1/state", "/api/v1/SYM-1", "/api/v1/refresh", "/nowhere", "/"])
async def test_off_the_machine_everything_needs_the_token(method: str, path: str) -> None:
    response = await ask(REMOTE, method=method, path=path)
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN not in response.text


@pytest.mark.parametrize(
    "given",
    [
        "",
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer é",
    ],
)
async def test_a_wrong_token_is_no_token(given: str) -> None:
    async with asking(FakeOperator(), REMOTE) as client:
        response = await client.get("/api/v1/state", headers=[(b"authorization", given.encode())])
    assert response.status_code == 401


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer  {TOKEN} "])
async def test_with_the_token_the_name_does_not_matter(given: str) -> None:
    headers = {"authorization": given, "host": "build.example:8787"}
    assert (await ask(REMOTE, headers)).status_code == 200
    assert await write(REMOTE, headers) == 202


async def test_the_token_does_not_excuse_another_origin() -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "origin": "https://evil.example"}
    assert await write(REMOTE, headers) == 403


async def test_health_needs_no_token_and_tells_nothing() -> None:
    response = await ask(REMOTE, path="/healthz", host="evil.example")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("LocalHost", True),
        ("0.0.0.0", False),  # noqa: S104 - an address as data
        ("::", False),
        ("192.168.0.1", False),
        ("build.example", False),
        ("localhost.example", False),
        ("", False),
    ],
)
async def test_what_counts_as_this_machine(host: str, here: bool) -> None:  # noqa: FBT001 - a case
    assert is_loopback(host) is here
