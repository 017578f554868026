"""Nobody comes in through the browser: not by its links, its cookies, its forms or its streams."""

import re
import socket
from itertools import count
from pathlib import Path
from random import Random
from urllib.parse import unquote, urljoin

import anyio
import httpx
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from attack.conftest import Rounds
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
from symphony.api.sign_in import LINK_S, BrowserSignIn
from symphony.config import ServerSettings
from symphony.daemon import http_server
from symphony.daemon.http_server import serve_http
from symphony.daemon.state_dir import StateDirectory

pytestmark = pytest.mark.asyncio
PAGE = {"accept": "text/html", "origin": "http://localhost:8787", "sec-fetch-site": "same-origin"}
CHANGES = 400
READS = ("/", "/issues/SYM-1", "/history", "/api/v1/state", "/api/v1/SYM-1", "/metrics")


def csrf_of(headers: dict[str, str]) -> str:
    return SIGN_IN.csrf(headers["cookie"].partition("=")[2])


def own(access: Access) -> dict[str, str]:
    """What a browser sends that has followed a link to the daemon's own name."""
    host = f"{access.sign_in.host}:8787"
    return PAGE | {"host": host, "origin": f"http://{host}"}


async def use(access: Access, link: str, **headers: str) -> httpx.Response:
    async with asking(FakeOperator(), access, headers={**own(access), **headers}) as client:
        return await client.post("/sign-in", data={"link": link})


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/issues/SYM-1?run=2", "/issues/SYM-1?run=2"),
        ("//evil.example/x", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("x\r\nset-cookie: a=b", "/"),
    ],
)
async def test_a_link_leads_to_a_page_of_the_daemon_and_nowhere_else(path: str, leads_to: str) -> None:
    sign_in = BrowserSignIn()
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    async with asking(FakeOperator(), access, headers=own(access)) as client:
        link = sign_in.new_link()
        shown = await client.get("/sign-in", params={"link": link, "next": path})
        assert f'name="next" value="{leads_to}"' in shown.text
        done = await client.post("/sign-in", data={"link": link, "next": path})
    assert (done.status_code, done.headers["location"]) == (303, f"{sign_in.root}{leads_to}")


async def test_a_link_signs_in_once_and_for_a_short_time() -> None:
    up = [0.0]
    sign_in = BrowserSignIn(uptime_s=lambda: up[0])
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    link, late = sign_in.new_link(), sign_in.new_link()
    async with asking(FakeOperator(), access, headers=own(access)) as client:
        shown = await client.get(f"/sign-in?link={link}")  # as a preview does
    assert (shown.status_code, f'value="{link}"' in shown.text) == (200, True)
    assert (await use(access, link, origin="https://evil.example")).status_code == 403
    assert (await use(access, link, host="evil.example")).status_code == 403
    with capture_logs() as logs:
        first = await use(access, link)
        assert (first.status_code, first.headers["location"]) == (303, f"{sign_in.root}/")
        for attribute in ("HttpOnly", "SameSite=Strict", f"Path={sign_in.root}", "Max-Age="):
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
    other = BrowserSignIn()
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
    sign_in = BrowserSignIn()
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    stolen, own = signed_in(sign_in), signed_in(sign_in)
    link = sign_in.new_link()
    async with asking(FakeOperator(), access, headers=PAGE | own) as client:
        csrf = sign_in.csrf(own["cookie"].partition("=")[2])
        assert (await client.post("/sign-out", data={"csrf": csrf})).status_code == 200
    assert (await use(access, link)).status_code == 403, "an open link is over as well"
    async with asking(FakeOperator(), access, headers=stolen) as client:
        assert (await client.get("/api/v1/state")).status_code == 401


