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

from symphony.skills import Memory, SkillOptions, SkillSet, load
from symphony.skills.memory import Lru

if TYPE_CHECKING:
    from unit.skills.conftest import Shelf

OPTIONS = SkillOptions()


def eager() -> Memory:
    """A memory that trusts a status at once; the files of these tests are never written twice in one tick."""
    return Memory(settled_s=0)


def load_after_a_tick(shelf: Shelf, memory: Memory) -> SkillSet:
    """As if the files were a day old already: their times cannot be set back, so the trust is set forward."""
    memory.settled_ns = -86_400 * 10**9
    return load(shelf.workspace, OPTIONS, memory=memory)


def test_an_unchanged_file_is_not_opened_again(shelf: Shelf, reads: list[int]) -> None:
    for name in ("a", "b"):
        shelf.skill(name)
    memory = eager()
    first = load_after_a_tick(shelf, memory)
    assert len(reads) == 2
    assert load_after_a_tick(shelf, memory) == first
    assert len(reads) == 2


def test_what_a_link_leads_to_is_looked_at_every_time(shelf: Shelf, reads: list[int]) -> None:
    shelf.root.mkdir(parents=True)
    shelf.write("../elsewhere", "---\nname: a\ndescription: d\n---\n")
    (shelf.root / "a").symlink_to("../elsewhere")
    memory = eager()
    assert load_after_a_tick(shelf, memory) == load_after_a_tick(shelf, memory)
    assert len(reads) == 2


def test_a_file_that_has_just_changed_is_not_trusted(shelf: Shelf, reads: list[int]) -> None:
    shelf.skill("a")
    memory = Memory()
    assert load(shelf.workspace, OPTIONS, memory=memory) == load(shelf.workspace, OPTIONS, memory=memory)
    assert len(reads) == 2
    assert len(memory.sheets) == 1


def test_equal_bytes_are_parsed_once_for_all_workspaces(
    shelf: Shelf, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = type(shelf)(tmp_path_factory.mktemp("other"))
    for one in (shelf, other):
        one.skill("a", body=str(one.workspace))
    memory = Memory()
    first = load(shelf.workspace, OPTIONS, memory=memory)
    monkeypatch.setattr("symphony.skills.sheet.frontmatter.load", None)
    second = load(other.workspace, OPTIONS, memory=memory)
    assert [skill.description for skill in second.skills] == [skill.description for skill in first.skills]
    assert second.root == other.root


def test_one_sheet_in_two_directories_is_judged_twice(shelf: Shelf) -> None:
    front = "---\nname: a\ndescription: d\n---\n"
    for directory in ("a", "b"):
        shelf.write(directory, front)
    assert shelf.problems() == [("duplicate_name", "b/SKILL.md")]
    assert shelf.warnings() == ["name_dir_mismatch"]


@pytest.mark.parametrize(
    "change", ["content", "same size", "replaced", "removed", "linked", "directory linked"]
)
def test_every_change_is_seen(shelf: Shelf, change: str) -> None:
    path = shelf.skill("a", "description: One.")
    shelf.skill("other", "name: other")
    memory = eager()
    load_after_a_tick(shelf, memory)
    if change == "content":
        path.write_text("---\nname: a\ndescription: Another text.\n---\n")
    elif change == "same size":
        path.write_bytes(path.read_bytes().replace(b"One.", b"Two."))
    elif change == "replaced":
        new = shelf.write("a", path.read_bytes().replace(b"One.", b"Two."), file="new")
        new.replace(path)
    elif change == "removed":
        path.unlink()
    elif change == "linked":
        path.unlink()
        path.symlink_to("../other/SKILL.md")
    else:
        path.parent.rename(shelf.workspace / "a")
        (shelf.root / "a").symlink_to("/")
    fresh = load(shelf.workspace, OPTIONS, memory=Memory(max_entries=0))
    assert load_after_a_tick(shelf, memory) == fresh


def test_a_directory_that_became_unreadable_is_seen(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.skill("a")
    memory = eager()
    load_after_a_tick(shelf, memory)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "stat", refuse)
    assert [skill.name for skill in load_after_a_tick(shelf, memory).skills] == ["a"], "opened again"


def test_several_threads_may_load_at_once(shelf: Shelf) -> None:
    for number in range(30):
        shelf.skill(f"s{number:02}", f"description: {'x' * number}")
    memory = Memory(max_entries=10)
    expected = load(shelf.workspace, OPTIONS, memory=Memory(max_entries=0))
    with ThreadPoolExecutor(8) as pool:
        loads = [pool.submit(load, shelf.workspace, OPTIONS, memory=memory) for _ in range(40)]
        assert all(one.result() == expected for one in loads)
    assert len(memory.sheets) == 10


def test_the_least_recently_used_goes_first() -> None:
    lru: Lru[str, int] = Lru(max_entries=2, max_bytes=100)
    lru.put("a", 1, 1)
    lru.put("b", 2, 1)
    assert lru.get("a") == 1
    lru.put("c", 3, 1)
    assert (lru.get("a"), lru.get("b"), lru.get("c")) == (1, None, 3)


def test_bytes_are_bounded_as_well_and_a_replaced_value_gives_its_own_back() -> None:
    lru: Lru[str, int] = Lru(max_entries=9, max_bytes=10)
    lru.put("a", 1, 6)
    lru.put("a", 2, 6)
    lru.put("b", 3, 4)
    assert (lru.get("a"), lru.get("b")) == (2, 3)
    lru.put("c", 4, 11)
    assert len(lru) == 0


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
    """Files come, change and go; a memory that is kept must never make a difference."""

    files = Bundle("files")

    @initialize()
    def begin(self) -> None:
        self._kept = tempfile.TemporaryDirectory()
        self._root = Path(self._kept.name)
        self._memory = Memory()

    @rule(target=files, directory=DIRECTORIES, data=FILES)
    def write(self, directory: str, data: bytes) -> str:
        path = self._root / ".symphony/skills" / directory / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return directory

    @rule(directory=files)
    def remove(self, directory: str) -> None:
        (self._root / ".symphony/skills" / directory / "SKILL.md").unlink(missing_ok=True)

    @rule()
    def load_and_remember(self) -> None:
        load(self._root, OPTIONS, memory=self._memory)

    @invariant()
    def a_load_with_memory_equals_one_without(self) -> None:
        if hasattr(self, "_root"):
            fresh = load(self._root, OPTIONS, memory=Memory(max_entries=0))
            assert load(self._root, OPTIONS, memory=self._memory) == fresh
            assert load(self._root, OPTIONS, memory=self._memory) == fresh
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
    expected = load(shelf.workspace, OPTIONS, memory=Memory(max_entries=0))
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
    assert load(shelf.workspace, OPTIONS, memory=Memory(max_entries=0)) == expected
