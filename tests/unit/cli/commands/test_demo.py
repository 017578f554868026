import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from harness.scheduling import make_issue
from harness.shell import word
from symphony.cli.commands import demo as demo_command
from symphony.cli.commands.demo import ProgressLines, ProgressTable
from symphony.cli.documents import DemoComment
from symphony.cli.main import main
from symphony.cli.summary import IssueSummary, RunSummary
from symphony.daemon.admission import open_store
from symphony.daemon.core import StepObserver

SCRIPT_FENCE = "```scripted"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def show(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["demo", *arguments])


def finish(repository: Path, *identifiers: str) -> RunSummary:
    """What a daemon would leave behind: issues that are done, with a commit each."""
    tally = RunSummary()
    for path in sorted((repository / ".symphony" / "issues").glob("*.md")):
        if path.stem in identifiers:
            path.write_text(path.read_text().replace("state: Todo", "state: Done"))
        issue = make_issue(path.stem, id=path.stem, identifier=path.stem)
        tally.issues[path.stem] = IssueSummary(
            issue=issue, attempts=1, turns=1, commits=1, branch=f"symphony/{path.stem}", workspace="/w"
        )
    return tally


class Daemon:
    """Stands in for `serve`: finishes the issues it is told to, or fails."""

    def __init__(self, finished: int) -> None:
        self.finished = finished
        self.calls: list[dict[str, Any]] = []
        self.descriptions = ""

    def __call__(self, workflow: Path, **options: Any) -> RunSummary:
        self.calls.append({"workflow": workflow, **options})
        options["log_path"].write_text("the log [/] of the daemon\n")
        board = sorted((workflow.parent / ".symphony" / "issues").glob("*.md"))
        self.descriptions = "".join(path.read_text() for path in board)
        return finish(workflow.parent, *(path.stem for path in board[: self.finished]))


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon(4)
    monkeypatch.setattr(demo_command, "serve", made)
    return made


def test_four_issues_and_a_line_on_what_to_do_next(tmp_path: Path, daemon: Daemon) -> None:
    done = show("--dir", str(tmp_path / "d"))
    assert done.exit_code == 0, done.output
    (call,) = daemon.calls
    assert call["workflow"] == tmp_path / "d" / "repo" / "WORKFLOW.md"
    assert (call["once"], call["state_path"]) == (True, tmp_path / "d" / "state")
    assert "no model is involved" in done.stdout
    assert "Next, in your own repository:" in done.stdout
    assert f"git -C {word(tmp_path / 'd' / 'repo')} log" in done.stdout
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=tmp_path / "d" / "repo", capture_output=True, text=True, check=True
    )
    assert log.stdout == "Begin with a small greeter\n"


def test_the_scripted_agent_gets_scripts_and_the_real_one_gets_none(tmp_path: Path, daemon: Daemon) -> None:
    show("--dir", str(tmp_path / "a"))
    assert SCRIPT_FENCE in daemon.descriptions
    settings = open_store(tmp_path / "a" / "repo" / "WORKFLOW.md", {}).current().settings
    assert "-m symphony.testing.scripted_agent" in settings.codex.command
    assert " -P " in settings.codex.command, "a workspace is kept off the module path"
    done = show("--dir", str(tmp_path / "b"), "--agent", "codex")
    assert SCRIPT_FENCE not in daemon.descriptions
    assert "uses your quota" in done.stdout
    settings = open_store(tmp_path / "b" / "repo" / "WORKFLOW.md", {}).current().settings
    assert settings.codex.command == "codex app-server"


def test_as_json_it_prints_one_object_and_nothing_else_on_stdout(tmp_path: Path, daemon: Daemon) -> None:
    done = show("--dir", str(tmp_path / "d"), "--json")
    assert daemon.calls
    result = json.loads(done.stdout)
    assert list(result) == ["ok", "dir", "issues", "comments", "learned"]
    assert (result["ok"], result["dir"]) == (True, str(tmp_path / "d"))
    assert len(result["issues"]) == 4
    assert list(result["issues"][0]) == [
        "identifier",
        "state",
        "attempts",
        "turns",
        "branch",
        "commits",
        "workspace",
    ]


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_when_something_is_left_the_exit_code_and_the_log_say_so(
    tmp_path: Path, daemon: Daemon, arguments: tuple[str, ...]
) -> None:
    daemon.finished = 3
    done = show("--dir", str(tmp_path / "d"), *arguments)
    assert done.exit_code == 1
    if arguments:
        assert json.loads(done.stdout)["ok"] is False
    else:
        assert "Not everything finished:\n  DEMO-4 is in Todo" in done.stdout
        assert f"Log: {tmp_path / 'd' / 'symphony.log'}" in done.stdout


