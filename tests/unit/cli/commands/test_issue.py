import getpass
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from symphony.cli.main import main
from symphony.domain import one_line
from symphony.journal.database import create_tables

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "repo" / ".symphony" / "issues"
    path.mkdir(parents=True)
    monkeypatch.chdir(path.parent.parent)
    return path


def run(*args: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["issue", *args], prog_name="symphony", input=stdin)


def printed(*args: str) -> Any:
    result = run(*args)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(*args: str, code: int = 1, stdin: str | bytes | None = None) -> list[str]:
    """Exit code, nothing on stdout, exactly an error and a hint line on stderr; returns both."""
    result = run(*args, stdin=stdin)
    assert result.exit_code == code, (result.exit_code, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) <= 2
    assert lines[0].startswith("error: ")
    assert all(line.startswith("hint: ") for line in lines[1:])
    return lines


def test_a_new_issue_prints_its_id_and_file(folder: Path) -> None:
    result = run("new", "Fix: it", "-d", "Do.", "-l", "Bug", "-l", "ui", "-p", "2")
    assert result.stdout == f"SYM-1  {folder}/SYM-1.md\n"
    made = printed("show", "SYM-1", "--json")
    assert made["title"] == "Fix: it"
    assert made["state"] == "Todo"
    assert made["labels"] == ["bug", "ui"]
    assert made["priority"] == 2
    assert made["description"] == "Do."


