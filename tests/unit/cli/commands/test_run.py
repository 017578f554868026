import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from anyio import to_thread
from click.testing import CliRunner, Result
from typing_extensions import override

from harness.scheduling import make_failure, make_issue, make_settings
from symphony.cli import serving
from symphony.cli.commands import run as run_command
from symphony.cli.failures import ExitCode
from symphony.cli.main import main
from symphony.cli.summary import IssueSummary, RunSummary
from symphony.config import WorkflowStore
from symphony.daemon.admission import ACKNOWLEDGEMENT
from symphony.daemon.core import StepObserver
from symphony.domain import Category
from symphony.scheduler import Blocked, LimitedAgent, Retry, SettingsChanged, State, WakeAsked, initial_state

SECRET = "correct-h0rse-battery"


class Daemon:
    """Stands in for `serve` and remembers how it was called."""

    def __init__(self) -> None:
        self.tally = RunSummary()
        self.calls: list[dict[str, Any]] = []

    def __call__(self, workflow: Path, **options: Any) -> RunSummary:
        self.calls.append({"workflow": workflow, **options})
        return self.tally


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon()
    monkeypatch.setattr(run_command, "serve", made)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["run", *arguments])


@pytest.mark.conformance("W-1", "L-1")
def test_without_a_path_it_serves_the_file_beside_it(daemon: Daemon) -> None:
    assert run().exit_code == 0
    (call,) = daemon.calls
    assert call["workflow"] == Path("WORKFLOW.md")
    assert (call["once"], call["log_format"], call["log_level"]) == (False, "auto", "info")
    assert call["port"] is None


@pytest.mark.parametrize(
    "arguments", [("x/W.md",), ("--workflow", "x/W.md"), ("--workflow=x/W.md", "--once")]
)
def test_the_file_is_named_as_the_other_commands_name_it_too(
    daemon: Daemon, arguments: tuple[str, ...]
) -> None:
    assert run(*arguments).exit_code == 0
    assert daemon.calls[0]["workflow"] == Path("x/W.md")


@pytest.mark.conformance("W-1", "L-1")
def test_options_reach_the_daemon(daemon: Daemon) -> None:
    assert (
        run("x/W.md", "--once", "--log-format", "json", "--log-level", "debug", "--port", "0").exit_code == 0
    )
    (call,) = daemon.calls
    assert call["workflow"] == Path("x/W.md")
    assert (call["once"], call["log_format"], call["log_level"]) == (True, "json", "debug")
    assert call["port"] == 0
    assert (call["logs_root"], call["acknowledged"]) == (None, False)


@pytest.mark.conformance("L-4")
def test_the_logs_root_is_made_absolute_and_the_last_one_counts(daemon: Daemon) -> None:
    assert run("--logs-root", "a", "--logs-root", "logs").exit_code == 0
    assert daemon.calls[0]["logs_root"] == Path.cwd() / "logs"


@pytest.mark.conformance("L-4")
@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_logs_root_is_a_usage_error(daemon: Daemon, blank: str) -> None:
    done = run("--logs-root", blank)
    assert done.exit_code == 2
    assert "must not be blank" in done.stderr
    assert daemon.calls == []


@pytest.mark.conformance("L-4")
def test_the_acknowledgement_is_the_option_that_refusals_name(daemon: Daemon) -> None:
    assert run(ACKNOWLEDGEMENT).exit_code == 0
    assert daemon.calls[0]["acknowledged"] is True


