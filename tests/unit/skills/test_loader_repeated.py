"""What is remembered between loads: less work, the same result, and every change is seen."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from typing_extensions import override

from symphony.skills import SkillOptions, clear_cache, load
from unit.skills.conftest import Shelf

if TYPE_CHECKING:
    from unit.skills.conftest import Shelf

OPTIONS = SkillOptions()


def test_equal_bytes_are_parsed_once_for_all_workspaces(
    shelf: Shelf, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = type(shelf)(tmp_path_factory.mktemp("other"))
    for one in (shelf, other):
        one.skill("a", f"description: {tmp_path_factory.getbasetemp()}", body=str(one.workspace))
    first = shelf.load()
    monkeypatch.setattr("symphony.skills.parser.load", None)
    second = other.load()
    assert [skill.description for skill in second.skills] == [skill.description for skill in first.skills]
    assert second.root == other.root


def test_one_sheet_in_two_directories_is_judged_twice(shelf: Shelf) -> None:
    front = "---\nname: a\ndescription: d\n---\n"
    for directory in ("a", "b"):
        shelf.write(directory, front)
    assert shelf.problems() == [("duplicate_name", "b/SKILL.md")]
    assert shelf.warnings() == ["name_dir_mismatch"]


def test_several_threads_may_load_at_once(shelf: Shelf) -> None:
    for number in range(30):
        shelf.skill(f"s{number:02}", f"description: {'x' * number}")
    expected = shelf.load()
    with ThreadPoolExecutor(8) as pool:
        loads = [pool.submit(shelf.load) for _ in range(40)]
        assert all(one.result() == expected for one in loads)


FILES = st.sampled_from(
    [
        b"---\nname: a\ndescription: One.\n---\n",
        b"---\nname: a\ndescription: Two.\n---\n",
        b"---\nname: b\nwhen_to_use: Now.\n---\nbody\n",
        b"\xef\xbb\xbf---\nname: B\ndescription: x: y\n---",
        b"---\nname: [\n---\n",
        b"# Title\n",
        b"",
    ]
) | st.binary(max_size=80).map(lambda data: b"---\n" + data + b"\n---\n")
DIRECTORIES = st.sampled_from(["a", "b", "c", "\u00e9", ".hidden"])


class Workspace(RuleBasedStateMachine):
    """Files come, change and go; a what was read before must never make a difference."""

    files = Bundle("files")

    @initialize()
    def begin(self) -> None:
        self._kept = tempfile.TemporaryDirectory()
        self._root = Path(self._kept.name)

    @rule(target=files, directory=DIRECTORIES, data=FILES)
    def write(self, directory: str, data: bytes) -> str:
        path = self._root / ".symphony/skills" / directory / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return directory

    @rule(directory=files)
    def remove(self, directory: str) -> None:
        (self._root / ".symphony/skills" / directory / "SKILL.md").unlink(missing_ok=True)

    @invariant()
    def a_load_equals_one_that_remembers_nothing(self) -> None:
        if hasattr(self, "_root"):
            remembered = load(self._root, OPTIONS)
            clear_cache()
            fresh = load(self._root, OPTIONS)
            assert remembered == fresh
            assert [skill.name for skill in fresh.skills] == sorted(skill.name for skill in fresh.skills)

    @override
    def teardown(self) -> None:
        if hasattr(self, "_kept"):
            self._kept.cleanup()


TestWorkspace = Workspace.TestCase
TestWorkspace.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


@pytest.mark.parametrize("turn", [1, -1])
def test_the_order_of_the_directory_makes_no_difference(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    for name in ("b", "a", "c"):
        shelf.skill(name, "name: same" if name != "c" else "name: c")
    expected = load(shelf.workspace, OPTIONS)
    real = os.scandir

    class Turned:
        def __init__(self, descriptor: int) -> None:
            with real(descriptor) as entries:
                self._entries = iter(sorted(entries, key=lambda one: one.name)[::turn])

        def __enter__(self) -> Any:
            return self._entries

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(os, "scandir", Turned)
    assert load(shelf.workspace, OPTIONS) == expected
