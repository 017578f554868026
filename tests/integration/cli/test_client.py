"""Finding and asking a daemon: a socket that behaves in every way a socket can."""

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.chronicle import populated, sent
from symphony.api.models import Prompt, Refresh, Skills, State
from symphony.cli.client import Client, RefusedError, connect
from symphony.cli.endpoint import Endpoint, UnreachableError, absence_notice, find_daemon
from symphony.cli.failures import CommandError, ExitCode
from symphony.domain import AgentChoice

Handler = Callable[[socket.socket, str], None]

STATE = populated().document()
ISSUE = populated().issue("a/b ü")
PROMPT = sent(
    Prompt(
        issue_identifier="a/b ü",
        source="daemon",
        attempt=None,
        agent=AgentChoice(name="codex", kind="codex", model=None, reason="r", instead_of=None),
        envelope=None,
        prompt="Do it.",
        skills=Skills(),
        note=None,
    )
)
REFRESH = sent(Refresh(queued=True, coalesced=False, requested_at="2026-03-01T12:00:00Z", operations=()))
VERB = {
    "verb": "x",
    "issue_identifier": None,
    "changed": True,
    "message": "so it is",
    "requested_at": "2026-03-01T12:00:00Z",
}


def answer(document: object, *, status: str = "200 OK", head: str = "") -> Handler:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()

    def handle(connection: socket.socket, _: str) -> None:
        connection.sendall(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode() + body)

    return handle


