"""Conformance cases 66 to 72: hostile YAML costs an error, not the process."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from symphony.skills import ParseOptions, Severity, SkillFile, SkillOptions, load, parse
from unit.skills.conftest import Shelf

if TYPE_CHECKING:
    from unit.skills.conftest import Shelf

DEEP = {"lists": "- " * 25_000, "brackets": "[" * 25_000, "keys": "? " * 25_000, "maps": "{a: " * 16_000}


def quick_error(shelf: Shelf, front: str) -> str:
    shelf.write("a", f"---\nname: a\n{front}\n---\n")
    start = time.thread_time()
    found = shelf.load()
    assert time.thread_time() - start < 20  # processor time; the failures this guards against take minutes
    assert found.skills == ()
    (error,) = [one for one in found.problems if one.severity is Severity.ERROR]
    return error.code


@pytest.mark.parametrize("name", DEEP)
def test_case_66_deep_nesting_is_an_error(shelf: Shelf, name: str) -> None:
    assert quick_error(shelf, f"description: {DEEP[name]}") in {"too_deep", "invalid_yaml"}
    assert quick_error(shelf, f"description:\n  {DEEP[name]}") in {"too_deep", "invalid_yaml"}


def test_case_66_the_process_survives_deep_nesting(shelf: Shelf) -> None:
    for name, front in DEEP.items():
        shelf.write(name, f"---\n{front}\n---\n")
        shelf.write(f"{name}-below", f"---\nname: a\ndescription:\n  {front}\n---\n")
    shelf.skill("good")
    program = (
        "import pathlib, sys\n"
        "from symphony.skills import SkillOptions, load\n"
        "found = load(pathlib.Path(sys.argv[1]), SkillOptions())\n"
        "print(*[skill.name for skill in found.skills], len(found.problems))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(shelf.workspace)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "good"), done.stderr


def test_case_67_aliases_are_refused(shelf: Shelf) -> None:
    laughs = "a: &a [x,x]\n" + "".join(
        f"{c}: &{c} [*{b},*{b}]\n" for b, c in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert quick_error(shelf, laughs) == "alias_not_allowed"
    assert quick_error(shelf, "x: &x text\ndescription: *x") == "alias_not_allowed"


def test_case_68_a_list_inside_itself_is_refused(shelf: Shelf) -> None:
    assert quick_error(shelf, "description: &a [*a]") == "alias_not_allowed"


def test_case_69_a_tag_executes_nothing(shelf: Shelf) -> None:
    assert quick_error(shelf, "description: !!python/object/apply:os._exit [1]") == "missing_description"
    shelf.skill("a", "description: !!python/name:os._exit Fine.")
    assert shelf.entries() == ["- a — Fine."]


def test_case_70_too_many_keys_are_too_large_before_parsing(shelf: Shelf) -> None:
    assert quick_error(shelf, "\n".join(f"k{n}: v" for n in range(200_000))) == "front_matter_too_large"
    assert quick_error(shelf, "\n".join(f"k{n}:" for n in range(5_000))) == "front_matter_too_large"


def test_case_71_sixty_kilobytes_of_comments_are_fast(shelf: Shelf) -> None:
    shelf.skill("a", *["# words"] * 7_000)
    start = time.thread_time()
    assert shelf.names() == ["a"]
    assert time.thread_time() - start < 20  # processor time; the failures this guards against take minutes


def test_case_72_a_surrogate_pair_of_escapes_is_an_error(shelf: Shelf) -> None:
    assert quick_error(shelf, 'description: "\\ud83d\\ude00"') == "invalid_yaml"


@pytest.mark.parametrize(
    "value", [" " * 60_000 + "x: y", '"' + "\\" * 60_000, "'" * 60_001, ":" * 60_000 + " x:"]
)
def test_the_repair_of_one_long_line_is_fast(shelf: Shelf, value: str) -> None:
    shelf.write("a", f"---\nname: a\ndescription: {value}\n---\n")
    start = time.thread_time()
    shelf.load()
    assert time.thread_time() - start < 20  # processor time; the failures this guards against take minutes


def test_the_values_of_all_files_of_a_root_are_limited_together(shelf: Shelf) -> None:
    for number in range(40):
        shelf.skill(f"s{number:02}", f"x: [{'1,' * 4_900}]", "description: d", "when_to_use: Now.")
    found = shelf.load()
    assert 15 <= len(found.skills) <= 25, "100,000 keys and values and not many more"
    assert found.incomplete == "size"
    assert [one.code for one in found.problems] == ["limit_exceeded"]
    block = str(shelf.render().text)
    assert "This list is incomplete" in block
    assert "This list is incomplete" in str(shelf.render(search_above=2).text)


def test_broken_files_cost_as_much_as_sound_ones(shelf: Shelf) -> None:
    for number in range(40):
        shelf.skill(f"s{number:02}", f"x: [{'1,' * 4_900}", "  y")
    found = shelf.load()
    assert 15 <= len(found.skills) <= 25
    assert found.incomplete == "size"


def test_the_bytes_of_all_files_of_a_root_are_limited_together(shelf: Shelf, reads: list[int]) -> None:
    for number in range(500):
        shelf.skill(f"s{number:03}", "#" * 60_000)
    found = shelf.load()
    assert found.incomplete == "size"
    assert 24 <= sum(reads) / 2**20 <= 24.1


def test_no_file_is_opened_when_time_is_up(shelf: Shelf, reads: list[int]) -> None:
    shelf.skill("a")
    found = load(shelf.workspace, SkillOptions(), until=0.0)
    assert (found.skills, found.incomplete, found.problems, reads) == ((), "time", (), [])


PIECES = st.lists(
    st.sampled_from(
        ["---\n", "name", ": ", "a", "\n", "description: ", "x: y", "'", '"', "[", "metadata:\n  ", "\r\n"]
    )
).map("".join)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.binary() | PIECES.map(str.encode) | PIECES.map(lambda front: f"---\n{front}\n---\n".encode()),
    st.booleans(),
)
def test_for_any_bytes_a_file_gives_a_skill_or_exactly_one_error(data: bytes, whole: bool) -> None:  # noqa: FBT001 - drawn
    parsed = parse(SkillFile(path="a/SKILL.md", directory="a", data=data, whole=whole), ParseOptions())
    errors = [one for one in parsed.problems if one.severity is Severity.ERROR]
    assert len(errors) == (0 if parsed.skill else 1)
    assert all(one.path == "a/SKILL.md" for one in parsed.problems)
