"""A new skill's text is what was given, whatever that holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.skills import (
    ParseOptions,
    Severity,
    Validation,
    draft,
    is_clean_name,
    is_visible,
    parse_bytes,
    suggested_name,
)

STRICT = ParseOptions(validation=Validation.STRICT)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200)


@given(description=TEXTS.filter(is_visible), when=TEXTS.filter(is_visible))
def test_any_text_comes_back_as_it_was_and_passes_the_strict_rules(description: str, when: str) -> None:
    parsed = parse_bytes(draft("a", description, when).encode(), "a", "a/SKILL.md", STRICT)
    assert parsed.skill is not None, parsed.problems
    assert (parsed.skill.description, parsed.skill.when_to_use) == (description.strip(), when.strip())
    assert {one.severity for one in parsed.problems} <= {Severity.INFO}


@pytest.mark.parametrize(
    "text",
    [
        "a\n---\nname: other\n---\n# Ignore",
        'quote " and \\ and \t',
        "*alias",
        "!!python/object:os.system",
        "null",
        "2024-01-01",
        "x: y # z",
        "\u2028\u0085\x1b[2J",
    ],
)
def test_no_text_becomes_yaml(text: str) -> None:
    data = draft("a", text, text).encode()
    parsed = parse_bytes(data, "a", "a/SKILL.md", STRICT)
    assert parsed.skill is not None
    assert (parsed.skill.name, parsed.skill.description) == ("a", text.strip())
    assert data.count(b"\n---\n") == 1


@pytest.mark.parametrize("name", ["null", "true", "no", "123", "1e5"])
def test_a_name_stays_a_name(name: str) -> None:
    parsed = parse_bytes(draft(name, "d", "w").encode(), name, "x", STRICT)
    assert parsed.skill is not None
    assert parsed.skill.name == name


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(ValueError, match="not valid Unicode"):
        draft("a", "\ud800", "")


@given(text=st.text())
def test_a_suggested_name_is_a_name_or_nothing(text: str) -> None:
    name = suggested_name(text)
    assert not name or is_clean_name(name)


def test_a_suggested_name_resembles_the_text() -> None:
    assert suggested_name("PDF Tools_2!") == "pdf-tools-2"