@pytest.mark.conformance("L-1", "L-4")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "65536"),
        ("--port", "-1"),
        ("--port", "x"),
        ("a", "b"),
        ("a", "--workflow", "b"),
        ("--log-format", "xml"),
    ],
)
def test_what_it_does_not_know_is_a_usage_error(daemon: Daemon, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert "hint: main run --help" in done.stderr or "hint: symphony run --help" in done.stderr
    assert daemon.calls == []


def _state(**changes: Any) -> State:
    return initial_state(make_settings(), epoch="e").changed(**changes)


def _retry(issue_id: str, error: str | None) -> Retry:
    return Retry(issue=make_issue(issue_id), attempt=1, due_ms=0, error=error, attempts_without_progress=0)


@pytest.mark.parametrize(("once", "code"), [("--once", 1), (None, 0)])
def test_what_is_left_is_told_and_decides_the_exit_code_with_once(
    daemon: Daemon, once: str | None, code: int
) -> None:
    blocked = Blocked(issue=make_issue("1"), failure=make_failure("needs a person"), blocked_ms=0)
    daemon.tally.state = _state(
        blocked={"1": blocked}, retrying={"2": _retry("2", "port_exit: gone"), "3": _retry("3", None)}
    )
    done = run(*([once] if once else []))
    assert done.exit_code == code
    told = [line.split()[0] for line in done.stderr.splitlines()]
    assert told == (["SYM-1", "SYM-2", "SYM-3"] if once else [])
    assert ("needs a person" in done.stderr, "port_exit: gone" in done.stderr) == (bool(once), bool(once))


def test_an_agent_at_a_limit_has_an_exit_code_of_its_own_which_the_help_names(daemon: Daemon) -> None:
    blocked = Blocked(issue=make_issue("1"), failure=make_failure("needs a person"), blocked_ms=0)
    failure = make_failure("500", category=Category.AGENT_UNAVAILABLE)
    limited = LimitedAgent(until_ms=1, since_ms=0, failure=failure)
    daemon.tally.state = _state(
        blocked={"1": blocked}, candidates={"2": make_issue("2")}, limited_agents={"codex": limited}
    )
    done = run("--once")
    assert done.exit_code == ExitCode.AGENT_LIMITED
    assert int(ExitCode.AGENT_LIMITED) == 6
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["SYM-1", "SYM-2"]
    assert " 6 (with --once)" in " ".join(run("--help").stdout.split())


def test_a_person_at_a_terminal_sees_the_summary(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        @override
        def isatty(self) -> bool:
            return True

    daemon.tally.issues = {"1": IssueSummary(issue=make_issue("1", title="[/] odd"))}
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(SystemExit) as ended:
        main.main(["run", "--once"])
    assert ended.value.code == 0
    assert "SYM-1" in screen.getvalue()
    assert "[/] odd" in screen.getvalue()


# --- serve ---


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    path = tmp_path / "WORKFLOW.md"
    path.write_text(text(tmp_path, "quiet"))
    (tmp_path / ".symphony" / "issues").mkdir(parents=True)
    return path


def text(root: Path, provider: str) -> str:
    front = {
        "tracker": {"kind": "markdown", "provider": {"note": provider}},
        "workspace": {"root": str(root / "workspaces")},
    }
    return f"---\n{json.dumps(front)}\n---\nDo it.\n"


def test_after_a_reload_the_log_masks_what_the_new_workflow_refers_to(
    workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workflow.parent / "log"

    def make(
        *, store: WorkflowStore, observers: tuple[StepObserver, ...], **_: object
    ) -> Callable[[bool], None]:
        def change(*_: object) -> None:
            state = initial_state(make_settings(), epoch="e")
            workflow.write_text(text(workflow.parent, "$BOARD_CREDENTIAL"))
            assert store.reload_if_changed() is not None
            for fact in (WakeAsked(reason="x"), SettingsChanged(settings=make_settings())):
                observers[0](state, fact, state, ())
                structlog.get_logger("x").info(type(fact).__name__, seen=SECRET)

        return change

    monkeypatch.setattr(serving, "Service", make)
    monkeypatch.setattr(serving, "serve_until_signalled", to_thread.run_sync)
    try:
        serving.serve(
            workflow,
            environment={
                "BOARD_CREDENTIAL": SECRET,
                "XDG_STATE_HOME": str(workflow.parent / "states"),
            },
            once=True,
            log_format="json",
            log_path=log,
            state_path=workflow.parent / "state",
        )
    finally:
        structlog.reset_defaults()
    lines = {line["event"]: line["seen"] for line in map(json.loads, log.read_text().splitlines())}
    assert lines == {"WakeAsked": SECRET, "SettingsChanged": "***"}


@pytest.mark.conformance("L-4")
def test_lines_go_to_the_log_file_as_well(workflow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(**_: object) -> Callable[[bool], None]:
        return lambda *_: structlog.get_logger("x").info("hello", credential=SECRET)

    monkeypatch.setattr(serving, "Service", make)
    monkeypatch.setattr(serving, "serve_until_signalled", to_thread.run_sync)
    shown = workflow.parent / "shown"
    try:
        serving.serve(
            workflow,
            environment={"XDG_STATE_HOME": str(workflow.parent / "states")},
            once=True,
            log_format="console",
            log_path=shown,
            logs_root=workflow.parent / "logs",
            state_path=workflow.parent / "state",
        )
    finally:
        structlog.reset_defaults()
    assert "hello" in shown.read_text()
    line = json.loads((workflow.parent / "logs" / "log" / "symphony.log").read_text())
    assert (line["event"], line["credential"]) == ("hello", "***")


@pytest.mark.conformance("L-1", "L-2")
def test_a_workflow_that_is_missing_is_one_line_with_a_hint(tmp_path: Path) -> None:
    done = run(str(tmp_path / "absent.md"))
    assert done.exit_code == 3
    assert str(tmp_path / "absent.md") in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_tracker_refuses_is_refused_when_the_file_is_read(workflow: Path) -> None:
    front = {"tracker": {"kind": "markdown", "provider": {"path": 7}}, "workspace": {"root": "/x"}}
    workflow.write_text(f"---\n{json.dumps(front)}\n---\nDo it.\n")
    done = run(str(workflow))
    assert done.exit_code == 3
    assert "provider" in done.stderr
