import json
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.asking import BEARER, TOKEN, FakeOperator
from harness.chronicle import conforms
from harness.project import Project
from harness.scheduling import make_failure
from harness.serving import DEADLINE_S, Served, make_service, move, serving
from harness.shell import word
from symphony.api.live import Changes
from symphony.config import ServerSettings
from symphony.daemon import http_server as module
from symphony.daemon.http_server import serve_http
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Category, Issue, SymphonyError
from symphony.scheduler import Polled, PollFailed, WakeAsked
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import MarkdownTracker

pytestmark = pytest.mark.asyncio
HERE = "127.0.0.1"


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    """Sockets are made in it."""
    return short_path


@asynccontextmanager
async def open_api(
    tmp_path: Path, *, host: str = HERE, changes: Changes | None = None
) -> AsyncIterator[tuple[int, Path]]:
    """The application on real sockets, with a fake operator: its port, and the path of its control socket."""
    state_dir = StateDirectory(tmp_path / "state")
    await to_thread.run_sync(state_dir.create)
    async with serve_http(
        FakeOperator(),
        state_dir,
        server=ServerSettings(host=host, port=0),
        environment={"SYMPHONY_OPERATOR_TOKEN": TOKEN},
        changes=changes or Changes(),
    ) as doors:
        assert doors.port is not None
        yield doors.port, state_dir.path / "control.sock"


def over(path: Path) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=str(path), verify=False),
        base_url="http://symphony",
        timeout=DEADLINE_S,
    )


async def ask(port: int, path: str, **options: Any) -> httpx.Response:
    transport = httpx.AsyncHTTPTransport(verify=False)
    async with httpx.AsyncClient(transport=transport, timeout=DEADLINE_S) as client:
        return await client.request(options.pop("method", "GET"), f"http://{HERE}:{port}{path}", **options)


async def raw(port: int, *chunks: bytes) -> bytes:
    """What comes back for some bytes, until the other side hangs up."""
    async with await anyio.connect_tcp(HERE, port) as stream:
        with anyio.fail_after(DEADLINE_S):
            with suppress(anyio.BrokenResourceError):
                for chunk in chunks:
                    await stream.send(chunk)
            return await until_hung_up(stream)


