import json
import os
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from typing_extensions import override

import symphony.cli.client
import symphony.cli.options
from harness.pictures import busy, status_of
from symphony.api.models import State
from symphony.cli.main import main
from symphony.domain import ALL_ISSUES, Selection


def offered(*words: str) -> list[str]:
    """What a shell would show behind these words, the last of which is begun."""
    shell = BashComplete(main, {}, "symphony", "_SYMPHONY_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    folder = tmp_path / ".symphony" / "issues"
    folder.mkdir(parents=True)
    for name in ("SYM-1.md", "SYM-20.md", "OTHER-1.md", ".draft.md", "SYM-3.txt"):
        (folder / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "explain",
        "stop",
        "retry",
        "unblock",
        "answer",
        "logs",
        "transcript",
        "prompt",
        "issue show",
        "tracker move",
    ],
)
def test_issues_of_the_board_are_offered(board: Path, command: str) -> None:
    assert offered(*command.split(), "sym-") == ["SYM-1", "SYM-20"]
    assert offered(*command.split(), "") == ["OTHER-1", "SYM-1", "SYM-20"]
    assert board.is_dir()


def test_commands_and_options_are_offered() -> None:
    assert offered("exp") == ["explain"]
    assert "--workflow" in offered("explain", "--w")
    assert offered("completion", "") == ["bash", "zsh", "fish"]


def test_commands_are_offered_behind_help(board: Path) -> None:
    assert offered("help", "ex") == ["explain"]
    assert offered("help", "skills", "se") == ["search"]
    assert offered("help", "status", "") == offered("help", "nope", "") == []
    assert board.is_dir()


def test_issues_are_those_of_the_directory_that_was_named(board: Path) -> None:
    (board / "WORKFLOW.md").touch()
    (board / ".git").mkdir()
    (board / "src").mkdir()
    os.chdir(board.parent)
    assert offered("explain", "sym-") == []
    assert offered("-C", board.name, "explain", "sym-") == ["SYM-1", "SYM-20"]
    os.chdir(board.parent)
    assert offered("explain", "-C", f"{board.name}/src", "sym-") == ["SYM-1", "SYM-20"], "found upwards"
    assert offered("-C", "nowhere", "explain", "oth") == ["OTHER-1"], "a wrong directory is no error"
    assert "-C" in offered("status", "-")


def _note(state: Path) -> None:
    state.mkdir()
    note = {"socket": str(state / "none.sock"), "pid": os.getpid()}
    (state / "control.json").write_text(json.dumps(note))


def test_a_daemon_that_does_not_answer_is_no_error(board: Path) -> None:
    _note(board / "state")
    assert offered("explain", "") == []


def test_what_the_daemon_knows_is_offered(board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _note(board / "state")
    (run, _), (waits, _) = busy()["running"], busy()["waiting"]
    rows = {
        "running": [run | {"issue_identifier": "LIN-0"}],
        "waiting": [waits | {"issue_identifier": "LIN-1"}],
    }

    class Answering(symphony.cli.client.Client):
        @override
        def state(self, only: Selection = ALL_ISSUES) -> State:
            return status_of(busy(**rows))

    monkeypatch.setattr(symphony.cli.options, "Client", Answering)
    monkeypatch.setattr(symphony.cli.options, "check_listener", lambda _: None)
    assert offered("explain", "lin") == ["LIN-0", "LIN-1"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert f"_SYMPHONY_COMPLETE={shell}_complete" in done.stdout
