"""Promise: the daemon tells over HTTP what it does and why an issue waits, and no web page can misuse it."""

import json
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.project import DEADLINE_S, Daemon, Project, until

HOSTILE = "<img src=x onerror=alert(1)>\u202e \x1b[31mred {{ issue }} ```"


@contextmanager
def client_of(project: Project, daemon: Daemon) -> Iterator[httpx.Client]:
    """A client of the daemon's port, which shows the token of the operator."""
    port = daemon.wait_for("http_serving")["port"]
    transport = httpx.HTTPTransport(verify=False)
    token = (project.state_dir / "operator.token").read_text().strip()
    with httpx.Client(
        transport=transport,
        base_url=f"http://127.0.0.1:{port}",
        headers={"authorization": f"Bearer {token}"},
        timeout=DEADLINE_S,
    ) as client:
        yield client


def of_issue(client: httpx.Client, identifier: str, status: str) -> dict[str, Any]:
    """The document of an issue once it has that status."""

    def found() -> dict[str, Any] | None:
        document: dict[str, Any] = client.get(f"/api/v1/{identifier}").json()
        return document if document.get("status") == status else None

    return until(found, lambda: client.get("/api/v1/state").text)


@pytest.mark.conformance("H-1", "H-3")
def test_a_daemon_at_work_tells_what_it_does_and_why_the_rest_waits(project: Project) -> None:
    project.skill("greet")
    project.write(".symphony/skills/broken/SKILL.md", "no front matter\n")
    project.commit("Skills")
    project.workflow(agent={"max_concurrent_agents": 1})
    project.issue("SYM-1", [{"wait_for": "never"}])
    project.issue("SYM-2", title=HOSTILE)
    with project.daemon("--port", "0") as daemon, client_of(project, daemon) as client:
        daemon.wait_for("turn_started")
        running = of_issue(client, "SYM-1", "running")
        waiting = of_issue(client, "SYM-2", "waiting")
        state = client.get("/api/v1/state")
        prompt = client.get("/api/v1/SYM-2/prompt").json()
        daemon.signal(signal.SIGTERM)
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0

    assert state.json()["counts"] == {"running": 1, "retrying": 0, "blocked": 0, "waiting": 1, "ready": 0}
    assert state.json()["health"]["status"] == "ok"
    (listed,) = running["skills"]["listed"]
    assert (listed["name"], len(listed["sha256"])) == ("greet", 64)
    malformed = [one for one in running["skills"]["problems"] if one["severity"] == "error"]
    assert [(one["path"], one["code"], len(one["sha256"])) for one in malformed] == [
        (".symphony/skills/broken/SKILL.md", "missing_front_matter", 64)
    ]
    assert running["workspace"]["path"] == str(project.workspaces / "SYM-1")
    assert waiting["waiting"]["reason"] == {"code": "no_slot", "message": "the only agent slot is in use"}
    assert state.headers["content-type"] == "application/json"
    assert "\x1b" not in state.text
    assert "<img" in waiting["title"], "data, kept as it is, for whoever shows it to escape"
    assert prompt["prompt"].startswith("SYM-2: <img")
    assert [one["name"] for one in prompt["skills"]["listed"]] == ["greet"]
    assert "## Available skills" in prompt["envelope"]


@pytest.mark.conformance("H-3", "H-4")
def test_a_refresh_is_taken_from_a_program_and_not_from_a_page_of_another_site(project: Project) -> None:
    project.workflow(polling={"interval_ms": 3_600_000})
    with project.daemon("--port", "0") as daemon, client_of(project, daemon) as client:
        daemon.wait_for("serving")
        until(lambda: client.get("/api/v1/state").json()["health"]["polls"] or None, lambda: "no poll")
        for headers in (
            {"origin": "https://evil.example"},
            {"sec-fetch-site": "cross-site"},
            {"host": "evil.example"},
        ):
            assert client.post("/api/v1/refresh", headers=headers).status_code == 403
        assert client.post("/api/v1/refresh", data={"a": "b"}).status_code == 415
        assert client.get("/api/v1/state", headers={"host": "evil.example"}).status_code == 403
        polls = client.get("/api/v1/state").json()["health"]["polls"]
        answer = client.post("/api/v1/refresh", json={})
        assert (answer.status_code, answer.json()["queued"]) == (202, True)
        until(
            lambda: client.get("/api/v1/state").json()["health"]["polls"] > polls or None,
            lambda: "no new poll",
        )


@pytest.mark.conformance("H-1")
def test_without_a_port_the_control_socket_of_the_owner_answers_all_the_same(project: Project) -> None:
    project.environment["XDG_RUNTIME_DIR"] = ""
    project.workflow()
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        note = json.loads((project.state_dir / "control.json").read_text())
        path = Path(note["socket"])
        assert (note["port"], note["pid"]) == (None, daemon.process.pid)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        transport = httpx.HTTPTransport(uds=str(path), verify=False)
        with httpx.Client(transport=transport, base_url="http://symphony", timeout=DEADLINE_S) as client:
            until(lambda: client.get("/api/v1/state").json().get("counts"), lambda: "no state")
            assert client.post("/api/v1/refresh").status_code == 202
            assert client.get("/api/v1/..%2F..%2Fetc%2Fpasswd").status_code == 404
        assert not [line for line in daemon.events() if line["event"] == "http_serving"]
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
        assert not path.exists()
        assert not (project.state_dir / "control.json").exists()


@pytest.mark.conformance("H-1", "L-2")
def test_a_port_that_is_taken_is_one_line_with_a_hint_and_nothing_is_started(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = project.symphony("run", "--once", "--port", str(port))
    assert done.returncode == 1
    error = [line for line in done.stderr.splitlines() if line.startswith(("error:", "hint:"))]
    assert error[0] == f"error: cannot listen on 127.0.0.1 port {port}: Address already in use [http_server]"
    assert error[1].startswith("hint: give another --port")
    assert "run_started" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.conformance("L-4")
@pytest.mark.parametrize("port", ["-1", "65536", "x", ""])
def test_a_port_that_is_none_is_a_usage_error(project: Project, port: str) -> None:
    project.workflow()
    done = project.symphony("run", "--port", port)
    assert done.returncode == 2
    assert "--port" in done.stderr


def test_off_the_loopback_interface_a_token_is_made_and_needed(project: Project) -> None:
    project.workflow(server={"host": "0.0.0.0", "port": 0})  # noqa: S104 - what is tested
    with project.daemon() as daemon, client_of(project, daemon) as client:
        path = project.state_dir / "operator.token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        token = path.read_text().strip()
        assert client.get("/api/v1/state").status_code in {200, 503}
        assert client.get("/healthz", headers={"authorization": ""}).json() == {"status": "ok"}
        assert client.get("/api/v1/state", headers={"authorization": ""}).status_code == 401
        assert token not in daemon.log.read_text()
