import json
import threading
from pathlib import Path

import pytest

from symphony.testing.scripted_agent import command
from symphony.testing.scripted_agent.protocol import ClientGoneError, Faults, Wire, read_switches


def test_no_switch_is_no_fault() -> None:
    assert read_switches([]) == Faults() == read_switches(["app-server"])


def test_every_switch_is_read() -> None:
    argv = [
        *("--ignore-eof", "--ignore-sigterm", "--garbage", "--split-lines", "--huge-line", "9"),
        *("--silent-after", "turn/start", "--exit-on", "turn/started:7", "--stderr-flood", "8"),
        *("--unknown-request", "--slow-start", "3", "--own-session-child", "--pid-file", "there"),
    ]
    assert read_switches(argv) == Faults(
        ignore_eof=True,
        ignore_sigterm=True,
        garbage=True,
        split_lines=True,
        huge_line=9,
        silent_after="turn/start",
        exit_on="turn/started",
        exit_code=7,
        stderr_flood=8,
        unknown_request=True,
        slow_start_ms=3,
        own_session_child=True,
        pid_file=Path("there"),
    )


def test_an_unknown_switch_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_switches(["--nonsense"])
    assert ended.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


def test_the_command_is_quoted_for_a_shell() -> None:
    assert command("--pid-file", "a b").endswith(" -P -m symphony.testing.scripted_agent --pid-file 'a b'")


def test_a_split_line_is_cut_inside_a_character() -> None:
    written: list[bytes] = []
    Wire(written.append, Faults(split_lines=True)).result(1, {"text": "abc€def" * 5})
    assert len(written) == 3
    with pytest.raises(UnicodeDecodeError):
        written[1].decode()
    assert json.loads(b"".join(written)) == {"id": 1, "result": {"text": "abc€def" * 5}}


def test_whoever_waits_is_told_when_the_client_is_gone() -> None:
    wire = Wire(lambda _: None, Faults())
    wire.wake(gone=True)
    with pytest.raises(ClientGoneError):
        wire.ask("item/tool/call", {}, threading.Event())


def test_a_fault_that_ends_the_process_strikes_after_the_line() -> None:
    written: list[bytes] = []
    left: list[int] = []
    wire = Wire(written.append, Faults(exit_on="turn/started", exit_code=4), leave=left.append)
    wire.notify("turn/completed", {})
    assert left == []
    wire.notify("turn/started", {})
    assert left == [4]
    assert len(written) == 2