@pytest.mark.parametrize("host", ["127.0.0.1:8787", "localhost:8787", "[::1]:8787", "LOCALHOST:8787"])
async def test_a_shared_name_leads_an_open_link_to_the_own_name_and_no_one_else(
    host: str,
) -> None:
    sign_in = BrowserSignIn()
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    link, spent = sign_in.new_link(), sign_in.new_link()
    sign_in.use_link(spent)
    shared = {"host": host, "origin": f"http://{host}"}
    async with asking(FakeOperator(), access, headers=PAGE | shared) as client:
        for answer in (
            await client.get("/sign-in", params={"link": link}),
            await client.post("/sign-in", data={"link": link}),
        ):
            assert answer.status_code == 303
            assert answer.headers["location"] == f"http://{sign_in.host}:8787/sign-in?link={link}"
            assert "set-cookie" not in answer.headers
        for path in (
            "/",
            "/sign-in",
            f"/sign-in?link={spent}",
            "/sign-in?link=x",
            "/healthz",
            "/api/v1/state",
        ):
            answer = await client.get(path)
            assert sign_in.host not in f"{answer.headers}{answer.text}", path
        for given in (spent, "x", ""):
            answer = await client.post("/sign-in", data={"link": given})
            assert (answer.status_code, sign_in.host in f"{answer.headers}{answer.text}") == (403, False)
    assert (await use(access, link)).status_code == 303, "it was not used up"


@pytest.mark.parametrize("path", ["", "/~", f"/~{'0' * 32}", "/sign-in/..", "root twice"])
async def test_a_cookie_without_the_path_of_the_pages_reads_and_orders_nothing(path: str) -> None:
    cookie = signed_in(SIGN_IN)
    path = SIGN_IN.root * 2 if path == "root twice" else path
    operator = FakeOperator()
    async with client_of(
        make_app(operator, LOOPBACK), host="localhost:8787", headers=PAGE | cookie
    ) as client:
        for read in (
            "/",
            "/issues/SYM-1",
            "/history",
            "/system",
            "/api/v1/state",
            "/api/v1/events",
            "/metrics",
        ):
            answer = await client.get(f"{path}{read}")
            assert answer.status_code in {401, 404}, read
            assert "csrf" not in answer.text
        good = {"csrf": csrf_of(cookie), "issue": "SYM-1"}
        for order in ("/actions/stop", "/actions/refresh", "/sign-out"):
            assert (await client.post(f"{path}{order}", data=good)).status_code in {401, 403, 404, 415}
        header = {"x-csrf-token": csrf_of(cookie), "content-type": "application/json"}
        assert (await client.post(f"{path}/api/v1/SYM-1/stop", headers=header)).status_code in {401, 404, 415}
        assert (operator.orders, operator.refreshes) == ([], 0)
        assert (await client.get(f"{SIGN_IN.root}/api/v1/state")).status_code == 200
        assert (await client.get(f"{SIGN_IN.root}")).status_code == 200
        assert (await client.post(f"{SIGN_IN.root}/actions/stop", data=good)).status_code == 303
    assert operator.orders == [("stop", "SYM-1", None)]


def misspelled(random: Random, root: str) -> str:
    """A path that is not that of the pages, however close; the client would resolve plain dots."""
    inside = random.randrange(2, len(root))
    return random.choice(
        [
            "",
            "/",
            f"/{root}",
            root.swapcase(),
            root.upper(),
            root.replace("~", "%7E"),
            root.replace("~", "%257E"),
            root.replace("/", "/%252F"),
            f"{root[:inside]}/{root[inside:]}",
            f"{root[:inside]}%00{root[inside:]}",
            f"{root[:inside]}%25{ord(root[inside]):02x}{root[inside + 1 :]}",
            root[:inside],
            root[:-1],
            f"{root}{random.choice('0aZ.;~ ')}",
            f"{root}%20",
            root.replace("/", "/\\"),
            *(f"{front}{root}" for front in ("/%2e", "/x/%2e%2e", "/assets/%2e%2e", "/sign-in/%2e%2e", "/;")),
        ]
    )


