from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.cli.commands.skills import hits_document
from symphony.skills import Hit, Skill, SkillOptions, SkillSet, render, search_skills


def make(name: str, description: str = "", when: str = "") -> Skill:
    return Skill(
        name=name,
        description=description,
        when_to_use=when,
        directory=name,
        path=f".symphony/skills/{name}/SKILL.md",
    )


SKILLS = (
    make("pdf-tools", "Fill, merge and split forms in PDF files.", "A task touches a PDF."),
    make("release", "Cut a release: version, notes, tag.", "Before publishing to the registry."),
    make("database-migrations", "Write schema changes that can be rolled back.", "A table changes."),
    make("api-style", "How our HTTP API names things, with pagination and errors."),
    make("notes", "Release notes in the house style; also used for the change log."),
)


def names(query: str, skills: tuple[Skill, ...] = SKILLS, limit: int = 10) -> list[str]:
    return [hit.skill.name for hit in search_skills(skills, query, limit=limit)]


def test_a_word_in_the_name_says_more_than_one_in_a_description() -> None:
    assert names("release") == ["release", "notes"]


def test_a_rare_word_says_more_than_one_that_many_use() -> None:
    many = (*SKILLS, make("one", "release"), make("two", "release"), make("three", "release pagination"))
    assert names("release pagination", many)[0] == "three"
    assert names("pagination", many) == ["three", "api-style"]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("PDF", "pdf-tools"),
        ("merging a pdf form", "pdf-tools"),
        ("migration", "database-migrations"),
        ("databases", "database-migrations"),
        ("migrat", "database-migrations"),
        ("ＰＤＦ", "pdf-tools"),  # noqa: RUF001 - full-width letters are what is tested
        ("pdfTools", "pdf-tools"),
        ("pdf_tools", "pdf-tools"),
    ],
)
def test_words_are_folded_and_found_by_singular_part_and_beginning(query: str, best: str) -> None:
    assert names(query)[0] == best


def test_a_beginning_counts_less_than_the_word() -> None:
    assert names("note", (make("a", "notebook"), make("b", "note"))) == ["b", "a"]
    assert names("no", (make("a", "notebook"),)) == []
    assert names("not", (make("a", "notebook"),)) == ["a"]


def score(text: str, query: str) -> float:
    return sum(hit.score for hit in search_skills((make("x", text),), query))


@pytest.mark.parametrize(("plural", "singular"), [("policies", "policy"), ("tables", "table")])
def test_a_plural_is_the_same_word(plural: str, singular: str) -> None:
    assert score(plural, singular) == score(singular, plural) == score(singular, singular)


@pytest.mark.parametrize("word", ["boss", "status", "analysis", "gas"])
def test_a_word_that_only_looks_like_a_plural_is_a_word_of_its_own(word: str) -> None:
    assert score(word, word[:-1]) < score(word, word)


def test_scripts_without_blanks_are_searched_by_pairs() -> None:
    skills = (make("a", "数据库迁移"), make("b", "发布说明"), make("c", "库"))
    assert names("迁移", skills) == ["a"]
    assert names("库", skills) == ["c"]


@pytest.mark.parametrize("query", ["", "   ", "—!?", "zeppelin"])
def test_nothing_found_is_an_empty_answer(query: str) -> None:
    assert search_skills(SKILLS, query) == ()


def test_no_skills_are_no_hits() -> None:
    assert search_skills((), "release") == ()
    assert search_skills((make("-"),), "release") == ()


def test_the_limit_keeps_the_best() -> None:
    assert names("release", limit=1) == ["release"]
    assert names("release", limit=0) == names("release", limit=-1) == []


def test_equal_scores_keep_the_order_of_the_catalog() -> None:
    twins = (make("b", "alpha"), make("a", "alpha"))
    assert names("alpha", twins) == ["b", "a"]


def test_only_the_first_words_of_a_long_query_count() -> None:
    words = " ".join(f"w{number}" for number in range(32))
    assert names(f"{words} release") == []
    assert names(f"release {words}") == ["release", "notes"]


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=60)), max_size=8), st.text(max_size=60))
def test_any_text_is_ranked_without_a_failure(texts: list[tuple[str, str]], query: str) -> None:
    skills = [make(name, description) for name, description in texts]
    hits: tuple[Hit, ...] = search_skills(skills, query)
    assert all(hit.score > 0 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert search_skills(skills, query) == hits


def test_the_document_of_hits_has_the_best_first_with_its_score() -> None:
    hits = search_skills(SKILLS, "release")
    options = SkillOptions()
    block = render(SkillSet(root=Path("/w"), skills=SKILLS), options)
    found = hits_document("release", hits, block, options)
    assert found.query == "release"
    assert [(one.name, one.score) for one in found.hits] == [(hit.skill.name, hit.score) for hit in hits]
