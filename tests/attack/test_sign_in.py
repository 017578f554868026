"""Nobody comes in through the browser: not by its links, its cookies, its forms or its streams."""

import re
import socket
from pathlib import Path
from urllib.parse import urljoin

import anyio
import httpx
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.asking import (
    BEARER,
    LOOPBACK,
    SIGN_IN,
    TOKEN,
    FakeOperator,
    asking,
    client_of,
    make_app,
    signed_in,
)
from symphony.api.access import Access
from symphony.api.live import Changes
from symphony.api.sign_in import LINK_S, BrowserKey, BrowserSignIn
from symphony.config import ServerSettings
from symphony.daemon import http_server
from symphony.daemon.http_server import serve_http
from symphony.daemon.state_dir import StateDirectory

pytestmark = pytest.mark.asyncio
PAGE = {"accept": "text/html", "origin": "http://localhost:8787", "sec-fetch-site": "same-origin"}
CHANGES = 400


def csrf_of(headers: dict[str, str]) -> str:
    return SIGN_IN.csrf(headers["cookie"].partition("=")[2])


async def use(access: Access, link: str, **headers: str) -> httpx.Response:
    async with asking(FakeOperator(), access, headers={**PAGE, **headers}) as client:
        return await client.post("/sign-in", data={"link": link})


async def test_a_link_signs_in_once_and_for_a_short_time() -> None:
    up = [0.0]
    sign_in = BrowserSignIn(BrowserKey.new(), save_key=lambda _: None, uptime_s=lambda: up[0])
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    link, late = sign_in.new_link(), sign_in.new_link()
    async with asking(FakeOperator(), access, headers=PAGE) as client:
        shown = await client.get(f"/sign-in?link={link}")  # as a preview does
    assert (shown.status_code, f'value="{link}"' in shown.text) == (200, True)
    assert (await use(access, link, origin="https://evil.example")).status_code == 403
    assert (await use(access, link, host="evil.example")).status_code == 403
    with capture_logs() as logs:
        first = await use(access, link)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        for attribute in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="):
            assert attribute in first.headers["set-cookie"]
        second = await use(access, link)
        up[0] = LINK_S + 1
        third = await use(access, late)
        made_up = await use(access, "x" * 32)
    assert [answer.status_code for answer in (second, third, made_up)] == [403] * 3
    assert not [answer for answer in (second, third, made_up) if "set-cookie" in answer.headers]
    assert ("link_used" in second.text, "link_expired" in third.text) == (True, True)
    assert [(line["event"], line.get("used")) for line in logs] == [
        ("browser_signed_in", None),
        ("browser_refused", True),
        ("browser_refused", False),
        ("browser_refused", False),
    ]
    assert link not in repr(logs)


async def test_a_link_is_given_to_the_owner_and_the_operator_and_to_no_browser() -> None:
    for access, headers, status in (
        (LOOPBACK, {}, 401),
        (LOOPBACK, (cookie := signed_in(SIGN_IN)), 403),
        (LOOPBACK, cookie | {"x-csrf-token": csrf_of(cookie)}, 403),
        (LOOPBACK, BEARER, 200),
        (Access(sign_in=SIGN_IN), {}, 200),
    ):
        async with asking(FakeOperator(), access, headers=headers) as client:
            answer = await client.post("/api/v1/control/open")
        assert (answer.status_code, "link=" in answer.text) == (status, status == 200)


async def test_the_cookie_of_another_daemon_opens_nothing() -> None:
    other = BrowserSignIn(BrowserKey.new(), save_key=lambda _: None)
    foreign = signed_in(other)["cookie"]
    own_name = signed_in(SIGN_IN)["cookie"].partition("=")[0]
    renamed = f"{own_name}={foreign.partition('=')[2]}"
    for cookie in (foreign, renamed, f"{foreign}; {renamed}"):
        async with asking(FakeOperator(), LOOPBACK, headers={"cookie": cookie}) as client:
            assert (await client.get("/api/v1/state")).status_code == 401
    both = f"{foreign}; {signed_in(SIGN_IN)['cookie']}"
    async with asking(FakeOperator(), LOOPBACK, headers={"cookie": both}) as client:
        assert (await client.get("/api/v1/state")).status_code == 200, "they do not replace each other"


async def test_a_stolen_cookie_is_worthless_after_the_sign_out() -> None:
    sign_in = BrowserSignIn(BrowserKey.new(), save_key=lambda _: None)
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    stolen, own = signed_in(sign_in), signed_in(sign_in)
    link = sign_in.new_link()
    async with asking(FakeOperator(), access, headers=PAGE | own) as client:
        csrf = sign_in.csrf(own["cookie"].partition("=")[2])
        assert (await client.post("/sign-out", data={"csrf": csrf})).status_code == 200
    assert (await use(access, link)).status_code == 403, "an open link is over as well"
    async with asking(FakeOperator(), access, headers=stolen) as client:
        assert (await client.get("/api/v1/state")).status_code == 401


