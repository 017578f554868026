"""`symphony tracker` against every adapter's service on the loopback interface, and on files."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from contract.desk import Desk
from contract.desks import DESKS
from contract.served import served
from contract.vendor import Fault
from harness.project import Project
from published.schemas import conforms_to
from symphony.cli.failures import report
from symphony.cli.main import main
from symphony.domain import SymphonyError

ROOT = Path(__file__).parents[3]

every_desk = pytest.mark.parametrize("name", DESKS)


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(root=tmp_path).create()
    (made.root / "home").mkdir()
    for name, value in made.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.repo)
    return made


@contextmanager
def at(
    project: Project,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    forge: dict[str, Any] | None = None,
    **tracker: Any,
) -> Iterator[Desk]:
    """The service of an adapter with issue 7 on it, and a workflow that leads there."""
    desk = DESKS[name]()
    desk.put(7)
    with served(desk) as provider:
        settings: dict[str, Any] = {
            "kind": desk.kind,
            "provider": provider,
            "active_states": [desk.todo, desk.doing],
            "terminal_states": [desk.done],
        }
        project.workflow(tracker=settings | tracker, forge=forge or {})
        for variable, value in desk.environment().items():
            monkeypatch.setenv(variable, value)
        yield desk


def run(*arguments: str, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["tracker", *arguments], standalone_mode=False, input=given)


def looked() -> dict[str, Any]:
    done = run("check", "--json")
    assert done.exception is None, done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    conforms_to("tracker-check", found)
    assert done.return_value == (0 if found["ok"] else 1)
    return found


def failure(done: Result) -> tuple[int, str]:
    """Exit code and message of a command that failed."""
    assert isinstance(done.exception, SymphonyError), done.output
    return report(done.exception), done.exception.failure.line


# --- check ---


@every_desk
def test_a_tracker_that_fits_has_no_problems(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, name, monkeypatch) as desk:
        found = looked()
        shown = run("check").stdout
    assert (found["ok"], found["kind"], found["issues"], found["problems"]) == (True, desk.kind, 1, [])
    assert found["login"]
    assert found["sample"]["state"] == desk.todo
    roles = {state["name"]: state["roles"] for state in found["states"]}
    assert (roles[desk.todo], roles[desk.done]) == (["active"], ["terminal"])
    assert found["sample"]["identifier"] in shown
    assert desk.vendor.secret not in json.dumps(found) + shown
    assert desk.vendor.writes() == [] or desk.kind == "linear", "nothing is changed"


def test_what_is_left_of_the_limits_is_told(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with at(project, "github", monkeypatch) as desk:
        desk.vendor.extra_headers = {
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "4900",
            "x-ratelimit-reset": str(time.time_ns() // 1_000_000_000 + 1_800),
        }
        (limit,) = looked()["limits"]
        shown = run("check").stdout
    assert (limit["limit"], limit["remaining"]) == (5000, 4900)
    assert "limit     4900 of 5000" in shown


def test_a_renamed_state_is_an_error_with_the_nearest_name(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, "linear", monkeypatch, active_states=["To do", "In Progress"]):
        found = looked()
        shown = run("check").stdout
    (problem,) = found["problems"]
    assert problem["severity"] == "error"
    assert problem["message"] == "linear has no state 'To do', which tracker.active_states names"
    assert problem["hint"].startswith("did you mean 'Todo'?")
    assert "To do (active, not there)" in shown
    assert "  hint: did you mean 'Todo'?" in shown


@pytest.mark.parametrize(
    ("settings", "severity", "hint"),
    [
        ({"terminal_states": ["Zzz"]}, "warning", "was it renamed? states: "),
        ({"on_block": "Zzz"}, "error", "was it renamed? states: "),
        ({"active_states": None, "terminal_states": None}, None, ""),
    ],
    ids=["terminal", "on_block", "defaults"],
)
def test_other_states_that_are_not_there(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    severity: str | None,
    hint: str,
) -> None:
    with at(project, "linear", monkeypatch, **settings):
        problems = looked()["problems"]
    assert [problem["severity"] for problem in problems] == ([] if severity is None else [severity])
    assert all(problem["hint"].startswith(hint) for problem in problems)


def test_states_that_the_forge_settings_name_are_looked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = {
        "kind": "github",
        "repo": "octo/site",
        "token": "$T",
        "on_feedback": "Zzz",
        "merged_state": "done",
    }
    with at(project, "linear", monkeypatch, forge=forge):
        found = looked()
    (problem,) = found["problems"]
    assert (problem["severity"], "forge.on_feedback" in problem["message"]) == ("error", True)
    assert ["terminal", "merged_state"] in [state["roles"] for state in found["states"]]


@pytest.mark.parametrize("name", [name for name in DESKS if "," not in name])
def test_a_refused_credential_has_an_exit_code_of_its_own(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, name, monkeypatch) as desk:
        desk.vendor.fail_next(Fault.UNAUTHORISED, times=5)
        code, line = failure(run("check"))
    assert code == 4
    assert desk.vendor.secret not in line


def test_a_board_of_files_is_looked_at_too(project: Project) -> None:
    project.workflow(tracker={"kind": "markdown"})
    project.issue("SYM-1", extra="labels: [bug]\npriority: 1\nblocked_by: [SYM-2]\n")
    project.issue("SYM-2", title="First")
    project.write(".symphony/issues/SYM-9.md", "no front matter\n")
    found = looked()
    assert (found["kind"], found["login"], found["issues"]) == ("markdown", None, 2)
    (problem,) = found["problems"]
    assert problem["severity"] == "warning"
    assert problem["message"].startswith("left out: ")
    shown = run("check").stdout
    assert "labels bug; priority 1; blocked by SYM-2; held back: " in shown


def test_a_tracker_in_memory_knows_any_state(project: Project) -> None:
    project.workflow(tracker={"kind": "memory", "active_states": ["Anything"]})
    found = looked()
    assert (found["ok"], found["issues"], found["sample"]) == (True, 0, None)


def test_the_doctor_finds_the_same(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with at(project, "linear", monkeypatch, active_states=["To do", "Zzz"]):
        done = CliRunner().invoke(main, ["doctor", "--json"], standalone_mode=False)
    rows = [row for row in json.loads(done.stdout)["checks"] if row["name"] == "tracker"]
    assert [row["status"] for row in rows] == ["ok", "error", "error"]
    assert "did you mean 'Todo'?" in rows[1]["hint"]


# --- move ---


@every_desk
def test_a_move_is_made_and_read_back(project: Project, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with at(project, name, monkeypatch) as desk:
        identifier = looked()["sample"]["identifier"]
        done = run("move", identifier.lower(), desk.doing)
        again = run("move", identifier, desk.todo, "--json")
        desk.forbid_moves()
        code, line = failure(run("move", identifier, desk.done))
    assert done.stdout == f"{identifier}: {desk.todo} -> {desk.doing}\n"
    assert json.loads(again.stdout) == {
        "issue_identifier": identifier,
        "before": desk.doing,
        "state": desk.todo,
    }
    assert code == 1
    assert "still in" in line or "no label" in line


@pytest.mark.slow
@every_desk
def test_an_issue_is_found_in_whatever_state_and_by_its_id(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at(project, name, monkeypatch) as desk:
        issue_id = looked()["sample"]["id"]
        identifier = looked()["sample"]["identifier"]
        assert run("move", issue_id, desk.done).exception is None
        back = run("move", identifier, desk.todo)
        assert back.stdout == f"{identifier}: {desk.done} -> {desk.todo}\n"
        for wrong in ("NO-99", "../../user", "no such issue"):
            code, line = failure(run("move", wrong, desk.done))
            assert (code, "has no issue" in line) == (1, True)
        code, line = failure(run("move", identifier, "No Such State"))
        assert code == 1
        assert "no state" in line or "cannot be moved" in line


# --- comment ---


@every_desk
def test_a_comment_is_written_each_time(project: Project, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with at(project, name, monkeypatch) as desk:
        identifier = looked()["sample"]["identifier"]
        first = run("comment", identifier, "Deployed.", "--json")
        second = run("comment", identifier, "-", given="From a pipe: ümlaut\n")
        bodies = desk.comments(7)
    assert json.loads(first.stdout)["issue_identifier"] == identifier
    assert second.stdout.startswith(f"{identifier}: ")
    assert [body.strip() for body in bodies] == ["Deployed.", "From a pipe: ümlaut"]


@pytest.mark.parametrize("given", ["", "  \n", b"\xff\xfe", "x" * 32_001, b"\xff" * 200_000], ids=len)
def test_what_is_no_comment_is_a_wrong_use(project: Project, given: str | bytes) -> None:
    project.workflow(tracker={"kind": "markdown"})
    done = CliRunner().invoke(main, ["tracker", "comment", "SYM-1", "-"], input=given)
    assert done.exit_code == 2


# --- what there is ---


def test_every_command_has_examples(project: Project) -> None:
    del project
    assert "symphony tracker check" in run().stdout
    for command in ("check", "move", "comment"):
        done = CliRunner().invoke(main, ["tracker", command, "--help"])
        assert (done.exit_code, "Examples:" in done.stdout) == (0, True)


def test_an_invalid_workflow_is_the_configuration(project: Project) -> None:
    project.workflow(tracker={"kind": "markdown", "on_block": "Done"})
    assert failure(run("check"))[0] == 3
