"""The commands that steer a daemon, in this process: what they send and print, and how they fail."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from typing_extensions import override

from published.schemas import conforms_to
from symphony.api.interface import MAX_ANSWER_CHARS
from symphony.api.models import Verb
from symphony.cli.client import RefusedError
from symphony.cli.commands import steer
from symphony.cli.endpoint import Endpoint, UnreachableError
from symphony.cli.failures import CommandError
from symphony.cli.main import main

ROOT = Path(__file__).parents[3]


class FakeClient:
    """A daemon that knows SYM-1 and accepts every action; with `fails` it raises that instead."""

    def __init__(self, pid: int = 4711) -> None:
        self.endpoint = Endpoint(socket=Path("/s"), pid=pid)
        self.given: list[tuple[str, str | None, str | None]] = []
        self.fails: CommandError | None = None
        self.names = ["SYM-1"]

    def identifiers(self) -> list[str]:
        return self.names

    def act(self, verb: str) -> Verb:
        return self._done(verb, None, None)

    def act_on_issue(self, verb: str, identifier: str, *, text: str | None = None) -> Verb | None:
        return self._done(verb, identifier, text) if identifier == "SYM-1" else None

    def _done(self, verb: str, identifier: str | None, text: str | None) -> Verb:
        if self.fails is not None:
            raise self.fails
        self.given.append((verb, identifier, text))
        return Verb(
            verb=verb,
            issue_identifier=identifier,
            changed=True,
            message="so\x1b[31m it \nwill be",
            requested_at="2026-03-01T12:00:00Z",
        )


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient(os.getpid())
    monkeypatch.setattr("symphony.cli.client.connect", lambda *_: client)
    return client


def run(*arguments: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=given)


def failed(done: Result, code: int = 1) -> str:
    """What was said on stderr."""
    assert done.exit_code == code
    return done.stderr


# --- what is sent and printed ---


@pytest.mark.parametrize("verb", ["stop", "retry", "unblock"])
def test_an_action_on_an_issue(daemon: FakeClient, verb: str) -> None:
    done = run(verb, "sym-1")
    assert (done.exit_code, done.stdout) == (0, "SYM-1: so it will be.\n")
    assert daemon.given == [(verb, "SYM-1", None)]


@pytest.mark.parametrize("verb", ["pause", "resume", "drain"])
def test_an_action_on_the_daemon(daemon: FakeClient, verb: str) -> None:
    done = run(verb)
    assert (done.exit_code, done.stdout) == (0, "So it will be.\n")
    assert daemon.given == [(verb, None, None)]


@pytest.mark.parametrize(
    "arguments",
    [("stop", "SYM-1"), ("retry", "SYM-1"), ("unblock", "SYM-1"), ("answer", "SYM-1", "Blue"), ("pause",),
     ("resume",), ("drain",)],
)  # fmt: skip
def test_the_json_of_every_action_has_its_schema(daemon: FakeClient, arguments: tuple[str, ...]) -> None:
    found = json.loads(run(*arguments, "--json").stdout)
    conforms_to("order", found)
    assert found["verb"] == arguments[0] == daemon.given[0][0]


@pytest.mark.parametrize("verb", ["stop", "retry", "unblock", "move", "answer", "pause", "resume", "drain"])
def test_every_command_has_help_with_examples_and_exit_codes(verb: str) -> None:
    shown = run(verb, "--help").stdout
    assert f"symphony {verb}" in shown
    assert "Examples:" in shown
    assert "Exit codes: 0 " in shown


# --- several issues ---


def test_each_of_several_issues_has_its_own_result(daemon: FakeClient) -> None:
    daemon.names = ["SYM-1", "SYM-2"]
    done = run("unblock", "SYM-1", "SYM-9", "sym-1", "SYM-1")
    assert daemon.given == [("unblock", "SYM-1", None), ("unblock", "SYM-1", None)]
    assert (done.exit_code, done.stdout) == (1, "SYM-1: so it will be.\n" * 2)
    assert [line[:13] for line in done.stderr.splitlines()] == ["error: SYM-9:", "hint: did you"]

    printed = json.loads(run("unblock", "SYM-1", "SYM-9", "--json").stdout)
    conforms_to("order", printed)
    assert [(one["issue_identifier"], one["done"]) for one in printed["orders"]] == [
        ("SYM-1", True),
        ("SYM-9", False),
    ]
    assert run("stop").exit_code == 2


def test_a_move_needs_a_state_and_takes_several_issues(daemon: FakeClient) -> None:
    assert run("move", "SYM-1").exit_code == 2
    assert run("move", "SYM-1", "sym-1", "--to", "Human Review").exit_code == 0
    assert daemon.given == [("move", "SYM-1", "Human Review")] * 2


def test_a_daemon_that_ends_meanwhile_is_the_worst_of_the_results(daemon: FakeClient) -> None:
    daemon.fails = UnreachableError("it broke off", hint="start it")
    assert run("retry", "SYM-1", "SYM-2").exit_code == 5


# --- what is refused ---


def test_a_refusal_is_one_line_with_a_hint(daemon: FakeClient) -> None:
    daemon.fails = RefusedError("an agent is running", hint="stop it", reason="running")
    assert failed(run("retry", "SYM-1")) == "error: an agent is running\nhint: stop it\n"


def test_an_issue_that_appears_meanwhile_is_not_called_unknown(daemon: FakeClient) -> None:
    daemon.names = ["SYM-2"]
    said = failed(run("stop", "SYM-2"))
    assert "did not take this for SYM-2, which it has" in said
    assert "older version" in said
    assert "did you mean SYM-2?" in failed(run("stop", "SYM-22"))


# --- answers ---


def test_an_answer_from_the_command_line_a_file_and_a_pipe(daemon: FakeClient, tmp_path: Path) -> None:
    file = tmp_path / "answer.md"
    file.write_text("# Blue\n\nünd so weiter\n", encoding="utf-8")
    assert run("answer", "SYM-1", "Blue").exit_code == 0
    assert run("answer", "SYM-1", "--file", str(file)).exit_code == 0
    assert run("answer", "SYM-1", "-", given=b"Bl\xc3\xbc\n").exit_code == 0
    assert [text for _, _, text in daemon.given] == ["Blue", "# Blue\n\nünd so weiter\n", "Blü\n"]


def test_the_longest_answer_is_sent_whole(daemon: FakeClient) -> None:
    longest = "\U0001f3bc" * MAX_ANSWER_CHARS
    assert run("answer", "SYM-1", "-", given=longest.encode()).exit_code == 0
    assert daemon.given == [("answer", "SYM-1", longest)]


@pytest.mark.parametrize(
    ("arguments", "given", "complaint"),
    [
        ((), None, "--file"),
        (("Blue", "--file", __file__), None, "--file"),
        (("--file", "/nowhere/at/all"), None, "does not exist"),
        (("",), None, "empty"),
        ((" \t",), None, "empty"),
        (("-",), b" \n", "empty"),
        (("-",), b"\xff\xfe", "not UTF-8"),
        (("-",), b"x" * (MAX_ANSWER_CHARS + 1), "at most 20000 characters"),
        (("-",), ("\U0001f3bc" * MAX_ANSWER_CHARS).encode() + b"\xf0", "at most 20000 characters"),
        (("x" * (MAX_ANSWER_CHARS + 1),), None, "at most 20000 characters"),
    ],
)
def test_an_unusable_answer_is_a_usage_error(
    daemon: FakeClient, arguments: tuple[str, ...], given: bytes | None, complaint: str
) -> None:
    done = run("answer", "SYM-1", *arguments, given=given)
    assert done.exit_code == 2
    assert complaint in done.stderr
    assert daemon.given == []


def test_an_argument_that_is_not_utf8_is_a_usage_error(daemon: FakeClient) -> None:
    assert run("answer", "SYM-1", "\udcff").exit_code == 2
    assert daemon.given == []


# --- waiting for the end ---

Child = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def child() -> Iterator[Child]:
    made: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> "subprocess.Popen[bytes]":
        made.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.wait()
        if one.stdin is not None:
            one.stdin.close()


class EndingDaemon(FakeClient):
    """A daemon whose process is one of the test, and ends on request."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(process.pid)
        self.process = process

    @override
    def act(self, verb: str) -> Verb:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return super().act(verb)


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (None, "So it will be.\nThe daemon has ended.\n"),
        (UnreachableError("it broke off", hint=""), "The daemon has ended.\n"),
    ],
)
def test_a_drain_waits_for_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch, child: Child, fails: CommandError | None, said: str
) -> None:
    client = EndingDaemon(child("import sys; sys.stdin.read()"))
    client.fails = fails
    monkeypatch.setattr("symphony.cli.client.connect", lambda *_: client)
    done = run("drain", "--wait")
    assert (done.exit_code, done.stdout) == (0, said)
    assert client.process.wait() == 0


