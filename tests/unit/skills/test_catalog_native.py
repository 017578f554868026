"""What an agent lists itself: nothing twice, nothing hidden (case 80)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from symphony.skills import DropReason, NativeListing, SkillOptions, dedupe_native, load, render

if TYPE_CHECKING:
    from pathlib import Path

OURS, THEIRS = ".symphony/skills", ".agents/skills"


def skill(workspace: Path, path: str, *, name: str | None = None, head: str = "description: d") -> Path:
    """A skill at a path of the workspace; returns its directory."""
    directory = workspace / path
    directory.mkdir(parents=True)
    named = name or directory.name
    (directory / "SKILL.md").write_text(f"---\nname: {named}\n{head}\n---\nDo it.\n")
    return directory


def link(workspace: Path, path: str, target: str) -> None:
    """A relative link; `target` is a path of the workspace."""
    place = workspace / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(workspace / target, place.parent))


def settled(workspace: Path, *roots: str, options: SkillOptions | None = None) -> NativeListing:
    chosen = options or SkillOptions()
    found = load(workspace, chosen)
    return dedupe_native(found, workspace, [workspace / root for root in roots or (THEIRS,)])


def test_case_80_one_directory_under_two_names_is_listed_by_us_alone(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    link(tmp_path, THEIRS, OURS)
    assert settled(tmp_path) == NativeListing(listing=False)


def test_it_does_not_matter_which_of_the_two_is_the_link(tmp_path: Path) -> None:
    skill(tmp_path, f"{THEIRS}/a")
    link(tmp_path, OURS, THEIRS)
    assert settled(tmp_path) == NativeListing(listing=False)


def test_an_agents_own_skill_keeps_its_listing_and_ours_is_not_repeated(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    skill(tmp_path, f"{OURS}/b")
    skill(tmp_path, f"{THEIRS}/team")
    link(tmp_path, f"{THEIRS}/a", f"{OURS}/a")
    told = settled(tmp_path)
    assert (told.listing, told.duplicates) == (True, frozenset({"a"}))
    block = render(load(tmp_path, SkillOptions()), SkillOptions(), native=told.duplicates)
    assert block.listed == ("b",)
    assert [(one.name, one.reason) for one in block.dropped] == [("a", DropReason.NATIVE)]


@pytest.mark.parametrize("roots", [(THEIRS,), (".codex/skills", THEIRS)], ids=["one", "two"])
def test_every_link_to_ours_alone_switches_the_listing_off(tmp_path: Path, roots: tuple[str, ...]) -> None:
    skill(tmp_path, f"{OURS}/a")
    for root in roots:
        link(tmp_path, f"{root}/a", f"{OURS}/a")
    assert settled(tmp_path, *roots) == NativeListing(listing=False)


def test_an_extra_path_makes_a_directory_ours(tmp_path: Path) -> None:
    skill(tmp_path, f"{THEIRS}/a")
    assert settled(tmp_path, options=SkillOptions(extra_paths=(THEIRS,))) == NativeListing(listing=False)


def test_the_users_directory_may_be_that_of_the_agent(tmp_path: Path) -> None:
    workspace, home = tmp_path / "ws", tmp_path / "home"
    workspace.mkdir()
    skill(home, "skills/mine")
    options = SkillOptions(user_path=str(home / "skills"))
    assert settled(workspace, str(home / "skills"), options=options) == NativeListing(listing=False)


@pytest.mark.parametrize("theirs", [(), (f"{THEIRS}/.system/shipped",)], ids=["none", "shipped"])
def test_without_skills_of_its_own_an_agent_is_left_alone(tmp_path: Path, theirs: tuple[str, ...]) -> None:
    skill(tmp_path, f"{OURS}/a")
    for path in theirs:
        skill(tmp_path, path)
    assert settled(tmp_path) == NativeListing()


def test_without_skills_of_ours_an_agent_is_left_alone(tmp_path: Path) -> None:
    skill(tmp_path, f"{THEIRS}/a")
    assert settled(tmp_path) == NativeListing()
    skill(tmp_path, f"{OURS}/bad", head="x: [")
    link(tmp_path, f"{THEIRS}/bad", f"{OURS}/bad")
    assert settled(tmp_path) == NativeListing(), "it may read what we refuse"


def test_a_malformed_one_in_our_directory_does_not_bring_the_other_listing_back(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    skill(tmp_path, f"{OURS}/bad", head="x: [")
    link(tmp_path, THEIRS, OURS)
    assert settled(tmp_path) == NativeListing(listing=False)


def test_what_lies_deeper_than_we_look_is_not_hidden(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    skill(tmp_path, f"{OURS}/group/deep")
    link(tmp_path, THEIRS, OURS)
    assert (settled(tmp_path).listing, settled(tmp_path).duplicates) == (True, frozenset({"a"}))


def test_two_files_with_one_name_are_two_skills(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    skill(tmp_path, f"{THEIRS}/a")
    assert settled(tmp_path) == NativeListing()


def test_a_linked_file_is_not_found_by_the_agent_and_stays_ours(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    skill(tmp_path, f"{THEIRS}/team")
    link(tmp_path, f"{THEIRS}/a/SKILL.md", f"{OURS}/a/SKILL.md")
    assert settled(tmp_path) == NativeListing()


@pytest.mark.parametrize(
    "head",
    [
        "when_to_use: Often.",
        "description: **Bold**",
        "description: |Text",
        'description: d\nmetadata: "x"',
        "description: Use when: asked",
    ],
)
def test_what_another_reader_may_refuse_stays_in_our_list_until_the_agent_says_that_it_lists_it(
    tmp_path: Path, head: str
) -> None:
    directory = skill(tmp_path, f"{OURS}/odd", head=head)
    skill(tmp_path, f"{THEIRS}/team")
    link(tmp_path, f"{THEIRS}/odd", f"{OURS}/odd")
    told = settled(tmp_path)
    assert [one.name for one in load(tmp_path, SkillOptions()).skills] == ["odd"]
    assert (told.listing, told.duplicates) == (True, frozenset())
    assert told.confirmed([tmp_path / THEIRS / "odd/SKILL.md"]).duplicates == {"odd"}, (
        "whatever way its path leads"
    )
    assert told.confirmed([directory / "SKILL.md"]).duplicates == {"odd"}


def test_a_faultless_skill_that_the_agent_does_not_list_comes_back_to_ours(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    skill(tmp_path, f"{THEIRS}/team")
    link(tmp_path, f"{THEIRS}/a", f"{OURS}/a")
    told = settled(tmp_path)
    assert told.duplicates == {"a"}
    assert told.confirmed([tmp_path / THEIRS / "team/SKILL.md"]).duplicates == frozenset()


def test_links_in_a_ring_and_what_cannot_be_read_do_no_harm(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    (tmp_path / THEIRS / "x").mkdir(parents=True)
    link(tmp_path, f"{THEIRS}/x/ring", THEIRS)
    (tmp_path / THEIRS / "self").symlink_to("self")
    (tmp_path / THEIRS / "file").symlink_to("/dev/null")
    (tmp_path / THEIRS / "plain.md").write_text("")
    assert settled(tmp_path) == NativeListing()


def test_the_search_ends_at_the_depth_of_the_agent(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    skill(tmp_path, f"{THEIRS}/1/2/3/4/5/six")
    link(tmp_path, f"{THEIRS}/a", f"{OURS}/a")
    assert (settled(tmp_path).listing, settled(tmp_path).duplicates) == (True, frozenset({"a"}))


def test_one_level_deeper_nothing_is_seen(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    skill(tmp_path, f"{THEIRS}/1/2/3/4/5/6/seven")
    link(tmp_path, f"{THEIRS}/a", f"{OURS}/a")
    assert settled(tmp_path) == NativeListing(listing=False)


def test_a_very_large_directory_is_not_walked_to_its_end(tmp_path: Path) -> None:
    skill(tmp_path, f"{OURS}/a")
    for number in range(2_000):
        (tmp_path / THEIRS / f"s{number}").mkdir(parents=True)
    assert settled(tmp_path) == NativeListing()
