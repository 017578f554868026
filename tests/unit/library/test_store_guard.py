"""The guard against poisoned skills: marks, names that are taken, what people refused, and the purge."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from symphony.library.model import (
    Authorship,
    Evidence,
    LibraryError,
    Origin,
    ProposalState,
    Purged,
    Reverted,
    SkillText,
    StaleVersionError,
)
from symphony.library.provenance import is_learned, marked, provenance
from symphony.library.store import Library

ADA = Authorship(author="ada")
AGENT = Authorship(author="codex", run_id="run-1")
RUN = Evidence(run_id="run-1")
MARK = provenance(run_id="run-1", agent="codex", model="some-model")


def skill(name: str = "style", content: str = "One.\n", **metadata: str) -> SkillText:
    extra = {"metadata": metadata} if metadata else {}
    return SkillText(name=name, description="What it does.", when_to_use="", content=content, extra=extra)


class Clock:
    """A wall clock that is set by hand."""

    ms = 1_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def library(tmp_path: Path, clock: Clock) -> Library:
    return Library(tmp_path / "library.db", now_ms=clock)


def edit(library: Library, content: str, change: Authorship, name: str = "style") -> None:
    library.edit(skill(name, content), change, base_version=library.skill(name).version)


# --- the mark ---


def test_a_new_skill_of_an_agent_is_marked_in_its_file() -> None:
    claimed = skill(**{"symphony-origin": "written", "symphony-priority": "1"})
    text = marked(claimed, None, MARK)
    assert text.extra["metadata"] == {
        "symphony-origin": "learned",
        "symphony-run": "run-1",
        "symphony-agent": "codex",
        "symphony-model": "some-model",
        "symphony-priority": "1",
    }
    assert SkillText.of_file(text.file(), "style") == text
    assert (is_learned(text), is_learned(claimed), is_learned(skill())) == (True, False, False)
    assert "symphony-model" not in provenance(run_id="run-1", agent="codex", model=None)


def test_no_agent_removes_or_forges_the_mark_of_a_skill() -> None:
    learned, written = marked(skill(), None, MARK), skill()
    other = provenance(run_id="run-2", agent="claude", model=None)
    for claimed in (skill(), skill(**{"symphony-origin": "written"}), skill(**{"symphony-run": "x"})):
        assert marked(claimed, learned, other) == learned
        assert marked(claimed, written, other) == written
    broken = structs.replace(skill(), extra={"metadata": "no mapping", "license": "MIT"})
    assert marked(broken, learned, other).extra == {"license": "MIT", **learned.extra}


# --- names and texts that people have decided about ---


def test_a_proposal_cannot_take_the_name_of_a_skill_of_people(library: Library) -> None:
    waits = library.propose(skill(content="Of an agent.\n"), RUN, base_version=0)
    assert waits is not None
    library.add(skill(content="Of a person.\n"), ADA)
    with pytest.raises(StaleVersionError):
        library.accept(waits.id, "ada")
    assert (library.skill("style").content, library.skill("style").origin) == (
        "Of a person.\n",
        Origin.WRITTEN,
    )


def test_no_agent_brings_back_what_a_person_removed_but_a_person_may(library: Library) -> None:
    library.add(skill(), ADA)
    library.remove("style", ADA)
    assert set(library.retired()) == {"style"}
    for base in (0, 1):
        assert library.propose(skill(content=f"Based on {base}.\n"), RUN, base_version=base) is None
    with pytest.raises(LibraryError):
        library.add(skill(content="New.\n"), AGENT, origin=Origin.LEARNED)
    library.add(skill(), ADA)
    assert library.retired() == {}
    assert library.propose(skill(content="Better.\n"), RUN, base_version=1) is not None


def test_what_a_person_rejected_is_not_made_by_an_agent_at_once_either(library: Library) -> None:
    library.add(skill(), ADA)
    better = skill(content="Better?\n")
    proposal = library.propose(better, RUN, base_version=1)
    assert proposal is not None
    library.reject(proposal.id, "ada")
    with pytest.raises(LibraryError):
        library.edit(better, AGENT, base_version=1)
    assert library.propose(structs.replace(better, extra={"license": "MIT"}), RUN, base_version=1) is None
    assert library.edit(better, ADA, base_version=1).version == 2


def fold(text: str) -> SkillText:
    return skill(content=text)


SAME = [
    fold("Write  it twice.\n"),
    fold("\nWrite it twice."),
    fold("Write it twice.\r\n"),
    fold("write IT twice.\n"),
    fold("Write\u00a0it twice.\n"),
    fold("Write it\u200b twice.\n"),
    fold("\uff37rite it twice.\n"),
    structs.replace(fold("Write it twice.\n"), name="other"),
    structs.replace(fold("Write it twice. "), name="other"),
    structs.replace(fold("Write it twice.\n"), extra={"license": "MIT"}),
    structs.replace(fold("Write it twice.\n"), extra={"metadata": {"symphony-run": "run-2"}}),
]


@pytest.mark.parametrize("again", SAME)
def test_a_rejected_text_does_not_come_back_by_a_name_or_a_blank(library: Library, again: SkillText) -> None:
    waits = library.propose(skill(content="Write it twice.\n"), RUN, base_version=0)
    assert waits is not None
    library.reject(waits.id, "ada")
    assert library.propose(again, RUN, base_version=0) is None
    with pytest.raises(LibraryError):
        library.add(again, AGENT, origin=Origin.LEARNED)
    library.add(again, ADA)


@pytest.mark.parametrize("again", SAME)
def test_a_removed_text_does_not_come_back_by_a_name_or_a_blank(library: Library, again: SkillText) -> None:
    library.add(skill(content="Write it twice.\n"), ADA)
    edit(library, "Write it thrice.\n", ADA)
    library.remove("style", ADA)
    for one in (again, structs.replace(again, name="third", description="Another.")):
        assert library.propose(one, RUN, base_version=0) is None
        with pytest.raises(LibraryError):
            library.add(one, AGENT, origin=Origin.LEARNED)
    assert library.propose(skill("third", "Write it once.\n"), RUN, base_version=0) is not None
    library.add(again, ADA)
    library.edit(structs.replace(again, content="Else.\n"), ADA, base_version=1)
    assert library.edit(again, AGENT, base_version=2).version == 3, "a person has it again"


def test_a_text_with_less_front_matter_than_the_rejected_one_is_proposed_and_waits(library: Library) -> None:
    text = skill(content="Write it twice.\n")
    waits = library.propose(structs.replace(text, extra={"hooks": "x"}), RUN, base_version=0)
    assert waits is not None
    library.reject(waits.id, "ada")
    with pytest.raises(LibraryError):
        library.add(text, AGENT, origin=Origin.LEARNED)
    assert library.propose(text, RUN, base_version=0) is not None


def test_a_change_of_blanks_or_of_the_front_matter_alone_is_proposed(library: Library) -> None:
    library.add(skill(), ADA)
    for better in (skill(content="One. \n"), structs.replace(skill(), extra={"license": "MIT"})):
        assert library.propose(better, RUN, base_version=1) is not None
        assert library.propose(better, RUN, base_version=1) is None, "it waits"


def test_a_proposal_is_for_the_skill_that_it_was_made_for(library: Library) -> None:
    old = library.add(skill(), ADA)
    better = skill(content="Better.\n")
    waits = library.propose(better, RUN, base_version=1)
    assert waits is not None
    library.remove("style", ADA)
    new = library.add(skill(content="Another one.\n"), ADA)
    with pytest.raises(LibraryError):
        library.accept(waits.id, "ada")
    assert library.skill("style").content == "Another one.\n"
    assert library.proposal(waits.id).before == skill(), "the text that it changes"
    assert library.propose(better, RUN, base_version=1, skill_id=old.id) is None
    again = library.propose(better, RUN, base_version=1, skill_id=new.id)
    assert again is not None
    assert library.accept(again.id, "ada").version == 2


# --- whose text a skill is ---


def test_what_an_agent_makes_of_the_skill_of_a_person_counts_as_learned(library: Library) -> None:
    library.add(skill(), ADA)
    library.add(skill("tests"), ADA)
    edit(library, "Learned.\n", AGENT)
    assert [one.name for one in library.skills()] == ["tests", "style"], "it ranks behind"
    edit(library, "Learned, and a person's words.\n", ADA)
    assert library.skill("style").origin is Origin.LEARNED
    assert library.revert("style", 1, ADA).origin is Origin.WRITTEN
    assert library.revert("style", 2, ADA).origin is Origin.LEARNED
    assert [one.name for one in library.purge(0, ADA).reverted] == ["style"]
    assert library.skill("style").origin is Origin.WRITTEN


def test_what_a_person_accepts_keeps_the_rank_of_the_skill(library: Library) -> None:
    library.add(skill(), ADA)
    waits = library.propose(skill(content="Learned.\n"), RUN, base_version=1)
    assert waits is not None
    assert library.accept(waits.id, "ada").origin is Origin.WRITTEN


# --- purge ---


def test_a_purge_finds_what_was_accepted_of_no_known_run(library: Library, clock: Clock) -> None:
    for name in ("style", "tests"):
        library.add(skill(name, f"Of {name}.\n"), ADA)
    clock.ms = 2_000
    edit(library, "By hand.\n", ADA, "tests")
    for text, base in ((skill(content="Learned.\n"), 1), (skill("fresh", "Learned too.\n"), 0)):
        waits = library.propose(text, Evidence(issue_id="1"), base_version=base)
        assert waits is not None
        library.accept(waits.id, "ada")
    found = library.purge(2_000, ADA)
    assert (found.removed, [one.name for one in found.reverted]) == (("fresh",), ["style"])


def test_a_purge_removes_learned_skills_and_takes_others_back_and_keeps_history(
    library: Library, clock: Clock
) -> None:
    for name in ("style", "tests"):
        library.add(skill(name), ADA)
    library.add(skill("early"), AGENT, origin=Origin.LEARNED)
    waited = library.propose(skill("tests", "Waits since long.\n"), RUN, base_version=1)
    clock.ms = 2_000
    edit(library, "Learned.\n", AGENT)
    edit(library, "Learned, and a person's words.\n", ADA)
    library.add(skill("late"), AGENT, origin=Origin.LEARNED)
    waits = library.propose(skill("tests", "Waits.\n"), RUN, base_version=1)
    assert waited is not None
    assert waits is not None
    expected = Purged(
        removed=("late",),
        reverted=(Reverted(name="style", before=3, version=4, text_of=1),),
        rejected=(waits.id,),
    )
    by = Authorship(author="ada", reason="poisoned")
    assert library.purge(2_000, by, dry_run=True) == expected
    assert (library.skill("style").version, library.skill("late").version) == (3, 1)
    assert library.purge(2_000, by) == expected
    assert (library.skill("style").text, library.skill("style").version) == (skill(), 4)
    assert [one.text.content for one in library.history("style")][1] == "Learned, and a person's words.\n"
    assert library.version("style", 4).change == by
    assert {one.name for one in library.skills()} == {"early", "style", "tests"}
    assert [one.id for one in library.proposals()] == [waited.id]
    assert set(library.retired()) == {"late"}
    assert library.purge(2_000, by) == Purged(), "it is done"


def test_what_a_person_cleaned_or_wrote_after_a_purge_is_kept(library: Library, clock: Clock) -> None:
    library.add(skill(), ADA)
    clock.ms = 2_000
    edit(library, "Learned.\n", AGENT)
    library.revert("style", 1, ADA)
    edit(library, "By hand.\n", ADA)
    assert library.purge(2_000, ADA) == Purged()
    edit(library, "Learned again.\n", AGENT)
    library.purge(2_000, ADA)
    assert library.skill("style").content == "By hand.\n"
    library.revert("style", 2, ADA)
    assert [one.text_of for one in library.purge(2_000, ADA).reverted] == [6], "what a purge wrote is clean"


def test_accepted_proposals_count_from_their_acceptance(library: Library, clock: Clock) -> None:
    library.add(skill(), ADA)
    proposal = library.propose(skill(content="Learned.\n"), RUN, base_version=1)
    assert proposal is not None
    clock.ms = 2_000
    library.accept(proposal.id, "ada")
    assert library.purge(2_001, ADA) == Purged()
    assert [one.name for one in library.purge(2_000, ADA).reverted] == ["style"]
    (kept,) = library.proposals(state=None)
    assert kept.state is ProposalState.ACCEPTED


_steps = st.lists(
    st.tuples(st.sampled_from(["agent", "person", "revert", "purge"]), st.integers(1, 4)), max_size=12
)


@settings(max_examples=40, deadline=None)
@given(before=_steps, after=_steps)
def test_a_purge_leaves_no_text_that_an_agent_brought_and_skips_no_version(
    tmp_path_factory: pytest.TempPathFactory, before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    clock = Clock()
    library = Library(tmp_path_factory.mktemp("purge") / "library.db", now_ms=clock)
    library.add(skill(content="0"), ADA)

    def do(step: str, number: int) -> None:
        if step == "revert":
            library.revert("style", min(number, library.skill("style").version), ADA)
        elif step == "purge":
            library.purge(2_000, ADA)
        else:
            edit(library, str(number), AGENT if step == "agent" else ADA)

    for one in before:
        do(*one)
    clock.ms = 2_000
    for one in after:
        do(*one)
    earlier = library.history("style")
    promised = library.purge(2_000, ADA, dry_run=True)
    assert library.purge(2_000, ADA) == promised
    assert library.purge(2_000, ADA) == Purged()
    history = library.history("style")
    assert [one.version for one in history] == list(range(len(history), 0, -1))
    assert history[-len(earlier) :] == earlier, "history stays"
    first = next(one for one in reversed(history) if one.text == history[0].text)
    assert first.change.run_id is None or first.at_ms < 2_000