def test_the_description_may_come_from_a_file_or_stdin(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.md").write_text("From a file\n", encoding="utf-8")
    assert printed("new", "a", "-F", str(tmp_path / "text.md"), "--json")["id"] == "SYM-1"
    assert printed("show", "SYM-1", "--json")["description"] == "From a file"
    assert run("new", "b", "-F", "-", stdin="From stdin").exit_code == 0
    assert printed("show", "sym-2", "--json")["description"] == "From stdin"
    assert (folder / "SYM-2.md").is_file()


@pytest.mark.usefixtures("folder")
def test_the_json_shapes_are_the_documented_ones() -> None:
    run("new", "first")
    made = printed("new", "second", "--blocked-by", "sym-1", "--json")
    keys = {
        "id", "title", "state", "labels", "priority", "assignee", "blocked_by", "dispatchable", "reason",
        "created", "path",
    }  # fmt: skip
    assert set(made) == keys
    assert made["blocked_by"] == [{"id": "SYM-1", "identifier": "SYM-1", "state": "Todo"}]
    assert (made["dispatchable"], made["reason"]) == (False, "blocked by SYM-1 (Todo)")
    listing = printed("list", "--json")
    assert set(listing) == {"board", "issues", "problems"}
    assert [issue["id"] for issue in listing["issues"]] == ["SYM-1", "SYM-2"]
    assert all(set(issue) == keys for issue in listing["issues"])
    run("comment", "SYM-1", "hello", "--author", "ann")
    shown = printed("show", "SYM-1", "--json")
    assert set(shown) == {*keys, "description", "comments"}
    (comment,) = shown["comments"]
    assert set(comment) == {"id", "author", "created", "body", "daemon"}
    assert (comment["author"], comment["body"], comment["daemon"]) == ("ann", "hello", False)


@pytest.mark.usefixtures("folder")
def test_a_list_is_a_table_in_numeric_order_and_can_be_filtered() -> None:
    for number in range(1, 12):
        run("new", f"title {number}", "--state", "Backlog" if number % 2 else "Todo")
    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["ID", "STATE", "PRIO", "TITLE", "LABELS", "WAITS"]
    assert [line.split()[0] for line in lines[1:]] == [f"SYM-{number}" for number in range(1, 12)]
    lines = run("list", "-s", "todo").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["SYM-2", "SYM-4", "SYM-6", "SYM-8", "SYM-10"]
    assert "no issues" in run("list", "-s", "Done").stderr
    assert "states: Backlog" in refused("list", "-s", "Nope")[1]


def test_malformed_files_are_warned_about_with_their_path(folder: Path) -> None:
    run("new", "fine")
    (folder / "SYM-2.md").write_text("---\ntitle: a\nstate: [\n---\n", encoding="utf-8")
    (folder / "SYM-3.md").write_text("---\ntitle: a\n---\n", encoding="utf-8")
    result = run("list")
    assert result.exit_code == 0
    assert "SYM-1" in result.stdout
    warnings = result.stderr.splitlines()
    assert len(warnings) == 2
    assert warnings[0].startswith(f"warning: {folder}/SYM-2.md:")
    assert warnings[1] == f"warning: {folder}/SYM-3.md:1: the front matter has no `state`"
    problems = printed_problems()
    assert [problem["id"] for problem in problems] == ["SYM-2", "SYM-3"]
    assert problems[1]["where"] == f"{folder}/SYM-3.md:1"
    expected = f"error: {folder}/SYM-3.md:1: the front matter has no `state` [tracker_response]"
    assert refused("show", "SYM-3")[0] == expected
    assert refused("move", "SYM-3", "Done")


def printed_problems() -> list[dict[str, str]]:
    problems: list[dict[str, str]] = json.loads(run("list", "--json").stdout)["problems"]
    return problems


def test_an_issue_is_shown_with_details_description_and_comments(folder: Path) -> None:
    run("new", "first")
    run("new", "second", "-d", "Line one\n\tline two", "-b", "SYM-1", "-p", "1", "-l", "x")
    run("comment", "SYM-2", "A comment", "--author", "ann")
    (folder / "SYM-2" / "comments" / "bad.md").write_text("x", encoding="utf-8")
    result = run("show", "SYM-2")
    for text in ("SYM-2  second", "SYM-1 (Todo)", "Line one", "    line two", "ann, ", "A comment"):
        assert text in result.stdout
    assert "bad.md:1" in result.stderr


def test_text_from_files_cannot_control_the_terminal(folder: Path) -> None:
    (folder / "SYM-1.md").write_text(
        '---\ntitle: "a\\x1b[2J[red]b"\nstate: "To\\ndo"\n---\nbody \x1b]0;x\x07 \u202e\n', encoding="utf-8"
    )
    for command in (("list",), ("show", "SYM-1"), ("move", "SYM-1", "Todo")):
        result = run(*command)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
        assert "\u202e" not in result.stdout
    assert "a[red]b" in run("list").stdout


@pytest.mark.usefixtures("folder")
def test_a_move_prints_both_states_and_changes_one_line() -> None:
    path = Path(printed("new", "a", "-d", "body", "--json")["path"])
    before = path.read_bytes()
    assert run("move", "sym-1", "in progress").stdout == "SYM-1: Todo -> In Progress\n"
    assert path.read_bytes() == before.replace(b"state: Todo", b"state: In Progress")


@pytest.mark.parametrize("text", ["--colour", "-5", "- one\n- two", "--json-lines"])
@pytest.mark.parametrize("command", [("comment", "SYM-1"), ("new",)])
def test_a_text_that_begins_with_a_dash_stands_behind_two(
    folder: Path, command: tuple[str, ...], text: str
) -> None:
    run("new", "First")
    error, hint = refused(*command, text, code=2)
    assert "No such option" in error
    assert "put --" in hint
    done = run(*command, "--", text)
    assert done.exit_code == 0, done.stderr
    assert any(text.splitlines()[0] in file.read_text() for file in folder.rglob("*.md"))
    assert "put --" not in refused("list", "--nonsense", code=2)[1], "it takes no text"


@pytest.mark.parametrize("name", ["7", "#7", "sym-7"])
def test_an_issue_is_found_by_its_number(folder: Path, name: str) -> None:
    for issue in ("SYM-7", "SYM-17", "A-3", "B-3"):
        (folder / f"{issue}.md").write_text(f"---\ntitle: {issue}\nstate: Todo\n---\n")
    assert printed("show", name, "--json")["id"] == "SYM-7"
    assert run("comment", name, "Hello").exit_code == 0
    assert run("move", name, "Done").exit_code == 0
    refused("show", "3")


@pytest.mark.usefixtures("folder")
def test_a_comment_is_by_the_login_name_or_by_the_given_author(monkeypatch: pytest.MonkeyPatch) -> None:
    run("new", "a")
    monkeypatch.setenv("LOGNAME", "ann")
    assert run("comment", "SYM-1", "one").stdout.startswith("SYM-1: 2")
    monkeypatch.setenv("LOGNAME", "symphony")
    assert run("comment", "SYM-1", "-F", "-", stdin="two").exit_code == 0

    def nobody() -> str:
        raise KeyError("no name for this user")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert run("comment", "SYM-1", "three").exit_code == 0
    comments = printed("show", "SYM-1", "--json")["comments"]
    told = sorted((comment["body"], comment["author"]) for comment in comments)
    assert told == [("one", "ann"), ("three", "person"), ("two", "person")]
    for name in ("symphony", "agent", "_agent"):
        refused("comment", "SYM-1", "x", "--author", name, code=2)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["show", "SYM-9"], 1),
        (["show", "../SYM-1"], 1),
        (["move", "SYM-9", "Done"], 1),
        (["comment", "SYM-9", "x"], 1),
        (["new", "x", "--blocked-by", "SYM-9"], 1),
        (["new", "x", "--state", "Nope"], 1),
        (["new", "  "], 1),
        (["comment", "SYM-9", ""], 2),
        (["comment", "SYM-9"], 2),
        (["comment", "SYM-9", "x", "-F", "-"], 2),
        (["new"], 2),
        (["new", "x", "-p", "5"], 2),
        (["new", "x", "-d", "y", "-F", "-"], 2),
        (["new", "x", "-F", "nowhere.md"], 2),
        (["list", "--nope"], 2),
        (["nope"], 2),
        (["list", "--workflow", "nowhere.md"], 3),
    ],
)
def test_every_error_has_one_line_a_hint_and_an_exit_code(args: list[str], code: int) -> None:
    lines = refused(*args, code=code)
    assert len(lines) == 2 or args == ["new", "  "]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("data", [b"\xff", b"x" * 1_048_577])