def test_a_daemon_that_has_ended_already_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, child: Child
) -> None:
    process = child("")
    process.wait()
    client = FakeClient(process.pid)
    monkeypatch.setattr("symphony.cli.client.connect", lambda *_: client)
    assert run("drain", "--wait").stdout.endswith("The daemon has ended.\n")


def test_a_daemon_that_ends_during_the_drain_request_is_reported_as_ended(
    monkeypatch: pytest.MonkeyPatch, child: Child
) -> None:
    client = EndingDaemon(child("import sys; sys.stdin.read()"))
    client.fails = UnreachableError("it broke off", hint="restart it")
    monkeypatch.setattr("symphony.cli.client.connect", lambda *_: client)
    monkeypatch.setattr(steer, "_MOMENT_S", None)
    said = failed(run("drain"), 5)
    assert "ended before it answered" in said
    assert said.endswith("hint: nothing is left to drain\n")


def test_a_daemon_that_cannot_be_reached_and_does_not_end_is_an_error(
    daemon: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steer, "_LAST_STEPS_S", 0.0)
    monkeypatch.setattr(steer, "_MOMENT_S", 0.0)
    daemon.fails = UnreachableError("it broke off", hint="look")
    failed(run("drain", "--wait"), 5)
    assert failed(run("drain"), 5) == "error: it broke off\nhint: look\n"
    daemon.fails = RefusedError("no", hint="", reason="other")
    failed(run("drain", "--wait"))
