"""`symphony open`, and streams of events, with a real daemon."""

import json
import re
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright
from typing_extensions import override

from harness.project import DEADLINE_S, Daemon, Project, until
from harness.real import require_program
from harness.shell import word

HERE = "127.0.0.1"
TURN = [{"wait_for": "never"}]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(root=tmp_path).create()
    made.workflow()
    return made


def link_of(project: Project) -> str:
    done = project.symphony("open", "--print")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def browser(link: str) -> Iterator[httpx.Client]:
    """A browser that follows the link: it finds the daemon's name on this machine, and keeps the cookie."""
    parts = urlsplit(link)
    transport = httpx.HTTPTransport(verify=False)
    with httpx.Client(
        transport=transport,
        base_url=f"http://{HERE}:{parts.port}",
        headers={"host": parts.netloc, "accept": "text/html"},
        timeout=DEADLINE_S,
    ) as client:
        shown = client.get(parts.path, params=parts.query)
        assert "<form" in shown.text
        signed_in = client.post("/sign-in", data={"link": parse_qs(parts.query)["link"][0]})
        if signed_in.status_code == 303:
            client.headers["cookie"] = signed_in.headers["set-cookie"].partition(";")[0]
            client.base_url = client.base_url.join(signed_in.headers["location"])
        yield client


def control(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.state_dir / "control.json").read_text())
    return found


def started(daemon: Daemon) -> None:
    daemon.wait_for("serving")


def test_without_a_port_it_opens_one_and_the_cookie_is_worthless_after_the_end(project: Project) -> None:
    project.environment["BROWSER"] = ""
    with project.daemon() as daemon:
        started(daemon)
        assert control(project)["port"] is None
        first, second = link_of(project), link_of(project)
        assert urlsplit(first).netloc == urlsplit(second).netloc, "one port, kept until the end"
        assert (control(project)["host"], control(project)["port"]) == (HERE, urlsplit(first).port)
        with browser(first) as client:
            assert client.get("/api/v1/state").status_code in {200, 503}
            cookie, root = client.headers["cookie"], client.base_url.path
        with browser(first) as client:
            assert client.get("/api/v1/state").status_code == 401, "a link works once"
        with browser(second) as client:
            assert client.get("/api/v1/state").status_code in {200, 503}
        document = json.loads(project.symphony("open", "--json").stdout)
        assert document["url"].startswith(document["address"])
        log = daemon.log.read_text()
        for secret in (parse_qs(urlsplit(first).query)["link"][0], cookie.partition("=")[2]):
            assert secret not in log
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    with project.daemon("--port", "0") as daemon:
        port = daemon.wait_for("http_serving")["port"]
        with httpx.Client(transport=httpx.HTTPTransport(verify=False), headers={"cookie": cookie}) as client:
            for path in ("/", root):
                answer = client.get(f"http://{HERE}:{port}{path}api/v1/state", timeout=DEADLINE_S)
                assert answer.status_code in {401, 404}


def test_on_demand_can_be_forbidden(project: Project) -> None:
    project.workflow(server={"on_demand": False})
    with project.daemon() as daemon:
        started(daemon)
        done = project.symphony("open", "--print")
        assert (done.returncode, done.stdout) == (1, "")
        assert "server.on_demand" in done.stderr
        assert "hint:" in done.stderr
        assert control(project)["port"] is None


def test_without_a_daemon_it_says_so(project: Project) -> None:
    done = project.symphony("open", "--print")
    assert done.returncode == 5
    assert "symphony run" in done.stderr


def test_a_fact_reaches_the_streams_and_sigterm_ends_them_at_once(project: Project) -> None:
    with project.daemon("--log-level", "debug") as daemon:
        started(daemon)
        with browser(link_of(project)) as client:
            until(lambda: client.get("/api/v1/state").status_code == 200 or None, daemon.log.read_text)
            with client.stream("GET", "/api/v1/events") as stream, client.stream("GET", "/api/v1/events"):
                lines = stream.iter_lines()
                assert next(lines) == "retry: 3000"
                project.issue("SYM-1", TURN)
                for line in lines:  # as a page: asks again for what has changed
                    if line.startswith("data:") and json.loads(line[5:])["scope"] in {"all", "issue:SYM-1"}:
                        issue = client.get("/api/v1/SYM-1").json()
                        if issue.get("status") == "running":
                            break
                daemon.signal(signal.SIGTERM)
                daemon.signal(signal.SIGTERM)
                assert list(lines)[-1:] in ([], [""]), "a stream ends in order"
        assert daemon.end() == 0
        problems = [line for line in daemon.events() if line["event"] in {"http_failed", "http_notice"}]
        assert [line for line in problems if "timeout" in line["reason"]] == [], "no stream was waited for"


