"""Who may ask for what: by listener, proof, method and origin."""

from collections.abc import Mapping

import httpx
import pytest

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
from symphony.api.access import Access, is_loopback
from symphony.api.sign_in import COOKIE_S, BrowserSignIn

PUBLIC = Access.tcp("127.0.0.1", TOKEN, SIGN_IN, public_reads=True)
PUBLIC_REMOTE = Access.tcp("0.0.0.0", TOKEN, SIGN_IN, public_reads=True)  # noqa: S104 - an address as data
PAGE = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def ask(
    access: Access,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    path: str = "/api/v1/state",
    host: str = "localhost:8787",
) -> httpx.Response:
    async with asking(FakeOperator(), access, host=host, headers=headers) as client:
        return await client.request(method, path)


async def write(access: Access, headers: Mapping[str, str], *, host: str = "localhost:8787") -> int:
    response = await ask(access, headers, method="POST", path="/api/v1/refresh", host=host)
    return response.status_code


pytestmark = pytest.mark.asyncio


# --- who may what ---


@pytest.mark.parametrize("form", [False, True], ids=["json", "form"])
async def test_who_may_read_and_who_may_order(form: bool) -> None:  # noqa: FBT001 - a case
    cookie = signed_in(SIGN_IN)
    csrf = {"x-csrf-token": SIGN_IN.csrf(cookie["cookie"].partition("=")[2])}
    wrong = {"authorization": f"Bearer {TOKEN}x"}
    order = "/actions/pause" if form else "/api/v1/control/pause"
    done, no_csrf = (303, 403) if form else (202, 202)
    body = {"csrf": csrf["x-csrf-token"]}
    # listener, proof, status of reading, of an order, of an order with the CSRF value of the cookie
    table: list[tuple[Access, Mapping[str, str], int, int, int]] = [
        (CONTROL, {}, 200, no_csrf, no_csrf),
        (LOOPBACK, {}, 401, 401, 401),
        (LOOPBACK, wrong, 401, 401, 401),
        (LOOPBACK, BEARER, 200, done, done),
        (LOOPBACK, cookie, 200, 403, done),
        (LOOPBACK, cookie | wrong, 401, 401, 401),
        (REMOTE, {}, 401, 401, 401),
        (REMOTE, BEARER, 200, done, done),
        (REMOTE, cookie, 200, 403, done),
        (PUBLIC, {}, 200, 401, 401),
        (PUBLIC, cookie, 200, 403, done),
        (PUBLIC_REMOTE, {}, 401, 401, 401),
    ]
    for access, proof, read, ordered, with_csrf in table:
        operator = FakeOperator()
        async with asking(operator, access, headers=proof) as client:
            assert (await client.get("/api/v1/state")).status_code == read
            assert (await client.head("/api/v1/events")).status_code == read
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/sign-in")).status_code in {200, 303}
            without = await client.post(order, data={} if form else None)
            assert (without.status_code, len(operator.orders)) == (ordered, ordered in {202, 303})
            operator.orders.clear()
            sent = {"data": body} if form else {"headers": csrf}
            given = await client.post(order, **sent)  # type: ignore[arg-type] # one of the two
            assert (given.status_code, len(operator.orders)) == (with_csrf, with_csrf in {202, 303})


async def test_only_with_public_reads_everybody_here_may_ask_for_a_refresh() -> None:
    assert await write(PUBLIC, {}) == 202
    assert await write(LOOPBACK, {}) == 401
    assert await write(PUBLIC_REMOTE, {}) == 401


async def test_a_browser_gets_a_page_that_says_how_to_sign_in_and_a_program_gets_json() -> None:
    page = await ask(LOOPBACK, PAGE, path='/issues/%3Cb%3E?a="')
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "symphony open" in page.text
    assert "<b>" not in page.text
    assert 'href="/issues/%3Cb%3E"' in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    answer = await ask(LOOPBACK, path="/issues/x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")


# --- cookies ---