async def test_no_form_of_another_page_orders_anything() -> None:
    cookie = signed_in(SIGN_IN)
    good = csrf_of(cookie)
    attempts: list[tuple[dict[str, str], dict[str, str]]] = [
        ({}, {"csrf": ""}),
        ({}, {}),
        ({}, {"csrf": csrf_of(signed_in(SIGN_IN))}),  # of another browser
        ({}, {"csrf": SIGN_IN.csrf("control")}),
        ({"origin": "https://evil.example"}, {"csrf": good}),
        ({"origin": "http://localhost:3000"}, {"csrf": good}),
        ({"origin": "null"}, {"csrf": good}),
        ({"sec-fetch-site": "same-site"}, {"csrf": good}),
        ({"host": "evil.example:8787"}, {"csrf": good}),
    ]
    operator = FakeOperator()
    async with asking(operator, LOOPBACK, headers=PAGE | cookie) as client:
        for headers, fields in attempts:
            for path in ("/actions/stop", "/actions/refresh", "/sign-out"):
                answer = await client.post(path, data={"issue": "SYM-1", **fields}, headers=headers)
                assert answer.status_code == 403, (path, headers, fields)
        as_json = await client.post("/actions/stop", json={"issue": "SYM-1", "csrf": good})
        assert as_json.status_code == 415
        assert (await client.post("/api/v1/SYM-1/stop", data={"csrf": good})).status_code == 415
        assert (operator.orders, operator.refreshes) == ([], 0)
        assert (await client.post("/actions/stop", data={"issue": "SYM-1", "csrf": good})).status_code == 303
    assert operator.orders == [("stop", "SYM-1", None)]


async def test_a_form_leads_to_no_other_site() -> None:
    cookie = signed_in(SIGN_IN)
    fields = {"csrf": csrf_of(cookie), "issue": "SYM-1"}
    async with asking(FakeOperator(), LOOPBACK, headers=cookie) as client:
        for given in (
            "https://evil.example/",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "javascript:alert(1)",
            "http:/x",
            "/\t/evil.example",
            "evil",
            "/x\r\nset-cookie: a=b",
            "//[",
            "",
        ):
            answer = await client.post("/actions/stop", data={**fields, "next": given})
            assert answer.status_code == 303
            target = httpx.URL("http://localhost:8787").join(answer.headers["location"])
            assert (target.scheme, target.netloc) == ("http", b"localhost:8787"), given
            assert "set-cookie" not in answer.headers
        kept = await client.post("/actions/stop", data={**fields, "next": "/issues/a%2Fb?q=1&notice=old#x"})
    assert kept.headers["location"].startswith("/issues/a%2Fb?q=1&notice=")
    assert "old" not in kept.headers["location"]
    assert kept.headers["location"].endswith("#x")


async def test_a_stream_that_nobody_reads_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "EXCHANGE_S", 0.5)
    state_dir, changes = StateDirectory(tmp_path / "state"), Changes(interval_s=0)
    await to_thread.run_sync(state_dir.create)
    settings = ServerSettings(port=0)
    async with serve_http(
        FakeOperator(),
        state_dir,
        server=settings,
        environment={"SYMPHONY_OPERATOR_TOKEN": TOKEN},
        changes=changes,
    ) as listeners:
        assert listeners.port is not None
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", listeners.port))
            request = "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: "
            client.sendall(f"{request}{BEARER['authorization']}\r\n\r\n".encode())
            with anyio.fail_after(30):
                while not changes.streams:
                    await anyio.lowlevel.checkpoint()
                (stream,) = changes.streams
                while changes.streams:  # more than the buffers of both sides hold
                    stream.add(frozenset(f"issue:{number:0200}" for number in range(CHANGES)))
                    await anyio.lowlevel.checkpoint()
        transport = httpx.AsyncHTTPTransport(verify=False)
        async with httpx.AsyncClient(transport=transport, headers=BEARER) as other:
            assert (await other.get(f"http://127.0.0.1:{listeners.port}/api/v1/state")).status_code == 200


async def test_streams_are_few_and_an_id_of_another_life_is_no_error() -> None:
    changes = Changes()
    app = make_app(FakeOperator(), LOOPBACK, changes=changes)
    first = changes.open_stream(changes.id)
    changes.streams.update(changes.open_stream(given) for given in (None, "", "x" * 5_000, "0-0", "é"))
    changes.streams.update(changes.open_stream(changes.id) for _ in range(11))
    assert first not in changes.streams
    async with client_of(app, headers=BEARER) as client:
        answer = await client.get("/api/v1/events")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_streams")


@pytest.mark.parametrize(
    "path", ["//evil.example/x", "///evil.example", "/\\evil.example", "/%09/evil.example"]
)
async def test_the_page_for_who_is_not_signed_in_leads_to_no_other_site(path: str) -> None:
    async with asking(FakeOperator(), LOOPBACK, headers=PAGE) as client:
        hostile = await client.get(f"http://127.0.0.1{path}", headers={"accept": "text/html"})
        own = await client.get("/issues/SYM-1", headers={"accept": "text/html"})
    assert 'href="/issues/SYM-1"' in own.text
    for target in re.findall(r'href="([^"]*)"', hostile.text):
        read = re.sub(r"[\t\n\r]", "", target).replace("\\", "/")  # as browsers read it
        assert urljoin("http://127.0.0.1/", read).startswith("http://127.0.0.1/")