async def served(port: int) -> None:
    """Ask and be answered: whoever connected before has been taken in by then."""
    answer = await raw(port, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


async def until_hung_up(stream: anyio.abc.ByteStream) -> bytes:
    """What still comes until the other side has hung up."""
    rest = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            rest += await stream.receive()
    return rest


# --- two doors ---


@pytest.mark.slow
@pytest.mark.conformance("H-1")
async def test_both_doors_give_the_same_answers(tmp_path: Path) -> None:
    async with open_api(tmp_path) as (port, path), over(path) as control:
        by_port = await ask(port, "/api/v1/SYM-1", headers=BEARER)
        by_file = await control.get("/api/v1/SYM-1")
    assert by_port.json() == by_file.json()
    conforms(by_port.json(), "Issue")
    assert "server" not in by_port.headers


@pytest.mark.conformance("H-4")
async def test_a_slash_in_an_identifier_arrives_through_a_real_server(tmp_path: Path) -> None:
    async with open_api(tmp_path) as (port, _):
        response = await ask(port, "/api/v1/a%2Fb%20%C3%BC", headers=BEARER)
        assert response.json()["issue_identifier"] == "a/b ü"
        evil = await ask(port, "/api/v1/refresh", method="POST", headers={"origin": "https://evil.example"})
        assert evil.status_code == 403


async def test_off_the_loopback_interface_a_token_is_needed_on_the_port_alone(tmp_path: Path) -> None:
    everywhere = "0.0.0.0"  # noqa: S104 - what is tested
    with capture_logs() as logs:
        async with open_api(tmp_path, host=everywhere) as (port, path):
            assert (await ask(port, "/api/v1/state")).status_code == 401
            assert (await ask(port, "/healthz")).status_code == 200
            assert (await ask(port, "/api/v1/state", headers=BEARER)).status_code == 200
            async with over(path) as control:
                assert (await control.get("/api/v1/state")).status_code == 200
    assert TOKEN not in repr(logs)
    assert [line["token_needed"] for line in logs if line["event"] == "http_serving"] == [True]


async def test_a_failure_of_what_is_served_comes_out_as_it_was_raised(tmp_path: Path) -> None:
    failure = FakeOperator().story.state.blocked["3"].failure
    with pytest.raises(SymphonyError) as raised:
        async with open_api(tmp_path):
            raise SymphonyError(failure)
    assert raised.value.failure is failure
    assert not await anyio.Path(tmp_path / "state" / "control.json").exists()


# --- clients that harm nobody ---


@pytest.mark.slow
@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 100,
        b"GET /api/v1/state HTTP/9.9\r\nhost: x\r\n\r\n",
        b"POST /api/v1/refresh HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /api/v1/refresh HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_not_http_gets_a_short_answer_or_none(tmp_path: Path, bytes_sent: bytes) -> None:
    async with open_api(tmp_path) as (port, _):
        answer = await raw(port, bytes_sent)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403"))
        assert (await ask(port, "/healthz")).status_code == 200


async def test_a_head_without_end_is_refused(tmp_path: Path) -> None:
    async with open_api(tmp_path) as (port, _):
        endless = [b"x-pad: " + b"x" * 1_000 + b"\r\n"] * 200
        answer = await raw(port, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", *endless)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
        assert (await ask(port, "/healthz")).status_code == 200


async def test_a_body_of_ten_megabytes_is_refused(tmp_path: Path) -> None:
    async with open_api(tmp_path) as (port, _):
        answer = await raw(
            port,
            b"POST /api/v1/refresh HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer "
            + TOKEN.encode()
            + b"\r\ncontent-length: 10485760\r\n\r\n"
            + b" " * 200_000,
        )
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")


@pytest.mark.slow
async def test_who_says_nothing_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXCHANGE_S", 0.05)
    async with open_api(tmp_path) as (port, _):
        assert await raw(port) == b""
        assert await raw(port, b"GET /healthz HTTP/1.1\r\nhost:") == b""


@pytest.mark.slow
async def test_who_does_not_read_an_answer_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXCHANGE_S", 0.2)
    token = b"authorization: Bearer " + TOKEN.encode()
    question = b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n" + token + b"\r\n\r\n"
    async with open_api(tmp_path) as (port, _), await anyio.connect_tcp(HERE, port) as stream:
        with anyio.fail_after(DEADLINE_S), suppress(anyio.BrokenResourceError):
            while True:  # more answers than the buffers of both sides hold
                with anyio.move_on_after(0.05):
                    await stream.send(question * 100)
        assert (await ask(port, "/healthz")).status_code == 200


@pytest.mark.slow
async def test_a_crowd_on_the_port_neither_grows_nor_locks_the_operator_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    async with open_api(tmp_path) as (port, path), over(path) as control:
        await served(port)
        crowd = [await anyio.connect_tcp(HERE, port) for _ in range(3)]
        await anyio.wait_all_tasks_blocked()
        assert await raw(port, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n") == b""
        assert (await control.get("/api/v1/state")).status_code == 200
        for one in crowd:
            await one.aclose()


@pytest.mark.slow
async def test_open_connections_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with open_api(tmp_path) as (port, _):
            idle = await anyio.connect_tcp(HERE, port)
            half = await anyio.connect_tcp(HERE, port)
            await half.send(
                b"POST /api/v1/refresh HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                b"authorization: Bearer " + TOKEN.encode() + b"\r\ncontent-length: 2\r\n\r\n"
            )
            await served(port)
        for stream in (idle, half):
            await until_hung_up(stream)
            await stream.aclose()


# --- with a real daemon ---


async def control_of(served: Served, project: Project) -> Path:
    await served.watcher.until_seen(Polled)
    return Path(project.control_socket)


@pytest.mark.conformance("H-3")
async def test_a_refresh_asks_the_tracker_again(project: Project) -> None:
    project.workflow(polling={"interval_ms": 3_600_000})
    async with serving(project) as served, over(await control_of(served, project)) as client:
        await served.watcher.until(lambda: served.watcher.states[-1].cycle.value == "idle")
        polls = served.watcher.states[-1].polls
        response = await client.post("/api/v1/refresh")
        assert response.status_code == 202
        await served.watcher.until(lambda: served.watcher.states[-1].polls > polls)
        assert [fact.reason for fact in served.watcher.all(WakeAsked)][-1] in {"operator", "tracker_changed"}


@pytest.mark.slow
@pytest.mark.conformance("O-8")
async def test_a_snapshot_is_answered_while_the_tracker_hangs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.workflow()
    project.issue("SYM-1", state="Backlog")
    released, hanging = anyio.Event(), anyio.Event()
    fetch = MarkdownTracker.fetch_issues_by_states

    async def slow(self: MarkdownTracker, states: Sequence[str]) -> list[Issue]:
        hanging.set()
        await released.wait()
        return list(await fetch(self, states))

    async with serving(project) as served, over(await control_of(served, project)) as client:
        idle = await fastest(client)
        monkeypatch.setattr(MarkdownTracker, "fetch_issues_by_states", slow)
        await client.post("/api/v1/refresh")
        with anyio.fail_after(DEADLINE_S):
            await hanging.wait()
        busy = await fastest(client)
        document = (await client.get("/api/v1/state")).json()
        assert document["polling"]["checking"] is True
        conforms(document, "State")
        released.set()
    assert busy < idle * 10 + 0.001, f"{busy:.4f} s while it hangs, {idle:.4f} s else"


async def fastest(client: httpx.AsyncClient) -> float:
    """Seconds of the fastest of some snapshots: the others tell more of the machine than of us."""
    took = []
    for _ in range(20):
        began = time.perf_counter()
        assert (await client.get("/api/v1/state")).status_code == 200
        took.append(time.perf_counter() - began)
    return min(took)


@pytest.mark.slow
async def test_a_tracker_that_is_down_is_told_in_the_health(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.workflow()
    async with serving(project) as served, over(await control_of(served, project)) as client:

        async def down(_: MarkdownTracker, __: Sequence[str]) -> list[Issue]:
            raise TrackerError(make_failure("no route to host"))

        monkeypatch.setattr(MarkdownTracker, "fetch_issues_by_states", down)
        await served.watcher.until_seen(PollFailed)
        health = (await client.get("/api/v1/state")).json()["health"]
        assert health["status"] == "degraded"
        assert "no route to host" in health["poll_failure"]["message"]


@pytest.mark.slow
async def test_an_issue_tells_the_skills_of_its_run(project: Project) -> None:
    project.skill("greet")
    project.write(".symphony/skills/bad/SKILL.md", "no front matter\n")
    project.commit("Skills")
    project.workflow()
    board = project.issue("SYM-1", [{"wait_for": "never"}])
    async with serving(project) as served, over(await control_of(served, project)) as client:
        await served.watcher.until(lambda: any(run.report.facts.turn_count for run in served.watcher.running))
        issue = (await client.get("/api/v1/SYM-1")).json()
        conforms(issue, "Issue")
        await move(board, "Done")
        await served.watcher.until(lambda: not served.watcher.running)
    assert [skill["name"] for skill in issue["skills"]["listed"]] == ["greet"]
    assert len(issue["skills"]["listed"][0]["sha256"]) == 64
    errors = [one for one in issue["skills"]["problems"] if one["severity"] == "error"]
    assert [(one["path"], len(one["sha256"])) for one in errors] == [(".symphony/skills/bad/SKILL.md", 64)]


@pytest.mark.conformance("O-7")
async def test_hooks_do_not_get_the_token_of_the_operator(project: Project) -> None:
    seen = project.root / "seen"
    project.environment["SYMPHONY_OPERATOR_TOKEN"] = TOKEN
    project.workflow(hooks={"before_run": f"env > {word(seen)}.part; mv {word(seen)}.part {word(seen)}"})
    board = project.issue("SYM-1", [{"wait_for": "never"}])
    async with serving(project) as served:
        await served.watcher.until(lambda: any(run.agent_started_ms for run in served.watcher.running))
        given = await anyio.Path(seen).read_text()
        await move(board, "Done")
        await served.watcher.until(lambda: not served.watcher.running)
    assert "SYMPHONY_ISSUE_ID=SYM-1" in given, "the positive control"
    assert TOKEN not in given


@pytest.mark.conformance("H-1")
async def test_a_port_that_is_taken_ends_the_start_before_anything_is_dispatched(project: Project) -> None:
    with socket.socket() as other:
        other.bind((HERE, 0))
        other.listen()
        project.workflow(server={"port": other.getsockname()[1]})
        project.issue("SYM-1")
        service = await make_service(project)
        with pytest.raises(SymphonyError) as refused:
            await service.run()
    assert refused.value.failure.category is Category.HTTP_SERVER
    assert service.state is None


@pytest.mark.slow
@pytest.mark.conformance("H-1", "L-4")
async def test_the_port_of_the_command_line_wins_over_the_file(project: Project) -> None:
    with socket.socket() as other:
        other.bind((HERE, 0))
        other.listen()
        project.workflow(server={"port": other.getsockname()[1]})
        async with serving(project, port=0) as served:
            await served.watcher.until_seen(Polled)
            note = json.loads(await anyio.Path(project.state_dir / "control.json").read_text())
            assert note["port"] not in {None, 0, other.getsockname()[1]}
            assert (await ask(note["port"], "/api/v1/state")).status_code == 401
            token = await anyio.Path(project.state_dir / "operator.token").read_text()
            shown = {"authorization": f"Bearer {token.strip()}"}
            assert (await ask(note["port"], "/api/v1/state", headers=shown)).status_code == 200


@pytest.mark.slow
@pytest.mark.conformance("H-1")
async def test_without_a_port_there_is_the_control_socket_alone(project: Project) -> None:
    project.workflow()
    async with serving(project) as served:
        path = await control_of(served, project)
        note = json.loads(await anyio.Path(project.state_dir / "control.json").read_text())
        assert (note["socket"], note["port"]) == (str(path), None)
        assert note["workflow"] == str(project.repo / "WORKFLOW.md")
    assert not await anyio.Path(path).exists()


@pytest.mark.slow
async def test_the_page_of_the_system_has_what_doctor_finds_on_the_machine(project: Project) -> None:
    project.workflow()
    async with serving(project) as served, over(await control_of(served, project)) as client:
        checks = (await client.get("/system.json")).json()["diagnosis"]["checks"]
        page = (await client.get("/system")).text
    found = {check["name"]: check for check in checks}
    assert found["git"]["message"].startswith("git version")
    assert found["state_directory"]["status"] == "ok"
    assert {"disk", "clock", "user_namespaces", "open_files"} < set(found)
    assert not {"agent", "tracker", "repository"} & set(found), "these cost time, requests or money"
    assert found["git"]["message"] in page
