"""The file of the library: versions, assignments, proposals, and files that cannot be used."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from symphony.library.model import (
    MAX_CONTENT_BYTES,
    Authorship,
    Evidence,
    Learned,
    LearningState,
    LibraryError,
    Origin,
    ProposalState,
    Rating,
    SkillDraft,
    SkillText,
    StaleVersionError,
    StoredFeedback,
    TargetKind,
)
from symphony.library.store import VERSION, Library, check, library_path
from symphony.skills import MAX_FIELD

ME = Authorship(author="ada", reason="tests")


def text(name: str = "greeting", **changed: str) -> SkillText:
    fields = {"description": "Greets.", "when_to_use": "Always.", "content": "# Greet\n", **changed}
    return SkillText(
        name=name,
        description=fields["description"],
        when_to_use=fields["when_to_use"],
        content=fields["content"],
    )


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "library.db")


def names(library: Library, query: str = "") -> list[str]:
    return [skill.name for skill in library.skills(query=query)]


# --- bounds ---


@pytest.mark.parametrize(
    ("key", "most"), [("description", MAX_FIELD), ("when_to_use", MAX_FIELD), ("content", MAX_CONTENT_BYTES)]
)
def test_a_text_may_be_as_long_as_its_limit_and_no_longer(library: Library, key: str, most: int) -> None:
    library.add(text(**{key: "x" * most}), ME)
    with pytest.raises(LibraryError):
        library.add(text("longer", **{key: "x" * (most + 1)}), ME)


# --- versions ---


def test_every_change_of_what_a_skill_says_is_one_more_version(library: Library) -> None:
    library.add(text(), ME)
    for number, changed in enumerate(("description", "when_to_use", "content"), start=1):
        present = library.skill("greeting")
        edited = structs.replace(present.text, **{changed: f"new {changed}"})
        assert library.edit(edited, ME, base_version=number).version == number + 1
    assert library.edit(library.skill("greeting").text, ME, base_version=4).version == 4
    assert [one.version for one in library.history("greeting")] == [4, 3, 2, 1]
    assert library.version("greeting", 1).text == text()
    assert library.version("greeting", 1).change == ME


def test_an_edit_of_an_old_version_is_refused_with_both(library: Library) -> None:
    library.add(text(), ME)
    library.edit(text(content="second"), ME, base_version=1)
    with pytest.raises(StaleVersionError) as refused:
        library.edit(text(content="other"), ME, base_version=1)
    assert (refused.value.base, refused.value.present.version) == (1, 2)
    assert library.skill("greeting").text.content == "second"


def test_a_revert_is_a_new_version(library: Library) -> None:
    library.add(text(), ME)
    library.edit(text(content="second"), ME, base_version=1)
    assert library.revert("greeting", 1, ME).version == 3
    assert library.skill("greeting").text == text()
    with pytest.raises(LibraryError, match="version 9"):
        library.revert("greeting", 9, ME)


def test_a_removed_skill_leaves_its_name_free(library: Library) -> None:
    library.add(text(), ME)
    library.remove("greeting", ME)
    assert names(library) == []
    with pytest.raises(LibraryError):
        library.skill("greeting")
    assert library.add(text(content="again"), ME).version == 1


def test_a_name_is_taken_once(library: Library) -> None:
    library.add(text(), ME)
    with pytest.raises(LibraryError, match="has a skill greeting"):
        library.add(text(), ME)


@pytest.mark.parametrize(
    "wrong",
    [
        text("Not a name"),
        text("a--b"),
        text("a" * 65),
        text(description=""),
        text(description="x" * 1_025),
        text(when_to_use="x" * 1_025),
        text(content="x" * 10_000_000),
    ],
    ids=lambda one: one.name[:20],
)
def test_what_is_out_of_bounds_is_refused(library: Library, wrong: SkillText) -> None:
    with pytest.raises(LibraryError):
        library.add(wrong, ME)
    assert names(library) == []


def test_versions_neither_skip_nor_repeat_under_eight_writers(library: Library) -> None:
    library.add(text(), ME)
    done: list[int] = []

    def write(writer: int) -> None:
        for number in range(5):
            while True:
                base = library.skill("greeting").version
                try:
                    changed = text(content=f"{writer} {number}")
                    done.append(library.edit(changed, ME, base_version=base).version)
                    break
                except StaleVersionError:
                    continue  # another writer was first

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(2, 42))
    assert [one.version for one in library.history("greeting")] == list(range(41, 0, -1))


def test_search_finds_all_words_in_name_description_and_when_to_use(library: Library) -> None:
    library.add(text("greeting"), ME)
    library.add(text("parting", description="Says goodbye.", when_to_use="At the end."), ME)
    library.add(text("aside", description="Learned."), ME, origin=Origin.LEARNED)
    assert names(library) == ["greeting", "parting", "aside"]
    assert names(library, "END good") == ["parting"]
    assert names(library, "nothing") == []


# --- SKILL.md ---


@given(
    description=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=60),
    content=st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=200),
)
def test_a_skill_is_the_same_after_it_was_a_file(description: str, content: str) -> None:
    extra = {"license": "MIT", "metadata": {"symphony-priority": "10"}}
    one = SkillText(
        name="greeting", description=description, when_to_use="When: always", content=content, extra=extra
    )
    assert SkillText.of_file(one.file(), "greeting") == one


def test_a_file_that_is_no_skill_is_refused_with_its_place() -> None:
    with pytest.raises(LibraryError, match=r"SKILL\.md"):
        SkillText.of_file(b"# No front matter\n", "greeting")
    with pytest.raises(LibraryError, match=r"SKILL\.md:\d+"):
        SkillText.of_file(b"---\nname: greeting\ndescription: [\n---\n", "greeting")


# --- assignments ---


def resolved(library: Library, **facts: object) -> list[str]:
    given_facts: dict[str, object] = {"issue": "SYM-1", "labels": (), "agent": "codex", "configured": None}
    found = library.resolve(**{**given_facts, **facts})  # type: ignore[arg-type]  # as the cases give them
    return [skill.name for skill in found.skills]


def test_the_issue_decides_before_the_agent_and_the_agent_before_all(library: Library) -> None:
    for name in ("one", "two", "three"):
        library.add(text(name), ME)
    assert resolved(library) == ["one", "three", "two"]
    assert resolved(library, configured=["two"]) == ["two"]
    library.assign(TargetKind.AGENT, "codex", ["one"])
    assert resolved(library, configured=["two"]) == ["one"]
    library.assign(TargetKind.ISSUE, "SYM-1", ["three"])
    assert resolved(library) == ["three"]
    assert resolved(library, issue="SYM-2", labels=["skill:two", "other"]) == ["two"]
    library.assign(TargetKind.ISSUE, "SYM-1", [])
    assert resolved(library) == []
    assert library.unassign(TargetKind.ISSUE, "SYM-1")
    assert not library.unassign(TargetKind.ISSUE, "SYM-1")
    assert resolved(library) == ["one"]


def test_unknown_names_are_told(library: Library) -> None:
    library.add(text("one"), ME)
    with pytest.raises(LibraryError):
        library.assign(TargetKind.ISSUE, "SYM-1", ["missing"])
    found = library.resolve(
        issue="SYM-1", labels=["skill:missing", "skill:one"], agent="codex", configured=None
    )
    assert ([one.name for one in found.skills], found.unknown) == (["one"], ("missing",))


# --- proposals ---

EVIDENCE = Evidence(run_id="r-1", issue_identifier="SYM-1", transcript_seq=7)


def test_an_accepted_proposal_is_a_version_and_is_decided_once(library: Library) -> None:
    library.add(text(), ME)
    proposal = library.propose(text(content="better"), EVIDENCE, base_version=1)
    assert proposal is not None
    assert (proposal.before, proposal.evidence) == (text(), EVIDENCE)
    assert library.accept(proposal.id, "ada").version == 2
    assert library.version("greeting", 2).change.run_id == "r-1"
    assert library.proposals() == ()
    with pytest.raises(LibraryError, match="accepted already"):
        library.reject(proposal.id, "ada")


def test_a_rejected_proposal_is_not_made_again(library: Library) -> None:
    proposal = library.propose(text(), EVIDENCE, base_version=0)
    assert proposal is not None
    assert library.reject(proposal.id, "ada", "wrong").state is ProposalState.REJECTED
    assert library.propose(text(), EVIDENCE, base_version=0) is None
    assert names(library) == []


def test_a_new_skill_of_a_proposal_is_learned(library: Library) -> None:
    proposal = library.propose(text(), EVIDENCE, base_version=0)
    assert proposal is not None
    assert library.accept(proposal.id, "ada").origin is Origin.LEARNED


def test_a_proposal_for_an_old_version_is_refused_and_stays_open(library: Library) -> None:
    library.add(text(), ME)
    proposal = library.propose(text(content="better"), EVIDENCE, base_version=1)
    assert proposal is not None
    library.edit(text(content="other"), ME, base_version=1)
    with pytest.raises(StaleVersionError):
        library.accept(proposal.id, "ada")
    assert [one.id for one in library.proposals()] == [proposal.id]


# --- files ---


def _damaged(path: Path) -> None:
    library = Library(path)
    library.add(text(content="x" * 100_000), ME)
    data = bytearray(path.read_bytes())
    data[:16] = b"nothing like that"[:16]
    path.write_bytes(data)


def _newer(path: Path) -> None:
    Library(path).skills()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere.db"))


def _directory(path: Path) -> None:
    path.mkdir()


def _no_database(path: Path) -> None:
    path.write_text("Not a database.\n" * 500)


def _empty(path: Path) -> None:
    """A restored backup for which there was no room."""
    path.touch()


def _log_alone(path: Path) -> None:
    path.with_name("library.db-wal").write_bytes(b"left")


@pytest.mark.parametrize(
    "spoil", [_damaged, _newer, _foreign, _link, _directory, _no_database, _empty, _log_alone]
)
def test_a_file_that_cannot_be_used_is_refused_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    path = tmp_path / "library.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(LibraryError) as refused:
        Library(path).add(text("other"), ME)
    assert refused.value.failure.hint
    assert str(path) in refused.value.failure.message
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_backup_is_a_library(library: Library, tmp_path: Path) -> None:
    library.add(text(), ME)
    copy = tmp_path / "copy.db"
    library.backup(copy)
    assert names(Library(copy)) == ["greeting"]
    check(copy)
    with pytest.raises(LibraryError, match="exists"):
        library.backup(copy)


def test_the_file_is_in_the_state_directory_unless_a_path_is_set(tmp_path: Path) -> None:
    for configured, expected in (
        (None, tmp_path / "library.db"),
        ("/srv/team.db", Path("/srv/team.db")),
        ("~/team.db", Path.home() / "team.db"),
    ):
        assert library_path(tmp_path, configured) == expected


# --- feedback ---


def rated(library: Library, *, off: str | None = None) -> StoredFeedback:
    rating = Rating(
        workflow="w", issue_id="1", issue_identifier="SYM-1", run_ids=("run-1",), stars=2, author="operator"
    )
    return library.rate(rating, off=off)


def test_feedback_stays_and_waits_for_learning_until_it_is_done_or_dropped(library: Library) -> None:
    first, second, silent = rated(library), rated(library), rated(library, off="not wanted")
    assert [one.id for one in library.pending_feedback("w")] == [first.id, second.id]
    assert library.pending_feedback("other") == ()
    assert library.begin_learning(first.id).attempts == 1
    assert library.pending_feedback("w")[0].learning is LearningState.RUNNING, "a killed daemon left it so"
    assert library.stop_learning(first.id, "it broke", again=True).learning is LearningState.WAITING
    assert library.begin_learning(first.id).attempts == 2
    library.stop_learning(first.id, "it broke twice", again=False)
    assert [one.id for one in library.pending_feedback("w")] == [second.id]
    found = library.feedback("w", "SYM-1")
    assert [(one.id, one.learning.value, one.reason) for one in found] == [
        (silent.id, "off", "not wanted"),
        (second.id, "waiting", None),
        (first.id, "dropped", "it broke twice"),
    ]


def test_proposals_of_a_learning_run_are_made_all_at_once_and_once(library: Library) -> None:
    number = rated(library).id
    library.begin_learning(number)
    learned = Learned(run_id="learn-1", created=("greeting",))
    good, bad = SkillDraft(text=text(), base_version=0), SkillDraft(text=text(name="No Name"), base_version=0)
    with pytest.raises(LibraryError):
        library.end_learning(number, learned, (good, bad), Evidence(run_id="learn-1"))
    assert (library.proposals(), len(library.pending_feedback("w"))) == ((), 1)
    for _ in range(2):
        done = library.end_learning(number, learned, (good,), Evidence(run_id="learn-1"))
        assert done.learned is not None
        assert (done.learning, done.learned.proposals) == (LearningState.DONE, (1,))
    assert len(library.proposals()) == 1
    again = rated(library).id
    library.begin_learning(again)
    same = library.end_learning(again, learned, (good,), Evidence(run_id="learn-2"))
    assert same.learned is not None
    assert same.learned.proposals == (), "it was proposed before"