async def test_no_spelling_of_another_path_reads_or_orders_anything(rounds: Rounds) -> None:
    cookie = signed_in(SIGN_IN)
    csrf = csrf_of(cookie)
    operator = FakeOperator()
    url = httpx.URL("http://localhost:8787")
    json = {"x-csrf-token": csrf, "content-type": "application/json"}
    form, number = {"csrf": csrf, "issue": "SYM-1"}, count()
    async with client_of(make_app(operator, LOOPBACK), headers=PAGE | cookie) as client:

        async def ask(path: str, request: tuple[str, str]) -> httpx.Response:
            method, rest = request
            target = url.copy_with(raw_path=f"{path}{rest}".encode())
            if rest.startswith("/actions/"):
                return await client.post(
                    target, data={**form, "next": f"/?q={next(number)}"}
                )  # never the same
            if method == "POST":
                return await client.post(target, headers=json)
            return await client.request(method, target)

        for random in rounds(20):
            request = random.choice(
                [
                    *((method, path) for path in READS for method in ("GET", "HEAD", "OPTIONS")),
                    *(("POST", path) for path in ("/actions/stop", "/actions/refresh", "/api/v1/SYM-1/stop")),
                ]
            )
            path = misspelled(random, SIGN_IN.root)
            if unquote(path) == SIGN_IN.root:
                continue
            answer = await ask(path, request)
            assert answer.status_code in {401, 403, 404, 405, 415}, (path, request)
            assert csrf not in answer.text
            assert (operator.orders, operator.refreshes, operator.asked) == ([], 0, []), (path, request)
            assert (await ask(SIGN_IN.root, ("GET", random.choice(READS)))).status_code == 200
            assert (await ask(SIGN_IN.root, ("POST", "/actions/stop"))).status_code == 303
            assert operator.orders == [("stop", "SYM-1", None)]
            operator.orders.clear()
            operator.asked.clear()


async def test_the_path_of_the_pages_alone_opens_nothing() -> None:
    async with client_of(make_app(FakeOperator(), LOOPBACK), host="localhost:8787") as client:
        assert (await client.get(f"{SIGN_IN.root}/api/v1/state")).status_code == 401
        assert (await client.get(f"{SIGN_IN.root}/api/v1/state", headers=BEARER)).status_code == 200
    async with client_of(make_app(FakeOperator(), Access(sign_in=SIGN_IN))) as owner:
        assert (await owner.get(f"{SIGN_IN.root}/api/v1/state")).status_code == 404


async def test_the_sign_out_replaces_name_and_path() -> None:
    sign_in = BrowserSignIn()
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    old, root, cookie = own(access), sign_in.root, signed_in(sign_in)
    async with asking(FakeOperator(), access, headers=old | cookie) as client:
        done = await client.post("/sign-out", data={"csrf": sign_in.csrf(cookie["cookie"].partition("=")[2])})
        assert (done.status_code, f"Path={root}" in done.headers["set-cookie"]) == (200, True)
        assert "forbidden_host" in (await client.get("/api/v1/state")).text
    assert sign_in.root != root
    async with asking(FakeOperator(), access, headers=own(access) | signed_in(sign_in)) as client:
        assert (await client.get("/api/v1/state")).status_code == 200


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
    assert kept.headers["location"].startswith(f"{SIGN_IN.root}/issues/a%2Fb?q=1&notice=")
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
            with anyio.fail_after(60):
                while not changes.streams:
                    await anyio.lowlevel.checkpoint()
                (stream,) = changes.streams
                while changes.streams:  # more than the buffers of both sides hold
                    stream.add(frozenset(f"issue:{number:0200}" for number in range(CHANGES)))
                    await anyio.lowlevel.checkpoint()
        transport = httpx.AsyncHTTPTransport(verify=False)
        async with httpx.AsyncClient(transport=transport, headers=BEARER, timeout=60) as other:
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
    for target in set(re.findall(r'href="([^"]*)"', hostile.text)) - {"data:,"}:  # no icon
        read = re.sub(r"[\t\n\r]", "", target).replace("\\", "/")  # as browsers read it
        assert urljoin("http://127.0.0.1/", read).startswith("http://127.0.0.1/")