def test_a_change_of_the_library_by_a_command_reaches_the_streams(project: Project) -> None:
    project.workflow(polling={"interval_ms": 600_000})  # a poll changes everything
    with project.daemon("--log-level", "debug") as daemon:
        started(daemon)
        with browser(link_of(project)) as client:

            def polled() -> bool | None:
                answer = client.get("/api/v1/state")
                return True if answer.is_success and answer.json()["health"]["polls"] else None

            until(polled, daemon.log.read_text)
            with client.stream("GET", "/api/v1/events") as stream:
                scopes = (json.loads(line[5:])["scope"] for line in stream.iter_lines() if "data:" in line)
                assert next(scopes) == "all"

                def told(number: int) -> bool:
                    text = f"---\nname: style-{number}\ndescription: Style.\n---\n"
                    skill = project.write(f"style-{number}.md", text)
                    assert project.symphony("library", "add", str(skill)).returncode == 0
                    return bool(next(scopes) == "library")

                # What else changes in the same second makes it "all".
                assert any(told(number) for number in range(5))


@pytest.mark.slow
def test_a_real_browser_signs_in_and_orders_with_and_without_javascript(project: Project) -> None:
    chromium = require_program("chromium", "Debian: chromium")
    project.issue("SYM-1", TURN)

    def stopped() -> bool | None:
        done = project.symphony("stop", "SYM-1")
        blocked = json.loads(project.symphony("status", "--json").stdout)["blocked"]
        return True if done.returncode and blocked else None

    with project.daemon() as daemon, sync_playwright() as playwright:
        daemon.wait_for("turn_started")
        program = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for script in (True, False):
            until(stopped, daemon.log.read_text)
            link = link_of(project)
            page, other = (program.new_context(java_script_enabled=script).new_page() for _ in range(2))
            page.goto(link)
            if not script:
                page.click("button")
            page.wait_for_url("**.localhost:*/~*/")
            (cookie,) = page.context.cookies()
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
            page.click("form[action$='/actions/retry'] button")
            page.wait_for_url("**.localhost:*/~*/?notice=*")
            other.goto(link)
            if not script:
                other.click("button")
            other.wait_for_selector("text=link_used")
            assert other.context.cookies() == []
        program.close()
        verbs = [line["verb"] for line in daemon.events() if line["event"] == "operator_asked"]
        assert verbs == ["stop", "retry"] * 2


