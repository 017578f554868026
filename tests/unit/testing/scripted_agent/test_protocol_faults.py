from pathlib import Path

import pytest

from symphony.testing.scripted_agent import command
from symphony.testing.scripted_agent.protocol import Faults, read_switches


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
