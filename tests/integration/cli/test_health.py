"""`symphony health` beside a real daemon, and beside sockets that behave badly."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.project import Project
from published.schemas import conforms_to
from symphony.cli.commands.health import check_answer
from symphony.cli.endpoint import Endpoint, UnreachableError
from symphony.cli.main import main


def _json(told: str) -> dict[str, object]:
    document = json.loads(told)
    conforms_to("health", document)
    assert isinstance(document, dict)
    return document


def test_it_goes_with_the_daemon(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow()
    done = project.symphony("health")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.splitlines() == [
        "error: no daemon is running for WORKFLOW.md",
        "hint: start one: symphony run",
    ]
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        done = project.symphony("health")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"The daemon (pid {daemon.process.pid}) answers.\n"
        told = _json(project.symphony("health", "--json").stdout)
        assert told == {"healthy": True, "pid": daemon.process.pid, "problem": None}


@contextmanager
def _served(place: Path, answer: bytes | None) -> Iterator[None]:
    """A state directory whose socket answers so, and never for null; this process stands for the daemon."""
    path = place / "s"
    (place / "control.json").write_text(
        json.dumps({"socket": str(path), "pid": os.getpid()}), encoding="utf-8"
    )
    over = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4_096)
            if answer is None:
                over.wait(60)
            else:
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30)


def _asked(place: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["health", *options], env={"SYMPHONY_STATE_DIR": str(place)})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("answer", [b"HTTP/1.1 500 Oh\r\n\r\n", b"", b"what?", b"\xff" * 10_000])
def test_a_strange_answer_is_not_healthy(place: Path, answer: bytes) -> None:
    with _served(place, answer):
        done = _asked(place)
    assert done.exit_code == 5
    assert "does not answer as it should" in done.stderr


def test_no_answer_in_time_is_not_healthy(place: Path) -> None:
    with _served(place, None), pytest.raises(UnreachableError, match="nothing within"):
        check_answer(Endpoint(socket=place / "s", pid=os.getpid()), timeout_s=0.05)


def test_a_socket_that_nobody_serves_is_not_healthy(place: Path) -> None:
    with _served(place, b"HTTP/1.1 200 OK\r\n\r\n"):
        assert _asked(place).exit_code == 0
    done = _asked(place)
    assert done.exit_code == 5
    assert "Connection refused" in done.stderr
    found = _json(_asked(place, "--json").stdout)
    assert found["healthy"] is False
    assert "Connection refused" in str(found["problem"])