def test_a_description_must_be_text_of_a_bounded_size(data: bytes) -> None:
    refused("new", "x", "-F", "-", stdin=data, code=2)


def test_help_shows_examples_and_needs_no_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("new", "list", "show", "move", "comment"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert (
            f"  symphony issue {command} " in result.stdout
            or f"  symphony issue {command}\n" in result.stdout
        )
    assert "comment" in run().stdout
    assert refused("list")[1].startswith("hint: `symphony init`")


def test_the_nearest_board_upwards_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = folder.parent.parent / "src" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert refused("list")[0].startswith("error: there is no board"), "outside of a repository only here"
    (folder.parent.parent / ".git").mkdir()
    assert printed("new", "a", "--json")["path"] == f"{folder}/SYM-1.md"


def workflow(folder: Path, front: str) -> Path:
    path = folder.parent.parent / "WORKFLOW.md"
    path.write_text(f"---\n{front}\n---\nDo {{{{ nonsense\n", encoding="utf-8")
    return path


def test_the_workflow_beside_a_board_sets_its_prefix_and_states(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = workflow(
        folder,
        "tracker: {kind: markdown, provider: {prefix: ABC, states: [Ready, Closed]},"
        " active_states: [Ready], terminal_states: [Closed]}",
    )
    made = printed("new", "a", "--json")
    assert (made["id"], made["state"]) == ("ABC-1", "Ready")
    monkeypatch.chdir(tmp_path)
    assert printed("new", "b", "--workflow", str(file), "--json")["id"] == "ABC-2"
    assert printed("-C", str(file.parent), "new", "c", "--json")["id"] == "ABC-3"


@pytest.mark.parametrize("front", ["tracker: [", "tracker: {kind: markdown, provider: {states: 3}}"])
def test_a_broken_workflow_is_warned_about_and_does_not_hide_the_board(folder: Path, front: str) -> None:
    file = workflow(folder, front)
    result = run("new", "a")
    assert result.stdout.startswith("SYM-1")
    assert result.stderr.startswith("warning: ")
    refused("list", "--workflow", str(file), code=3)


def test_a_workflow_for_another_tracker_has_no_board(folder: Path) -> None:
    file = folder.parent.parent / "WORKFLOW.md"
    for front in ("tracker: {kind: other}", "tracker: 3", "x: y"):
        workflow(folder, front)
        assert "markdown" in refused("list", "--workflow", str(file), code=3)[0]
        # the issue goes to the tracker of the workflow, which is unknown in the first one
        assert run("new", "a").exit_code == (3 if "other" in front else 0)
    file.write_text("no front matter", encoding="utf-8")
    refused("list", "--workflow", str(file), code=3)


def test_an_issue_at_another_tracker_is_created_there(folder: Path) -> None:
    front = f"tracker: {{kind: memory}}\nworkspace: {{root: {json.dumps(str(folder / 'w'))}}}"
    file = folder.parent.parent / "WORKFLOW.md"
    file.write_text(f"---\n{front}\n---\nDo it.\n", encoding="utf-8")
    made = printed("new", "--title", "a", "--body", "b", "--label", "bug", "--json")
    assert (made["issue_identifier"], made["title"], made["state"]) == ("MEM-1", "a", "Todo")
    refused("new", "a", "--priority", "1", code=2)
    refused("new", "a", "--title", "b", code=2)
    refused("new", code=2)


def test_a_provider_that_is_not_a_mapping_means_the_defaults(folder: Path) -> None:
    workflow(folder, "tracker: {kind: markdown, provider: 3, active_states: 4}")
    assert printed("new", "a", "--json")["id"] == "SYM-1"


TEXT = st.text(min_size=1, max_size=40).filter(lambda text: text.strip() != "")


@pytest.mark.usefixtures("folder")
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(title=TEXT, description=st.text(max_size=80))
def test_any_title_and_description_read_back(title: str, description: str) -> None:
    made = printed("new", "--description", description, "--json", "--", title)
    shown = printed("show", made["id"], "--json")
    assert shown["title"] == (one_line(title) or made["id"])
    text = description.replace("\r\n", "\n").strip("\r\n")
    assert (shown["description"] or "").strip() == text.strip()


# --- numbers ---------------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    """The repository around the board, with one commit."""
    root = folder.parent.parent
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "x")
    return root


def made() -> str:
    return str(printed("new", "Another", "--json")["id"])


@pytest.mark.parametrize("around", ["a repository", "nothing"])
def test_the_number_of_a_deleted_issue_is_not_reused(folder: Path, around: str) -> None:
    if around == "a repository":
        repository(folder)
    assert [made(), made()] == ["SYM-1", "SYM-2"]
    (folder / "SYM-2.md").unlink()
    assert made() == "SYM-3"
    for file in folder.glob("*.md"):
        file.unlink()
    assert made() == "SYM-4", "nothing else was left"


def test_numbers_outlast_a_deleted_board(folder: Path) -> None:
    root = repository(folder)
    assert made() == "SYM-1"
    shutil.rmtree(folder)
    folder.mkdir()
    assert made() == "SYM-2"
    git(root, "worktree", "add", "--quiet", "../linked")
    linked = root.parent / "linked" / ".symphony/issues"
    linked.mkdir(parents=True)
    assert printed("new", "x", "-C", str(linked), "--json")["id"] == "SYM-3", "their branches are one"


@pytest.mark.parametrize(
    "ref",
    [
        "refs/heads/symphony/SYM-41",
        "refs/remotes/origin/symphony/sym-41",
        "refs/remotes/up/stream/symphony/SYM-41",
        "refs/heads/symphony/SYM-41-0123abcd",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_branch_of_an_issue_reserves_its_number(folder: Path, ref: str, *, packed: bool) -> None:
    root = repository(folder)
    git(root, "update-ref", ref, "HEAD")
    git(root, "update-ref", "refs/heads/other/SYM-90", "HEAD")
    if packed:
        git(root, "pack-refs", "--all")
    assert made() == "SYM-42"


def test_a_fresh_clone_knows_the_branches_of_its_remote(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(folder)
    git(root, "branch", "symphony/SYM-6")
    git(tmp_path, "clone", "--quiet", str(root), "clone")
    (tmp_path / "clone/.symphony/issues").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "clone")
    assert made() == "SYM-7"


def test_workspaces_and_the_journal_reserve_numbers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    front = "tracker: {kind: markdown}\nworkspace: {root: $SYMPHONY_STATE_DIR/ws}"
    (folder.parent.parent / "WORKFLOW.md").write_text(f"---\n{front}\n---\nx")
    records = tmp_path / "state/ws/.symphony/records"
    records.mkdir(parents=True)
    (records / "SYM-7.json").write_text("{}")
    assert made() == "SYM-8"
    with closing(sqlite3.connect(tmp_path / "state/journal.db", isolation_level=None)) as connection:
        create_tables(connection)
        connection.execute(
            "INSERT INTO runs (run_id, issue_id, issue_identifier, started_wall_ms, record) "
            "VALUES ('r', 'i', 'SYM-20', 0, '{}')"
        )
    assert made() == "SYM-21"


@pytest.mark.parametrize("mark", ["", "many", "-5", "9" * 40, "\0", "٣"])
def test_a_damaged_record_of_the_highest_number_is_ignored(folder: Path, mark: str) -> None:
    made()
    (file,) = folder.glob(".*.number")
    file.write_text(mark)
    assert made() == "SYM-2"


@pytest.mark.parametrize(
    "front",
    ["workspace: {root: $NOT_SET}", "workspace: {root: '~nobody-is-called-so/x'}", "workspace: 5", "{"],
)
def test_an_unusable_workflow_does_not_prevent_new_issues(folder: Path, front: str) -> None:
    (folder.parent.parent / "WORKFLOW.md").write_text(f"---\n{front}\n---\nx")
    assert run("new", "x").exit_code == 0


@pytest.mark.slow
def test_two_processes_never_assign_the_same_number(folder: Path, tmp_path: Path) -> None:
    root = repository(folder)
    git(root, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    other = tmp_path / "linked/.symphony/issues"
    other.mkdir(parents=True)
    command = [sys.executable, "-m", "symphony", "issue", "new", "x", "--json", "-C"]
    asked = [
        subprocess.Popen([*command, str(board)], stdout=subprocess.PIPE, text=True)
        for board in (folder, other, folder, other)
    ]
    told = sorted(json.loads(process.communicate()[0])["id"] for process in asked)
    assert told == ["SYM-1", "SYM-2", "SYM-3", "SYM-4"]
