"""Which file is which issue. `tests/integration/board` has boards of the real Backlog.md."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from symphony.trackers.base import TrackerConfigError, TrackerError
from symphony.trackers.markdown import Board, BoardConfig, IssueDraft
from symphony.trackers.markdown.layout import OWN, is_issue_file

CONFIG = 'project_name: "demo"\nstatuses: ["To Do", "In Progress", "Done"]\ntask_prefix: "task"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "backlog" / "tasks").mkdir(parents=True)
    (tmp_path / "backlog" / "config.yml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def config(place: Path, *, active: Any = None, terminal: Any = None, **provider: Any) -> BoardConfig:
    wanted = {"layout": "backlog.md", **provider}
    return BoardConfig.of(wanted, base_dir=place, active=active, terminal=terminal)


Write = Callable[..., Path]


@pytest.fixture
def write(place: Path) -> Write:
    """Write a task: `write("task-1 - Title", status="Done")`."""

    def _write(stem: str, body: str = "", *, folder: str = "tasks", **values: str) -> Path:
        name = stem.split(" ", maxsplit=1)[0].upper()
        front = {"id": name, "title": f"Title of {name}", "status": "To Do", **values}
        path = place / "backlog" / folder / f"{stem}.md"
        path.parent.mkdir(exist_ok=True)
        text = "".join(f"{key}: {value}\n" for key, value in front.items())
        path.write_bytes(f"---\n{text}---\n{body}".encode())
        return path

    return _write


def test_the_board_says_its_own_states_and_prefix(place: Path) -> None:
    found = config(place)
    assert (found.states, found.prefix) == (("To Do", "In Progress", "Done"), "TASK")
    assert (found.active, found.terminal) == (("To Do", "In Progress"), ("Done",))
    assert found.path == place / "backlog" / "tasks"
    assert found.comments == place / "backlog" / ".symphony"
    assert BoardConfig(path=place).comments == place


def test_states_of_the_workflow_are_held_against_those_of_the_board(place: Path) -> None:
    assert config(place, active=["in progress"], terminal=["done"]).active == ("In Progress",)
    with pytest.raises(TrackerConfigError, match="'Review', which is no state of the board"):
        config(place, active=["Review"])


def test_a_board_whose_states_have_other_names_needs_active_states(place: Path) -> None:
    (place / "backlog" / "config.yml").write_text("statuses: [Offen, Fertig]\n", encoding="utf-8")
    with pytest.raises(TrackerConfigError, match="active_states must be set"):
        config(place)
    assert config(place, active=["Offen"]).terminal == ("Fertig",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("statuses: []\n", "there are no `statuses`"),
        ("project_name: x\n", "there are no `statuses`"),
        ("statuses: [A]\ntask_prefix: '../x'\n", "`task_prefix` must be a word"),
        ("a: b\nstatuses: [A\n", "config.yml:2"),
        ("x" * 2_000_000, "larger than 1 MB"),
    ],
)
def test_a_board_that_cannot_be_used_is_told_with_its_line(place: Path, text: str, problem: str) -> None:
    (place / "backlog" / "config.yml").write_text(text, encoding="utf-8")
    with pytest.raises(TrackerConfigError, match=problem):
        config(place)


def test_no_board_no_layout_and_keys_of_the_other_layout_are_mistakes(place: Path) -> None:
    with pytest.raises(TrackerConfigError, match="leads to no board") as caught:
        config(place, path="elsewhere")
    assert "backlog init" in str(caught.value.failure.hint)
    with pytest.raises(TrackerConfigError) as caught:
        config(place, prefix="X", states=["A"])
    assert len(caught.value.problems) == 2
    with pytest.raises(TrackerConfigError, match=r"must be symphony or backlog\.md"):
        BoardConfig.of({"layout": "jira"}, base_dir=place)
    assert BoardConfig.of({"layout": "symphony"}, base_dir=place).prefix == "SYM"


def test_a_task_is_read_as_it_is_written(place: Path, write: Write) -> None:
    body = (
        "\n## Description\n\n<!-- SECTION:DESCRIPTION:BEGIN -->\nWords <!-- here -->\n"
        "<!-- SECTION:DESCRIPTION:END -->\n## Acceptance Criteria\n"
        "<!-- AC:BEGIN -->\n- [ ] #1 It\n<!-- AC:END -->\n"
    )
    write(
        "task-1 - Any-title", body, title="'It''s: so'", status="In Progress", assignee="['@ann', bob]",
        labels="[Bug, ' bug ', ui]", dependencies="[task-2]", priority="medium",
        created_date="'2026-11-21 18:52'", updated_date="2026-11-22",
    )  # fmt: skip
    write("task-2 - Other", status="Done")
    (issue,) = Board(config(place)).some(["TASK-1"]).issues
    assert (issue.title, issue.state, issue.priority) == ("It's: so", "In Progress", 2)
    assert (issue.labels, issue.assignee_id) == (("bug", "ui"), "ann")
    assert [(blocker.id, blocker.state) for blocker in issue.blocked_by] == [("TASK-2", "Done")]
    assert issue.dispatchable
    assert issue.created_at == datetime(2026, 11, 21, 18, 52, tzinfo=UTC)
    assert issue.updated_at == datetime(2026, 11, 22, tzinfo=UTC)
    assert issue.description == "## Description\n\nWords <!-- here -->\n## Acceptance Criteria\n- [ ] #1 It"


def test_a_task_is_found_by_its_id_when_its_file_was_renamed_made_or_moved_since(
    place: Path, write: Write
) -> None:
    task = write("task-1 - Old-title")
    board = Board(config(place))
    assert len(board.all().issues) == 1
    task.rename(task.with_name("task-1 - New-title.md"))
    assert [issue.id for issue in board.some(["TASK-1"]).issues] == ["TASK-1"]
    write("task-2 - Another")
    assert [issue.id for issue in board.some(["TASK-1", "TASK-2"]).issues] == ["TASK-1", "TASK-2"]
    assert board.move("TASK-1", "Done").after == "Done"
    assert board.find("task-1").state == "Done"
    completed = place / "backlog" / "completed"
    completed.mkdir()
    task.with_name("task-1 - New-title.md").rename(completed / task.name)
    assert [issue.id for issue in board.some(["TASK-1", "TASK-2"]).issues] == ["TASK-2"]


def test_what_is_of_no_use_is_null(place: Path, write: Write) -> None:
    write("task-1", priority="sky", assignee="[]", created_date="soon", updated_date="2026-02-31")
    write("task-2 - B", dependencies="{a: 1}", labels="7")
    first, second = Board(config(place)).all().issues
    assert (first.priority, first.assignee_id, first.created_at, first.updated_at) == (None,) * 4
    assert second.not_dispatchable_reason == "`dependencies` is not a list of issue ids"


def test_priorities_of_the_board_are_ranked_in_their_order(place: Path, write: Write) -> None:
    (place / "backlog" / "config.yml").write_text(
        CONFIG + "priorities: [P0, P1, P2, P3, P4]\n", encoding="utf-8"
    )
    write("task-1 - A", priority="p1")
    write("task-2 - B", priority="P4")
    assert [issue.priority for issue in Board(config(place)).all().issues] == [2, None]


def test_a_task_without_a_priority_has_none_even_if_a_priority_is_called_none(
    place: Path, write: Write
) -> None:
    (place / "backlog" / "config.yml").write_text(CONFIG + "priorities: [None, high]\n", encoding="utf-8")
    write("task-1 - A")
    write("task-2 - B", priority="None")
    assert [issue.priority for issue in Board(config(place)).all().issues] == [None, 1]


def test_files_that_are_no_tasks_are_left_alone(place: Path, write: Write) -> None:
    write("task-1.2 - A-part")
    for name in (
        "README.md",
        "notes.md",
        "task-x - A.md",
        "draft-1 - A.md",
        ".task-3 - A.md",
        "task-4 - A.txt",
    ):
        (place / "backlog" / "tasks" / name).write_text("free text", encoding="utf-8")
    assert [issue.id for issue in Board(config(place)).all().issues] == ["TASK-1.2"]


def test_a_task_that_was_completed_blocks_nobody_and_one_that_is_nowhere_does(
    place: Path, write: Write
) -> None:
    write("task-1 - A", dependencies="[task-2, TASK-3]")
    write("task-2 - B", folder="completed", status="Done")
    board = Board(config(place))
    (issue,) = board.all().issues
    assert issue.not_dispatchable_reason == "blocked by TASK-3 (not on the board)"
    write("task-3 - C", folder="completed", status="Done")
    assert board.all().issues[0].dispatchable


def test_one_id_in_two_files_is_refused_with_both(place: Path, write: Write) -> None:
    write("task-1 - A")
    write("TASK-1 - B")
    snapshot = Board(config(place)).all()
    assert snapshot.issues == ()
    told = sorted(str(problem.failure.message) for problem in snapshot.problems.values())
    assert [message.rpartition("/")[2] for message in told] == [
        "TASK-1 - B.md has it too",
        "task-1 - A.md has it too",
    ]


def test_an_id_that_is_not_that_of_the_name_is_malformed(place: Path, write: Write) -> None:
    path = write("task-1 - A", id="TASK-7")
    (problem,) = Board(config(place)).all().problems.values()
    assert problem.failure.where == f"{path}:2"


def test_a_task_that_gets_another_file_is_read_anew(place: Path, write: Write) -> None:
    board = Board(config(place))
    path = write("task-1 - A", title="Before")
    assert board.find("task-1").title == "Before"
    path.unlink()
    write("task-1 - B", title="After")
    assert "TASK-1" in board.store.listing().files
    assert board.find("task-1").title == "After"


@pytest.mark.parametrize("status", ["To Do", "'To Do'", '"To Do"  # why'])
def test_a_move_changes_the_state_and_not_one_other_byte(place: Path, write: Write, status: str) -> None:
    path = write("task-1 - A", "\r\nBody \t\n", status=status, labels="\n  - a\n  - 'b'")
    before = path.read_bytes()
    moved = Board(config(place)).move("task-1", "in progress")
    assert (moved.issue_id, moved.before, moved.after) == ("TASK-1", "To Do", "In Progress")
    quoted = status.removesuffix("  # why").encode()
    assert path.read_bytes() == before.replace(b"status: " + quoted, b"status: In Progress")


def test_new_tasks_are_made_by_the_program_whose_board_it_is(place: Path) -> None:
    with pytest.raises(TrackerError, match="board of another program"):
        Board(config(place)).create(IssueDraft(title="A", state="To Do"))
    assert list((place / "backlog" / "tasks").iterdir()) == []


# --- the board's own layout ---


@pytest.mark.parametrize("name", ["SYM-1.md", "fix login.md", "Ü.md"])
def test_markdown_files_are_issues(name: str) -> None:
    assert is_issue_file(name)


@pytest.mark.parametrize("name", [".SYM-1.md", "README.md", "readme.md", "SYM-1.MD", "SYM-1.md~", "SYM-1"])
def test_other_files_are_not(name: str) -> None:
    assert not is_issue_file(name)


def test_ids_that_differ_only_by_case_are_twins() -> None:
    twins = OWN.twins(OWN.files(["SYM-1.md", "sym-1.md", "Sym-1.md", "SYM-2.md"]))
    assert twins == {"SYM-1": "Sym-1.md", "Sym-1": "SYM-1.md", "sym-1": "SYM-1.md"}