def test_without_a_directory_nothing_is_left_behind(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = show()
    assert done.exit_code == 0
    assert "removed at the end" in done.stdout
    assert daemon.calls[0]["workflow"].is_relative_to(tmp_path / ".cache" / "symphony")
    assert list((tmp_path / ".cache" / "symphony").iterdir()) == []


def test_an_issue_that_never_started_counts_as_nothing_done() -> None:
    issue = make_issue("1", state="Done")
    result = demo_command.result_document(Path("/d"), RunSummary(), [issue], [])
    assert (result.ok, result.issues[0].attempts, result.issues[0].branch) == (False, 0, None)


def test_the_comment_of_the_daemon_is_shown_once_with_all_its_issues(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(workflow: Path, **options: Any) -> RunSummary:
        tally = daemon(workflow, **options)
        for name in ("DEMO-1", "DEMO-2"):
            folder = workflow.parent / ".symphony" / "issues" / name / "comments"
            folder.mkdir(parents=True)
        return tally

    monkeypatch.setattr(demo_command, "serve", serve)
    out = io.StringIO()
    comments = (
        DemoComment(issue_identifier="DEMO-1", id="1", mine=True, body="<!-- m -->\nBroken: [a]\n"),
        DemoComment(issue_identifier="DEMO-2", id="2", mine=True, body="<!-- n -->\nBroken: [a]\n"),
        DemoComment(issue_identifier="DEMO-3", id="3", mine=False, body="A person's word"),
    )
    demo_command.print_comments(Console(file=out, width=200), comments)
    assert out.getvalue().count("Broken: [a]") == 1
    assert "Comment on DEMO-1, DEMO-2" in out.getvalue()
    assert "A person" not in out.getvalue()
    assert show("--dir", str(tmp_path / "d")).exit_code == 0


@pytest.mark.parametrize(("terminal", "kind"), [(True, ProgressTable), (False, ProgressLines)])
def test_a_terminal_gets_a_table_and_a_pipe_gets_lines(
    tmp_path: Path,
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    terminal: object,
    kind: type[StepObserver],
) -> None:
    monkeypatch.setattr(
        demo_command, "Console", lambda **_: Console(file=io.StringIO(), force_terminal=bool(terminal))
    )
    show("--dir", str(tmp_path / "d"))
    assert isinstance(daemon.calls[0]["observers"][0], kind)


# --- bad places ---


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path, daemon: Daemon) -> None:
    (tmp_path / "mine").write_text("mine")
    done = show("--dir", str(tmp_path))
    assert done.exit_code == 2
    assert "is not empty" in done.stderr
    assert not daemon.calls


def test_an_empty_directory_is_used(tmp_path: Path, daemon: Daemon) -> None:
    assert show("--dir", str(tmp_path)).exit_code == 0
    assert daemon.calls


def test_a_place_that_cannot_be_made_is_told_in_one_line(tmp_path: Path, daemon: Daemon) -> None:
    (tmp_path / "file").write_text("")
    done = show("--dir", str(tmp_path / "file" / "d"))
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the demo cannot be set up in ")
    assert "hint: name another place with --dir" in done.stderr
    assert not daemon.calls


def test_a_home_that_cannot_be_written_is_told_in_one_line(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".cache").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    done = show()
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 2)
    assert not daemon.calls


def test_commits_work_though_the_user_signs_theirs_and_has_hooks(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = /nowhere/gpg\n[core]\n\thooksPath = {hooks}\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    done = show("--dir", str(tmp_path / "d"))
    assert done.exit_code == 0, done.stderr
    assert daemon.calls


def test_git_that_refuses_is_quoted(tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "gitconfig"
    broken.write_text("[broken\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(broken))
    done = show("--dir", str(tmp_path / "d"))
    assert done.exit_code == 1
    assert "bad config" in done.stderr
    assert not daemon.calls
