import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.untouched import writing_of
from symphony.domain import Blocker, Category
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import Board, BoardConfig, IssueDraft, files
from symphony.trackers.markdown import store as store_module
from symphony.trackers.markdown.board import find_cycles, next_number
from symphony.trackers.markdown.store import id_problem

Write = Callable[..., Path]


def issues(board: Board) -> dict[str, str | None]:
    return {issue.id: issue.not_dispatchable_reason for issue in board.all().issues}


@pytest.mark.conformance("T-6")
def test_an_issue_file_becomes_an_issue(board: Board, write: Write) -> None:
    write("SYM-1", body="\nDo it.\r\nNow.\n", priority="2", labels="[A, a]", assignee="ann")
    (issue,) = board.all().issues
    assert (issue.id, issue.identifier, issue.title) == ("SYM-1", "SYM-1", "Title of SYM-1")
    assert (issue.state, issue.priority, issue.labels, issue.assignee_id) == ("Todo", 2, ("a",), "ann")
    assert issue.description == "Do it.\nNow."
    assert (issue.dispatchable, issue.updated_at, issue.native_ref) == (True, None, None)


def test_hostile_text_stays_text(board: Board, write: Write) -> None:
    body = "```\n{{ issue.id }} {% raw %}\n---\nstate: Done\n~~~~\n" + "x" * 900_000
    write("SYM-1", body=body)
    assert board.find("SYM-1").description == body
    assert board.find("SYM-1").state == "Todo"


@pytest.mark.conformance("T-8")
def test_a_blocker_counts_until_it_is_terminal(board: Board, write: Write) -> None:
    write("SYM-3", state="In Progress")
    write("SYM-4", state="Done")
    write("SYM-5", blocked_by="[sym-3, SYM-4]")
    assert issues(board)["SYM-5"] == "blocked by SYM-3 (In Progress)"
    assert board.find("SYM-5").blocked_by == (
        Blocker(id="SYM-3", identifier="SYM-3", state="In Progress"),
        Blocker(id="SYM-4", identifier="SYM-4", state="Done"),
    )
    write("SYM-3", state="cancelled")
    assert issues(board)["SYM-5"] is None


@pytest.mark.conformance("T-8")
def test_an_unknown_or_unreadable_blocker_counts_as_open(board: Board, write: Write) -> None:
    write("SYM-1", blocked_by="[SYM-77, SYM-2]")
    write("SYM-2", state="[")
    assert issues(board)["SYM-1"] == "blocked by SYM-77 (not on the board), SYM-2 (unreadable)"


def test_blockers_that_cannot_be_understood_stop_the_issue(board: Board, write: Write) -> None:
    write("SYM-1", blocked_by="{SYM-2: x}")
    assert issues(board)["SYM-1"] == "`blocked_by` is not a list of issue ids"


@pytest.mark.conformance("T-8")
def test_a_cycle_is_told_and_never_dispatched(board: Board, write: Write) -> None:
    write("SYM-1", blocked_by="[SYM-2]")
    write("SYM-2", blocked_by="[SYM-1]")
    write("SYM-3", blocked_by="[SYM-1]")
    assert issues(board) == {
        "SYM-1": "blocked by itself in a cycle: SYM-1 -> SYM-2 -> SYM-1",
        "SYM-2": "blocked by itself in a cycle: SYM-2 -> SYM-1 -> SYM-2",
        "SYM-3": "blocked by SYM-1 (Todo)",
    }
    assert board.find("SYM-1").not_dispatchable_reason == issues(board)["SYM-1"]


def test_a_cycle_through_a_finished_issue_is_none(board: Board, write: Write) -> None:
    write("SYM-1", blocked_by="[SYM-2]")
    write("SYM-2", blocked_by="[SYM-1]", state="Done")
    assert issues(board) == {"SYM-1": None, "SYM-2": None}


