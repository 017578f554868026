from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.trackers.markdown.document import (
    author_name,
    case_twins,
    comment_author,
    comment_stem,
    id_problem,
    is_issue_file,
    next_number,
)


@pytest.mark.parametrize("name", ["SYM-1.md", "fix login.md", "Ü.md"])
def test_markdown_files_are_issues(name: str) -> None:
    assert is_issue_file(name)


@pytest.mark.parametrize("name", [".SYM-1.md", "README.md", "readme.md", "SYM-1.MD", "SYM-1.md~", "SYM-1"])
def test_other_files_are_not(name: str) -> None:
    assert not is_issue_file(name)


@pytest.mark.parametrize("stem", ["a\nb", "a\x1b[31m", "a\u202eb", "a\udcffb", " a", "a ", "", "x" * 300])
def test_unusable_ids_are_named(stem: str) -> None:
    assert id_problem(stem)


@pytest.mark.parametrize("stem", ["SYM-1", "a b", "übung", "1"])
def test_usable_ids_are_not(stem: str) -> None:
    assert id_problem(stem) is None


def test_stems_that_differ_only_by_case_are_twins() -> None:
    twins = case_twins(["SYM-1", "sym-1", "Sym-1", "SYM-2"])
    assert twins == {"SYM-1": "Sym-1", "Sym-1": "SYM-1", "sym-1": "SYM-1"}


def test_the_next_number_follows_the_highest_whatever_its_case() -> None:
    assert next_number("SYM", ["SYM-2", "sym-9", "SYM-10.bak", "OTHER-99", "SYM-x", "SYM-" + "9" * 30]) == 10
    assert next_number("SYM", []) == 1


def test_a_comment_name_tells_time_author_and_mark() -> None:
    moment = datetime(2026, 11, 27, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    stem = comment_stem(moment, "agent", "0123abcd")
    assert stem == "20261127T100000Z-agent-0123abcd"
    assert comment_author(stem) == ("agent", "0123abcd")
    assert comment_author("notes") is None


@given(st.text(), st.from_regex(r"[0-9a-f]{8}", fullmatch=True))
def test_any_author_fits_into_a_name_and_comes_out_again(author: str, mark: str) -> None:
    name = author_name(author)
    assert name.isascii()
    assert 1 <= len(name) <= 40
    assert comment_author(comment_stem(datetime(2026, 1, 1, tzinfo=UTC), name, mark)) == (name, mark)