async def test_a_cookie_counts_for_its_daemon_until_it_expires_or_somebody_signs_out() -> None:
    now = [1_000_000.0]
    here = BrowserSignIn(now_s=lambda: now[0])
    access = Access.tcp("127.0.0.1", TOKEN, here)
    cookie = signed_in(here)
    assert (await ask(access, cookie)).status_code == 200
    restarted = Access.tcp("127.0.0.1", TOKEN, BrowserSignIn(now_s=lambda: now[0]))
    assert (await ask(restarted, cookie)).status_code == 401
    before = (here.host, here.root)

    async with asking(FakeOperator(), access, headers=cookie) as client:
        csrf = here.csrf(cookie["cookie"].partition("=")[2])
        assert (await client.post("/sign-out", data={"csrf": "x"})).status_code == 403
        out = await client.post("/sign-out", data={"csrf": csrf})
    assert (out.status_code, "Max-Age=0" in out.headers["set-cookie"]) == (200, True)
    assert (await ask(access, cookie)).status_code == 401
    assert (here.host == before[0], here.root == before[1]) == (False, False)

    cookie = signed_in(here)
    now[0] += COOKIE_S - 1
    assert (await ask(access, cookie)).status_code == 200
    now[0] += 1
    assert (await ask(access, cookie)).status_code == 401


async def test_a_cookie_that_was_changed_is_none() -> None:
    name, _, value = signed_in(SIGN_IN)["cookie"].partition("=")
    expiry, nonce, signature = value.split(".")
    for changed in (
        f"{int(expiry) + 1}.{nonce}.{signature}",
        f"{expiry}.{nonce}x.{signature}",
        f"{expiry}.{nonce}.{signature[:-1]}",
        f"{expiry}.{nonce}.",
        f".{SIGN_IN.csrf('')}",
        "é",
        "..",
        "",
        '"' + value,
    ):
        async with asking(FakeOperator(), LOOPBACK, host=f"localhost:8787{SIGN_IN.root}") as client:
            header = (b"cookie", f"{name}={changed}".encode())
            assert (await client.get("/api/v1/state", headers=[header])).status_code == 401, changed
    assert (await ask(LOOPBACK, {"cookie": f"a=b; {name}={value}; c"})).status_code == 200


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
async def test_a_page_of_ours_and_a_program_may(headers: dict[str, str]) -> None:
    assert await write(LOOPBACK, BEARER | headers) == 202


@pytest.mark.conformance("H-4")
@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""]
)
async def test_what_a_form_can_send_is_refused(kind: str) -> None:
    assert await write(LOOPBACK, {"content-type": kind}) == 415


# --- DNS rebinding ---


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8787",
        "127.0.0.1:1",
        "LOCALHOST:8787",
        "[::1]:8787",
        "[::1]",
        f"{SIGN_IN.host}:1",
    ],
)
async def test_the_names_of_the_loopback_interface_are_ours(host: str) -> None:
    assert (await ask(LOOPBACK, BEARER | {"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8787",
        "localhost.evil.example",
        "symphony-0123456789abcdef.localhost",
        "127.0.0.1.evil.example:80",
        "",
        "::1",
        "[",
    ],
)
async def test_another_name_that_leads_here_is_refused_for_reading_too(host: str) -> None:
    response = await ask(LOOPBACK, BEARER | {"host": host})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden_host")
    is_former = "this address has ended" in response.text
    assert is_former == host.startswith("symphony-")


async def test_the_name_that_the_daemon_is_bound_to_is_ours() -> None:
    access = Access.tcp("127.0.0.2", TOKEN, SIGN_IN)
    assert (await ask(access, BEARER | {"host": "127.0.0.2:80"})).status_code == 200


async def test_on_the_control_socket_only_names_that_lead_here_from_the_network_are_refused() -> None:
    for host in ("symphony", "localhost:4400", "127.0.0.1:4400", "x.localhost"):
        assert (await ask(CONTROL, {"host": host})).status_code == 200
    assert (await ask(CONTROL, {"host": "evil.example:4400"})).status_code == 403


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