@pytest.mark.conformance("T-8")
def test_a_state_that_the_board_does_not_have_is_told(board: Board, write: Write) -> None:
    write("SYM-1", state="Tudo")
    assert str(issues(board)["SYM-1"]).startswith("state 'Tudo' is not one of the board's: Backlog, Todo")


def test_malformed_files_are_problems_with_their_place(board: Board, write: Write, folder: Path) -> None:
    write("SYM-1")
    write("SYM-2", state="x\nstate: y")
    (folder / "SYM-3.md").write_bytes(b"\xff")
    (folder / "SYM-4.md").symlink_to("/etc/hostname")
    (folder / "SYM-5.md").mkdir()
    (folder / "SYM\n6.md").write_text("", encoding="utf-8")
    snapshot = board.all()
    assert [issue.id for issue in snapshot.issues] == ["SYM-1"]
    where = {issue_id: problem.failure.where for issue_id, problem in snapshot.problems.items()}
    assert where == {
        "SYM-2": f"{folder}/SYM-2.md:4",
        "SYM-3": f"{folder}/SYM-3.md:1",
        "SYM-4": f"{folder}/SYM-4.md:1",
        "SYM-5": f"{folder}/SYM-5.md:1",
        "SYM\n6": f"{folder}/SYM\\n6.md:1",
    }


def test_ids_that_differ_only_by_case_are_both_refused(board: Board, write: Write) -> None:
    write("SYM-1")
    write("sym-1")
    assert set(board.all().problems) == {"SYM-1", "sym-1"}
    with pytest.raises(TrackerError, match="differs only by case"):
        board.find("SYM-1")


