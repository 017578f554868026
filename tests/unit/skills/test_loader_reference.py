"""A second opinion: PyPI's `skills-ref`, the demonstration validator of the Agent Skills specification.

It serves as an oracle in one direction. What it accepts, we accept without an error or a warning, in either
profile, but for the differences in `STRICTER`; what it rejects and we accept is named in `LENIENT`, each with
its reason. Neither list may grow in silence: every line is run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skills_ref.validator import validate  # type: ignore[import-untyped]  # it has no types

from symphony.skills import Severity, SkillOptions, Validation, load
from unit.skills.conftest import Shelf

if TYPE_CHECKING:
    from pathlib import Path

    from unit.skills.conftest import Shelf

BOTH_ACCEPT = {
    "plain": ("a", "name: a\ndescription: b"),
    "all keys": (
        "a-1",
        "name: a-1\ndescription: b\nlicense: MIT\ncompatibility: any\nallowed-tools: Read\nmetadata:\n  x: y",
    ),
    "folded": ("a", "name: a\ndescription: >-\n  one\n  two"),
    "quoted": ("a", "name: 'a'\ndescription: \"b: c\""),
    "64 characters": ("n" * 64, f"name: {'n' * 64}\ndescription: {'d' * 1_024}"),
}
BOTH_REJECT_IN_STRICT = {
    "no name": ("a", "description: b"),
    "no description": ("a", "name: a"),
    "empty description": ("a", "name: a\ndescription: ''"),
    "upper case": ("PDF", "name: PDF\ndescription: b"),
    "two hyphens": ("a--b", "name: a--b\ndescription: b"),
    "other directory": ("b", "name: a\ndescription: b"),
    "long name": ("n" * 65, f"name: {'n' * 65}\ndescription: b"),
    "long description": ("a", f"name: a\ndescription: {'d' * 1_025}"),
    "not a map": ("a", "- a"),
    "broken": ("a", "name: [\ndescription: b"),
    "key twice": ("a", "name: a\nname: a\ndescription: b"),
}
LENIENT = {
    "unknown keys: the specification is silent, two thirds of published skills have some": (
        "a",
        "name: a\ndescription: b\nversion: 1",
    ),
    "when_to_use: a key of ours": ("a", "name: a\ndescription: b\nwhen_to_use: c"),
    "flow style: its parser leaves it out of YAML": ("a", "name: a\ndescription: b\nmetadata: {x: y}"),
    "an unquoted colon: repaired, as the client guide advises": ("a", "name: a\ndescription: Use when: b"),
    "tags: without meaning here, an error there": ("a", "name: a\ndescription: !!str b"),
}
STRICTER = {
    "letters beyond ASCII: a look-alike could pass for another name": (
        "\u00e9",
        "name: \u00e9\ndescription: b",
    ),
    "a name of our own alphabet, composed differently": ("caf\u00e9", "name: cafe\u0301\ndescription: b"),
}


def theirs(directory: Path) -> bool:
    return not validate(directory)


def ours(shelf: Shelf, profile: Validation) -> bool:
    """Accepted without a word, but for infos."""
    found = load(shelf.workspace, SkillOptions(validation=profile))
    return bool(found.skills) and all(one.severity is Severity.INFO for one in found.problems)


def loads(shelf: Shelf) -> bool:
    return bool(shelf.load().skills)


def put(shelf: Shelf, case: tuple[str, str]) -> Path:
    directory, front = case
    return shelf.write(directory, f"---\n{front}\n---\nBody.\n").parent


@pytest.mark.parametrize("case", BOTH_ACCEPT.values(), ids=BOTH_ACCEPT)
def test_both_accept(shelf: Shelf, case: tuple[str, str]) -> None:
    directory = put(shelf, case)
    assert theirs(directory)
    assert ours(shelf, Validation.STRICT)
    assert ours(shelf, Validation.LENIENT)


@pytest.mark.parametrize("case", BOTH_REJECT_IN_STRICT.values(), ids=BOTH_REJECT_IN_STRICT)
def test_both_reject_in_the_strict_profile(shelf: Shelf, case: tuple[str, str]) -> None:
    directory = put(shelf, case)
    assert not theirs(directory)
    assert not ours(shelf, Validation.STRICT)


@pytest.mark.parametrize("case", LENIENT.values(), ids=LENIENT)
def test_we_load_what_it_rejects(shelf: Shelf, case: tuple[str, str]) -> None:
    directory = put(shelf, case)
    assert not theirs(directory)
    assert loads(shelf)


@pytest.mark.parametrize("case", STRICTER.values(), ids=STRICTER)
def test_we_load_with_a_warning_what_it_accepts(shelf: Shelf, case: tuple[str, str]) -> None:
    directory = put(shelf, case)
    assert theirs(directory)
    assert loads(shelf)
    assert not ours(shelf, Validation.STRICT)


NAMES = st.from_regex(re.compile(r"[a-z0-9]{1,6}(-[a-z0-9]{1,6}){0,3}"), fullmatch=True)
PLAIN = st.text("abc XYZ.,;()é日-'\"", min_size=1, max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(name=NAMES | st.text("aB-_é", min_size=1, max_size=6), description=PLAIN)
def test_what_it_accepts_of_plain_fields_we_load(shelf: Shelf, name: str, description: str) -> None:
    path = shelf.write(name, f"---\nname: {name}\ndescription: {description}\n---\n")
    try:
        if theirs(path.parent):
            found = load(shelf.workspace, SkillOptions())
            assert [skill.name for skill in found.skills] == [name]
    finally:
        path.unlink()
        path.parent.rmdir()