class Listener:
    """Answers each connection by `handler`, in a thread; `asked` are the request lines so far."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self.path, self.asked = path, list[str]()
        self._handler = handler
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):  # it may be closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(60)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                head = b""
                while b"\r\n\r\n" not in head and (piece := connection.recv(65_536)):
                    head += piece
                if head:
                    self.asked.append(head.decode().splitlines()[0])
                    self._handler(connection, head.decode())


@pytest.fixture
def state_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="s-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path)


Listen = Callable[[Handler], Listener]


@pytest.fixture
def listen(state_dir: Path) -> Iterator[Listen]:
    made: list[Listener] = []

    def begin(handler: Handler) -> Listener:
        made.append(Listener(state_dir / "control.sock", handler))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def note(state_dir: Path, **changes: object) -> None:
    """The note that a daemon leaves, of this very process unless told otherwise."""
    fields = {"socket": str(state_dir / "control.sock"), "host": None, "port": None, "pid": os.getpid()}
    (state_dir / "control.json").write_text(json.dumps(fields | changes))


def lock(state_dir: Path, pid: int) -> None:
    (state_dir / "lock").write_text(json.dumps({"pid": pid}))


def found(state_dir: Path) -> Endpoint | None:
    return find_daemon(Path("WORKFLOW.md"), {"SYMPHONY_STATE_DIR": str(state_dir)})


def reached(state_dir: Path) -> Client | None:
    return connect(Path("WORKFLOW.md"), {"SYMPHONY_STATE_DIR": str(state_dir)})


def dead_pid() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def client_of(state_dir: Path, **limits: Any) -> Client:
    endpoint = found(state_dir)
    assert endpoint is not None
    return Client(endpoint, **limits)


def ask(state_dir: Path, **limits: Any) -> State:
    return client_of(state_dir, **limits).state()


# --- finding ---


def test_a_directory_that_is_not_there_means_no_daemon(state_dir: Path) -> None:
    assert found(state_dir / "never") is None
    assert found(state_dir) is None
    (state_dir / "file").write_text("")
    assert found(state_dir / "file") is None


def test_a_live_daemon_is_found_and_asked(state_dir: Path, listen: Listen) -> None:
    listener = listen(answer(STATE))
    note(state_dir, host="127.0.0.1", port=8080)
    client = reached(state_dir)
    assert client is not None
    assert client.state().counts.running == 1
    endpoint = client.endpoint
    assert (endpoint.pid, endpoint.host, endpoint.port) == (os.getpid(), "127.0.0.1", 8080)
    assert endpoint.started is not None
    assert listener.asked == ["GET /api/v1/state HTTP/1.1"]


def test_the_note_of_a_dead_daemon_means_none(state_dir: Path) -> None:
    note(state_dir, pid=dead_pid())
    lock(state_dir, dead_pid())
    assert found(state_dir) is None


def test_a_daemon_that_was_killed_is_told_of_until_another_ends_in_order(
    state_dir: Path, tmp_path: Path
) -> None:
    environment, mine = {"SYMPHONY_STATE_DIR": str(state_dir)}, tmp_path / "WORKFLOW.md"
    pid = dead_pid()
    note(state_dir, pid=pid, workflow=str(mine))
    notice = absence_notice(mine, environment)
    assert notice is not None
    assert notice.startswith(f"The last daemon (pid {pid}) had no normal end")
    assert absence_notice(tmp_path / "OTHER.md", environment) is None
    (state_dir / "control.json").unlink()
    assert absence_notice(mine, environment) is None


def test_a_process_that_began_after_the_note_is_not_the_daemon(state_dir: Path) -> None:
    """After a restart of the machine the number may belong to anybody."""
    note(state_dir)
    lock(state_dir, os.getpid())
    for name in ("control.json", "lock"):
        os.utime(state_dir / name, (1_000_000, 1_000_000))
    assert found(state_dir) is None


def test_the_daemon_of_another_workflow_in_the_same_state_directory_is_none_of_this_one(
    state_dir: Path, tmp_path: Path
) -> None:
    environment = {"SYMPHONY_STATE_DIR": str(state_dir)}
    mine, link, other = tmp_path / "WORKFLOW.md", tmp_path / "link.md", tmp_path / "OTHER.md"
    mine.touch()
    link.symlink_to(mine)
    note(state_dir, workflow=str(mine))
    lock(state_dir, os.getpid())
    assert find_daemon(mine, environment) is not None
    assert find_daemon(link, environment) is not None
    assert absence_notice(mine, environment) is None
    assert find_daemon(other, environment) is None
    notice = absence_notice(other, environment)
    assert notice is not None
    assert f"{mine} (pid {os.getpid()})" in notice
    assert "SYMPHONY_STATE_DIR" in notice
    (state_dir / "control.json").unlink()
    (state_dir / "control.json").mkdir()
    assert absence_notice(other, environment) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"socket": null, "pid": 1}',
        '{"socket": "relative", "pid": 1}',
        '{"socket": "/a\\u0000b", "pid": 1}',
        '{"socket": "/s", "pid": "1"}',
        '{"socket": "/s", "pid": -1}',
        '{"socket": "/s", "pid": 99999999999999999999}',
        "[" * 60_000,
        "\x80",
    ],
)
def test_a_damaged_note_means_none_unless_somebody_holds_the_lock(state_dir: Path, text: str) -> None:
    (state_dir / "control.json").write_bytes(text.encode("latin-1"))
    assert found(state_dir) is None
    for damaged in ("", "x", "-3"):
        (state_dir / "lock").write_text(damaged)
        assert found(state_dir) is None
    lock(state_dir, os.getpid())
    with pytest.raises(UnreachableError, match=f"pid {os.getpid()}") as caught:
        found(state_dir)
    assert caught.value.code is ExitCode.UNREACHABLE
    assert caught.value.failure.hint is not None


def test_what_cannot_be_read_is_an_error_and_not_none(state_dir: Path) -> None:
    (state_dir / "control.json").mkdir()
    with pytest.raises(UnreachableError, match="cannot be read"):
        found(state_dir)


# --- connecting ---


def test_a_socket_that_nobody_serves_is_told(state_dir: Path, listen: Listen) -> None:
    note(state_dir)
    with pytest.raises(UnreachableError, match="cannot be reached"):
        reached(state_dir)
    listen(answer({})).close()
    with pytest.raises(UnreachableError, match="cannot be reached"):
        reached(state_dir)


def test_no_daemon_is_no_client(state_dir: Path) -> None:
    assert reached(state_dir) is None


def test_a_socket_that_another_process_serves_is_not_asked(state_dir: Path, listen: Listen) -> None:
    listener = listen(answer({}))
    note(state_dir, pid=os.getppid())
    with pytest.raises(UnreachableError, match="another process"):
        reached(state_dir)
    assert listener.asked == []


def test_a_path_that_no_socket_can_have_is_told(state_dir: Path) -> None:
    note(state_dir, socket="/" + "x" * 500)
    with pytest.raises(UnreachableError, match="cannot be reached"):
        reached(state_dir)


# --- asking ---


def test_a_daemon_that_never_answers_is_given_up(state_dir: Path, listen: Listen) -> None:
    gate = threading.Event()

    def wait(_: socket.socket, __: str) -> None:
        gate.wait(20)

    listen(wait)
    note(state_dir)
    with pytest.raises(UnreachableError, match=r"did not answer within 0\.1 s"):
        ask(state_dir, answer_s=0.1)
    gate.set()


def test_a_drip_of_bytes_is_no_answer(state_dir: Path, listen: Listen) -> None:
    gate = threading.Event()

    def drip(connection: socket.socket, _: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        try:
            while not gate.wait(0.01):
                connection.sendall(b" ")
        except OSError:
            return

    listen(drip)
    note(state_dir)
    with pytest.raises(UnreachableError, match="did not answer"):
        ask(state_dir, answer_s=0.2)
    gate.set()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{}",
    ],
)
def test_a_daemon_killed_in_mid_answer_is_told(state_dir: Path, listen: Listen, sent: bytes) -> None:
    listen(lambda connection, _: connection.sendall(sent))
    note(state_dir)
    with pytest.raises(UnreachableError, match="broke off"):
        ask(state_dir)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"x"', b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_document_is_told(state_dir: Path, listen: Listen, body: bytes) -> None:
    listen(answer(body))
    note(state_dir)
    with pytest.raises(UnreachableError, match="not a daemon of this program"):
        ask(state_dir)


def test_a_later_daemon_may_say_more(state_dir: Path, listen: Listen) -> None:
    more = {**STATE, "weather": "fine", "counts": {**STATE["counts"], "resting": 3}}
    listen(answer(more))
    note(state_dir)
    assert ask(state_dir).counts.running == 1


@pytest.mark.parametrize(
    ("changes", "place"),
    [({"counts": 3}, "$.counts"), ({"running": [{}]}, "$.running[0]"), ({"paused": "yes"}, "$.paused")],
)
def test_an_answer_of_another_form_is_told_by_its_place_in_one_line(
    state_dir: Path, listen: Listen, changes: dict[str, object], place: str
) -> None:
    listen(answer({**STATE, **changes}))
    note(state_dir)
    with pytest.raises(UnreachableError) as caught:
        ask(state_dir)
    failure = caught.value.failure
    assert f"at `{place}`" in failure.message
    assert "restart the daemon" in (failure.hint or "")
    assert "\n" not in failure.message


def test_what_is_no_http_is_told(state_dir: Path, listen: Listen) -> None:
    listen(lambda connection, _: connection.sendall(b"SSH-2.0-OpenSSH\r\n"))
    note(state_dir)
    with pytest.raises(UnreachableError, match="broke off"):
        ask(state_dir)


def test_an_answer_without_end_is_given_up(state_dir: Path, listen: Listen) -> None:
    listen(answer({"text": "x" * 100}))
    note(state_dir)
    with pytest.raises(UnreachableError, match="no end"):
        ask(state_dir, max_bytes=10)


def test_redirects_and_proxies_are_not_followed(
    state_dir: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    listener = listen(answer({}, status="302 Found", head="location: /elsewhere\r\n"))
    note(state_dir)
    with pytest.raises(CommandError, match="status 302"):
        ask(state_dir)
    assert len(listener.asked) == 1


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [("503 x", UnreachableError, ExitCode.UNREACHABLE), ("500 x", CommandError, ExitCode.FAILURE)],
)
def test_a_refusal_is_told_in_the_daemons_words(
    state_dir: Path, listen: Listen, status: str, kind: type[CommandError], code: ExitCode
) -> None:
    listen(answer({"error": {"code": "c", "message": "starting", "hint": "wait"}}, status=status))
    note(state_dir)
    with pytest.raises(kind) as caught:
        ask(state_dir)
    assert (caught.value.failure.message, caught.value.failure.hint) == ("starting", "wait")
    assert (caught.value.code or ExitCode.FAILURE) is code


@pytest.mark.parametrize("error", [None, "x", {}, {"message": None}])
def test_a_refusal_without_words_is_told_too(state_dir: Path, listen: Listen, error: object) -> None:
    listen(answer({"error": error}, status="500 x"))
    note(state_dir)
    with pytest.raises(CommandError, match="status 500"):
        ask(state_dir)


def test_every_question_has_its_route(state_dir: Path, listen: Listen) -> None:
    answers = {
        "/api/v1/state": STATE,
        "/api/v1/refresh": REFRESH,
        "/api/v1/a%2Fb%20%C3%BC/prompt": PROMPT,
    }

    def handle(connection: socket.socket, head: str) -> None:
        answer(answers.get(head.split()[1], ISSUE))(connection, head)

    listener = listen(handle)
    note(state_dir)
    client = client_of(state_dir)
    assert client.issue("a/b ü") is not None
    assert client.issue("state") is None, "a fixed route answered"
    assert client.issue("..") is None
    assert client.prompt("a/b ü") is not None
    assert client.refresh().queued is True
    assert [line.removesuffix(" HTTP/1.1") for line in listener.asked] == [
        "GET /api/v1/a%2Fb%20%C3%BC",
        "GET /api/v1/state",
        "GET /api/v1/%2E%2E",
        "GET /api/v1/a%2Fb%20%C3%BC/prompt",
        "POST /api/v1/refresh",
    ]


def test_what_a_daemon_does_not_know_is_null_or_another_version(state_dir: Path, listen: Listen) -> None:
    listen(answer({"error": {"code": "issue_not_found", "message": "no"}}, status="404 x"))
    note(state_dir)
    client = client_of(state_dir)
    assert client.issue("A") is None
    assert client.prompt("A") is None
    with pytest.raises(UnreachableError, match="another version"):
        client.state()
    with pytest.raises(UnreachableError, match="another version"):
        client.refresh()


def test_each_question_has_a_connection_of_its_own(state_dir: Path, listen: Listen) -> None:
    """One that is used again could be one that the daemon closes at this moment."""
    after: list[bytes] = []

    def stay(connection: socket.socket, head: str) -> None:
        answer(STATE)(connection, head)
        connection.settimeout(30)
        after.append(connection.recv(1))

    listener = listen(stay)
    note(state_dir)
    client = client_of(state_dir)
    for _ in range(3):
        assert client.state().counts.running == 1
    listener.close()
    assert after == [b""] * 3


# --- orders ---


def test_an_order_goes_out_as_a_post_and_an_answer_as_json(state_dir: Path, listen: Listen) -> None:
    told: list[str] = []

    def handle(connection: socket.socket, head: str) -> None:
        told.append(head)
        answer(VERB)(connection, head)

    listener = listen(handle)
    note(state_dir)
    client = client_of(state_dir)
    assert client.act("pause").verb == "x"
    assert client.act_on_issue("stop", "a/b") is not None
    assert client.act_on_issue("answer", "SYM-1", text="Bl\u00fc \ud800") is not None
    assert listener.asked == [
        "POST /api/v1/control/pause HTTP/1.1",
        "POST /api/v1/a%2Fb/stop HTTP/1.1",
        "POST /api/v1/SYM-1/answer HTTP/1.1",
    ]
    assert "content-type: application/json" in told[2].lower()
    assert "content-type" not in told[0].lower()


def test_an_order_for_an_issue_that_is_not_known_is_null(state_dir: Path, listen: Listen) -> None:
    listen(answer({"error": {"code": "issue_not_found", "message": "no"}}, status="404 Not Found"))
    note(state_dir)
    client = client_of(state_dir)
    assert client.act_on_issue("stop", "SYM-9") is None
    with pytest.raises(UnreachableError, match="another version"):
        client.act("pause")


def test_an_order_that_is_refused_tells_its_code(state_dir: Path, listen: Listen) -> None:
    refusal = {"error": {"code": "already_paused", "message": "it is paused", "hint": "resume it"}}
    listen(answer(refusal, status="409 Conflict"))
    note(state_dir)
    client = client_of(state_dir)
    with pytest.raises(RefusedError) as refused:
        client.act("pause")
    assert (refused.value.reason, refused.value.code) == ("already_paused", ExitCode.FAILURE)
    assert (refused.value.failure.message, refused.value.failure.hint) == ("it is paused", "resume it")