def test_a_file_that_may_not_be_read_is_that_issue_s_problem(
    board: Board, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("SYM-1")

    def refuse(_: Path, *, root: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(root))

    monkeypatch.setattr(files, "read", refuse)
    assert board.all().problems["SYM-1"].failure.message == "Permission denied"


def test_a_disk_that_fails_fails_the_whole_reading(
    board: Board, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("SYM-1")

    def refuse(_: Path, *, root: Path) -> bytes:
        raise OSError(5, "Input/output error", str(root))

    monkeypatch.setattr(files, "read", refuse)
    with pytest.raises(TrackerError) as caught:
        board.all()
    assert caught.value.failure.category is Category.TRACKER_REQUEST


def test_a_file_that_vanishes_while_reading_is_left_out(
    board: Board, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("SYM-1")

    def gone(path: Path, *, root: Path) -> bytes:
        raise FileNotFoundError(2, "gone", str(path), str(root))

    monkeypatch.setattr(files, "read", gone)
    assert board.all().issues == ()
    with pytest.raises(TrackerError, match="any more"):
        board.find("SYM-1")
    with pytest.raises(TrackerError, match="any more"):
        board.move("SYM-1", "Done")


def test_a_missing_folder_is_a_failure_and_not_an_empty_board(board: Board, folder: Path) -> None:
    shutil.rmtree(folder)
    with pytest.raises(TrackerError) as caught:
        board.all()
    assert caught.value.failure.category is Category.TRACKER_REQUEST
    with pytest.raises(TrackerError):
        board.create(IssueDraft(title="x", state="Todo"))


def test_bounds_are_told_and_never_cut_silently(
    board: Board, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("SYM-1")
    write("SYM-2")
    monkeypatch.setattr(store_module, "MAX_TOTAL_BYTES", 10)
    with pytest.raises(TrackerError, match="bytes of issues"):
        board.all()
    monkeypatch.setattr(store_module, "MAX_FILES", 1)
    write("SYM-3")
    with pytest.raises(TrackerError, match="holds 3 issues"):
        board.all()


def test_an_unchanged_file_is_parsed_once_and_a_changed_one_again(
    board: Board, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("SYM-1")
    monkeypatch.setattr("symphony.files._FINE_GRAIN_NS", -(10**12))
    assert board.find("SYM-1").state == "Todo"
    with monkeypatch.context() as patch:
        patch.setattr(files, "read", lambda *_, **__: pytest.fail("read again"))
        assert board.find("SYM-1").state == "Todo"
    write("SYM-1", state="Done")
    assert board.find("SYM-1").state == "Done"
    path.unlink()
    assert board.all().issues == ()


def test_a_listing_tells_the_issues_and_whether_a_file_is_being_written(board: Board, write: Write) -> None:
    write("SYM-1")
    (board.config.path / ".gitkeep").touch()
    assert tuple(board.store.listing().files) == ("SYM-1",)
    assert not board.store.has_unfinished_writes
    half = board.config.path / f".symphony-{'0' * 16}.tmp"
    half.touch()
    (board.config.path / "SYM-1" / "comments").mkdir(parents=True)
    assert tuple(board.store.listing().files) == ("SYM-1",)
    assert board.store.has_unfinished_writes
    half.rename(board.config.path / "SYM-2.md")
    assert tuple(board.store.listing().files) == ("SYM-1", "SYM-2")
    assert not board.store.has_unfinished_writes
    (board.config.path / "SYM-1.md").unlink()
    assert tuple(board.store.listing().files) == ("SYM-2",)


def test_a_fresh_file_is_read_again_even_if_its_metadata_is_the_same(board: Board, write: Write) -> None:
    path = write("SYM-1", state="Todo")
    before = path.stat()
    board.all()
    path.write_text(path.read_text(encoding="utf-8").replace("Todo", "Done"), encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert board.find("SYM-1").state == "Done"


def test_a_new_issue_gets_the_next_number(board: Board, write: Write, folder: Path) -> None:
    write("SYM-7")
    (folder / "SYM-9" / "comments").mkdir(parents=True)
    issue = board.create(
        IssueDraft(title="New: one", state="Todo", description="Do\n", labels=("a b",), priority=1)
    )
    assert issue.id == "SYM-10"
    assert (folder / "SYM-10.md").read_text(encoding="utf-8") == (
        '---\ntitle: "New: one"\nstate: Todo\nlabels: [a b]\npriority: 1\n'
        "created: 2026-11-27T10:15:00Z\n---\n\nDo\n"
    )


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        (IssueDraft(title=" ", state="Todo"), "title"),
        (IssueDraft(title="x", state="Nowhere"), "no state"),
        (IssueDraft(title="\ud800", state="Todo"), "Unicode"),
        (IssueDraft(title="x" * 70_000, state="Todo"), "larger"),
        (IssueDraft(title="x", state="Todo", description="y" * 1_100_000), "1 MB"),
        (IssueDraft(title="x", state="Todo", description="\ud800"), "cannot be written"),
    ],
)
def test_a_draft_that_is_no_issue_is_refused_and_leaves_nothing(
    board: Board, folder: Path, draft: IssueDraft, words: str
) -> None:
    with pytest.raises(TrackerError, match=words):
        board.create(draft)
    assert list(folder.iterdir()) == []


def test_a_move_writes_the_configured_spelling_and_nothing_else(board: Board, write: Write) -> None:
    path = write("SYM-1", state="todo   # now", body="\n\n x\t\n")
    before = path.read_bytes()
    moved = board.move("sym-1", " human REVIEW ")
    assert (moved.issue_id, moved.before, moved.after) == ("SYM-1", "todo", "Human Review")
    assert path.read_bytes() == before.replace(b"todo   # now", b"Human Review   # now")


def test_a_move_to_where_it_is_writes_nothing(board: Board, write: Write) -> None:
    path = write("SYM-1")
    before = writing_of(path)
    assert board.move("SYM-1", "Todo").before == "Todo"
    assert writing_of(path) == before


def test_a_move_reads_its_own_file_only(board: Board, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read, seen = write("SYM-1", blocked_by="[SYM-2]"), files.read, set[Path]()
    write("SYM-2")

    def noted(path: Path, *, root: Path) -> bytes:
        seen.add(path)
        return read(path, root=root)

    monkeypatch.setattr(files, "read", noted)
    board.move("SYM-1", "Done")
    assert seen == {path}


def test_a_move_is_refused_where_the_name_makes_the_issue_unusable(board: Board, write: Write) -> None:
    paths = {write("SYM-1"), write("sym-1")}
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(TrackerError, match="differs only by case"):
        board.move("SYM-1", "Done")
    assert {path: path.read_bytes() for path in paths} == before


def test_a_move_is_refused_for_unknown_states_and_issues(board: Board, write: Write) -> None:
    write("SYM-1")
    with pytest.raises(TrackerError) as caught:
        board.move("SYM-1", "Nowhere")
    assert "Backlog, Todo, In Progress, Human Review, Done, Cancelled" in str(caught.value.failure.hint)
    for issue_id in ("SYM-2", "../SYM-1", ""):
        with pytest.raises(TrackerError, match="no issue"):
            board.move(issue_id, "Done")


def test_a_move_that_cannot_be_made_safely_is_refused_with_its_line(
    board: Board, write: Write, folder: Path
) -> None:
    write("SYM-1", state=">-\n  Todo")
    with pytest.raises(TrackerError) as caught:
        board.move("SYM-1", "Done")
    assert caught.value.failure.where == f"{folder}/SYM-1.md:3"
    (folder / "SYM-2.md").symlink_to("SYM-3.md")
    write("SYM-3")
    with pytest.raises(TrackerError, match="link"):
        board.move("SYM-2", "Done")


def test_a_concurrent_change_is_read_again_and_kept(
    board: Board, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("SYM-1")
    replace, edits = files.replace, iter(["label one", "label two"])

    def disturbed(target: Path, data: bytes, *, expected: bytes, root: Path) -> bool:
        edit = next(edits, None)
        if edit:
            target.write_bytes(target.read_bytes() + f"{edit}\n".encode())
        return replace(target, data, expected=expected, root=root)

    monkeypatch.setattr(files, "replace", disturbed)
    board.move("SYM-1", "Done")
    text = path.read_text(encoding="utf-8")
    assert "state: Done" in text
    assert text.endswith("label one\nlabel two\n")


def test_a_file_that_never_holds_still_is_given_up(
    board: Board, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("SYM-1")
    monkeypatch.setattr(files, "replace", lambda *_, **__: False)
    with pytest.raises(TrackerError, match="8 times in a row"):
        board.move("SYM-1", "Done")


def test_numbers_taken_while_we_look_are_passed_over(
    board: Board, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    create, stolen = files.create, iter([True])

    def raced(path: Path, data: bytes) -> bool:
        if next(stolen, False):
            path.write_bytes(data)
        return create(path, data)

    monkeypatch.setattr(files, "create", raced)
    assert board.create(IssueDraft(title="x", state="Todo")).id == "SYM-2"
    monkeypatch.setattr(files, "create", lambda *_: False)
    with pytest.raises(TrackerError, match="1000 times"):
        board.create(IssueDraft(title="x", state="Todo"))
    assert sorted(path.name for path in folder.glob("*.md")) == ["SYM-1.md", "SYM-2.md"]


def test_a_board_that_cannot_be_written_says_so(
    board: Board, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("SYM-1")

    def refuse(*_: object, **__: object) -> bool:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(files, "replace", refuse)
    monkeypatch.setattr(files, "create", refuse)
    with pytest.raises(TrackerError, match="Read-only file system"):
        board.move("SYM-1", "Done")
    with pytest.raises(TrackerError, match="Read-only file system"):
        board.create(IssueDraft(title="x", state="Todo"))


def test_a_board_with_its_own_states_judges_by_them(folder: Path, write: Write) -> None:
    config = BoardConfig(path=folder, states=("A", "B"), active=("A",), terminal=("B",))
    write("SYM-1", state="B", blocked_by="[SYM-9]")
    write("SYM-2", state="A", blocked_by="[SYM-1]")
    assert issues(Board(config)) == {"SYM-1": None, "SYM-2": None}


# --- ids and numbers ---


@pytest.mark.parametrize("stem", ["a\nb", "a\x1b[31m", "a\u202eb", "a\udcffb", " a", "a ", "", "x" * 300])
def test_unusable_ids_are_named(stem: str) -> None:
    assert id_problem(stem)


@pytest.mark.parametrize("stem", ["SYM-1", "a b", "übung", "1"])
def test_usable_ids_are_not(stem: str) -> None:
    assert id_problem(stem) is None


def test_the_next_number_follows_the_highest_whatever_its_case() -> None:
    assert next_number("SYM", ["SYM-2", "sym-9", "SYM-10.bak", "OTHER-99", "SYM-x", "SYM-" + "9" * 30]) == 10
    assert next_number("SYM", []) == 1


# --- cycles ---

IDS = st.sampled_from("abcdefgh")


def test_a_chain_has_no_cycle() -> None:
    assert find_cycles({"a": ["b"], "b": ["c"], "c": []}) == {}


def test_an_issue_that_blocks_itself_is_a_cycle_of_one() -> None:
    assert find_cycles({"a": ["a"]}) == {"a": ("a",)}


def test_each_member_of_a_cycle_is_told_beginning_with_itself() -> None:
    cycles = find_cycles({"a": ["b"], "b": ["c"], "c": ["a"]})
    assert cycles == {"a": ("a", "b", "c"), "b": ("b", "c", "a"), "c": ("c", "a", "b")}


def test_who_only_waits_for_a_cycle_is_not_in_it() -> None:
    assert set(find_cycles({"a": ["b"], "b": ["a"], "c": ["a"]})) == {"a", "b"}


def test_unknown_blockers_are_no_cycle() -> None:
    assert find_cycles({"a": ["gone"]}) == {}


def test_a_ring_of_five_thousand_is_found_in_linear_time() -> None:
    count = 5_000
    ring = {str(index): [str((index + 1) % count)] for index in range(count)}
    cycles = find_cycles({**ring, "tail": ["0"]})
    assert len(cycles) == count
    assert cycles["4997"] == ("4997", "4998", "4999", "0", "1", "2", "3", "4", "5", "6", "...")


@given(st.dictionaries(IDS, st.lists(IDS)))
def test_for_any_board_a_cycle_is_told_exactly_when_there_is_one(graph: dict[str, list[str]]) -> None:
    cycles = find_cycles(graph)
    for issue, ring in cycles.items():
        assert ring[0] == issue
        for here, there in zip(ring, (*ring[1:], ring[0]), strict=True):
            assert there in graph[here]
    assert bool(cycles) == any(_reaches(graph, issue, issue) for issue in graph)


def _reaches(graph: dict[str, list[str]], start: str, goal: str) -> bool:
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        issue = todo.pop()
        if issue == goal:
            return True
        if issue in graph and issue not in seen:
            seen.add(issue)
            todo.extend(graph[issue])
    return False


def test_of_an_unchanged_file_the_same_issue_is_given_again(board: Board, write: Write) -> None:
    write("SYM-1")
    write("SYM-2")
    write("SYM-3", blocked_by="[SYM-2]")
    deadline_s = time.monotonic() + 60
    while board.all().issues[0] is not board.all().issues[0]:  # a file that is too new is read each time
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    before = {issue.id: issue for issue in board.all().issues}
    write("SYM-2", state="Done")
    after = {issue.id: issue for issue in board.all().issues}
    assert after["SYM-1"] is before["SYM-1"]
    assert (before["SYM-2"].state, after["SYM-2"].state) == ("Todo", "Done")
    assert not before["SYM-3"].dispatchable
    assert after["SYM-3"].dispatchable, "what depends on other files is made anew"
    board.store.path("SYM-1").unlink()
    assert "SYM-1" not in {issue.id for issue in board.all().issues}
    write("SYM-1", title="Another one")
    assert {issue.id: issue.title for issue in board.all().issues}["SYM-1"] == "Another one"