@contextmanager
def another_server() -> Iterator[tuple[int, list[str]]]:
    """A server of an agent on another port, and all cookies that it gets."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("cookie", ""))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<h1>Another</h1>")

        @override
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HERE, 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, got
        finally:
            server.shutdown()
            thread.join()


def sign_in(page: Page, link: str, *, script: bool) -> str:
    """Follow a link; the address of the board."""
    page.goto(link)
    if not script:
        page.click("button")
    page.wait_for_url("**.localhost:*/~*/")
    return page.url


@pytest.mark.slow
@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("shared", [None, "127.0.0.1", "localhost"])
def test_a_page_on_another_port_of_the_name_gets_no_cookie(
    project: Project, shared: str | None, *, script: bool
) -> None:
    project.issue("SYM-1", TURN)
    with project.daemon() as daemon, sync_playwright() as playwright, another_server() as (port, got):
        daemon.wait_for("turn_started")
        parts = urlsplit(link_of(project))
        link = parts._replace(netloc=f"{shared or parts.hostname}:{parts.port}").geturl()
        program = playwright.chromium.launch(
            executable_path=require_program("chromium", "Debian: chromium"), args=["--no-sandbox"]
        )
        page = program.new_context(java_script_enabled=script).new_page()
        board = sign_in(page, link, script=script)
        assert urlsplit(board).hostname == parts.hostname, "the daemon's own name"
        name = str(parts.hostname)
        for host in (name, "127.0.0.1", "localhost"):
            for path in ("/", "/issues/SYM-1", "/~/"):
                page.goto(f"http://{host}:{port}{path}")
                page.reload()
                page.reload()
        symphony = [one for one in got if "symphony-" in one]
        assert (len(got) >= 18, symphony) == (True, [])
        (cookie,) = page.context.cookies()
        header = {
            "cookie": f"{cookie['name']}={cookie['value']}",
            "host": parts.netloc,
            "accept": "text/html",
        }
        with httpx.Client(
            base_url=f"http://{HERE}:{parts.port}", headers=header, timeout=DEADLINE_S
        ) as thief:  # who has it anyhow
            assert thief.get("/").status_code == 401
            assert thief.get("/api/v1/state").status_code == 401
            assert thief.post("/actions/stop", data={"issue": "SYM-1"}).status_code in {401, 403}
        page.goto(board)
        page.click("text=SYM-1")
        page.wait_for_url("**/~*/issues/SYM-1")
        expect(page.locator("h1")).to_contain_text("SYM-1")
        page.reload()
        expect(page.locator("h1")).to_contain_text("SYM-1")
        if script:
            expect(page.locator("#live")).to_have_text("Live")
            page.goto(f"http://{parts.netloc}/issues/SYM-1?x=1")  # as a notification has it
            page.wait_for_url("**/~*/issues/SYM-1?x=1")
            expect(page.locator("h1")).to_contain_text("SYM-1")
        page.click("form.out button")
        expect(page.locator("h1")).to_have_text("Signed out")
        assert page.goto(board).status == 403  # type: ignore[union-attr]
        program.close()
        assert [line["verb"] for line in daemon.events() if line["event"] == "operator_asked"] == []


def test_the_arguments_of_the_browser_name_neither_the_daemon_nor_the_link(project: Project) -> None:
    seen = project.root / "arguments"
    browser_script = project.write("browser", f'#!/bin/sh\nprintf "%s\\n" "$@" > {word(seen)}\n')
    browser_script.chmod(0o755)
    project.environment["BROWSER"] = str(browser_script)
    with project.daemon() as daemon:
        started(daemon)
        for _ in range(2):
            done = project.symphony("open")
            assert (done.returncode, ".localhost" in done.stdout) == (0, False), done.stderr
        (argument,) = until(lambda: seen.read_text().split() if seen.exists() else None, daemon.log.read_text)
        assert argument.startswith("file://")
        file = Path(unquote(urlsplit(argument).path))
        assert file.parent == project.state_dir
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        text = file.read_text()
        link = text.partition("url=")[2].partition('"')[0]
        with browser(link) as client:
            assert client.get("/api/v1/state").status_code in {200, 503}


@pytest.mark.slow
def test_a_real_browser_follows_the_file(project: Project) -> None:
    project.environment["BROWSER"] = "true"
    with project.daemon() as daemon, sync_playwright() as playwright:
        started(daemon)
        assert project.symphony("open").returncode == 0
        program = playwright.chromium.launch(
            executable_path=require_program("chromium", "Debian: chromium"), args=["--no-sandbox"]
        )
        page = program.new_page()
        page.goto((project.state_dir / "open.html").as_uri())
        page.wait_for_url("**.localhost:*/~*/")
        program.close()


# --- all daemons ---


def _of_one_user(root: Path, name: str) -> Project:
    home = root / "home"
    home.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "XDG_STATE_HOME": "", "SYMPHONY_STATE_DIR": ""}
    made = Project(root=root / name, environment=environment).create()
    made.workflow()
    return made


@pytest.mark.slow
def test_one_page_shows_every_daemon_and_leads_to_each(tmp_path: Path) -> None:
    app, web = (_of_one_user(tmp_path, name) for name in ("app", "web"))
    app.issue("SYM-1", [{"ask_input": "Which colour?"}])
    with app.daemon() as first, web.daemon() as second:
        first.wait_for("issue_blocked")
        second.wait_for("serving")
        with app.start("open", "--all", "--print") as page:
            assert page.stdout is not None
            link = page.stdout.readline().strip()
            with browser(link) as client:
                shown = until(
                    lambda: _named(client, "2 daemons", "Which colour?"), lambda: client.get("/").text
                )
                assert "Which colour?" in shown
                second.signal(signal.SIGSTOP)
                try:
                    until(lambda: _named(client, "Does not answer", "Healthy"), second.log.read_text)
                finally:
                    second.signal(signal.SIGCONT)
                csrf, key = _values(shown, "csrf")[0], _values(shown, "daemon")[0]
                target = {"csrf": csrf, "daemon": key, "path": "/issues/SYM-1"}
                led = client.post("/actions/open-daemon", data=target).headers["refresh"]
            with browser(led.removeprefix("0; url=")) as client:
                assert "Which colour?" in client.get("/issues/SYM-1").text, "the daemon's own page"
            page.send_signal(signal.SIGINT)
            assert page.wait(DEADLINE_S) == 0


def _named(client: httpx.Client, *texts: str) -> str | None:
    page = client.get("/").text
    return page if all(text in page for text in texts) else None


def _values(page: str, name: str) -> list[str]:
    return re.findall(f'name="{name}" value="([^"]*)"', page)
