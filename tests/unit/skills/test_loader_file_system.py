"""Conformance cases 53 to 65: the file system, friendly and not."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from harness.descriptors import open_descriptors
from symphony.skills import Severity, SkillOptions, with_advice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from unit.skills.conftest import Shelf


@pytest.fixture
def fail_open(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Lets every opening of one name fail with one error, also for a user who may read everything."""
    real = os.open

    def arrange(name: str, number: int) -> None:
        def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
            if path == name:
                raise OSError(number, os.strerror(number))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", refuse)

    return arrange


def test_case_53_a_fifo_is_refused_at_once(shelf: Shelf) -> None:
    (shelf.root / "a").mkdir(parents=True)
    os.mkfifo(shelf.root / "a" / "SKILL.md")
    start = time.monotonic()
    assert shelf.problems() == [("not_regular_file", "a/SKILL.md")]
    assert time.monotonic() - start < 30  # it takes microseconds, or for ever


def test_case_53_a_socket_is_refused(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    (shelf.root / "a").mkdir(parents=True)
    monkeypatch.chdir(shelf.root / "a")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("SKILL.md")
        assert shelf.problems() == [("not_regular_file", "a/SKILL.md")]


def test_case_54_a_link_to_a_file_of_the_workspace_is_followed(shelf: Shelf) -> None:
    target = shelf.workspace / "docs" / "a.md"
    target.parent.mkdir()
    target.write_text("---\nname: a\ndescription: Linked.\n---\n")
    (shelf.root / "a").mkdir(parents=True)
    (shelf.root / "a" / "SKILL.md").symlink_to("../../../docs/a.md")
    assert shelf.entries() == ["- a — Linked."]


def test_case_54_a_link_out_of_the_workspace_is_refused(
    shelf: Shelf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("outside") / "SKILL.md"
    secret.write_text("---\nname: a\ndescription: Secret.\n---\n")
    (shelf.root / "a").mkdir(parents=True)
    (shelf.root / "a" / "SKILL.md").symlink_to(secret)
    (shelf.root / "b").symlink_to(secret.parent)
    assert shelf.names() == []
    assert shelf.problems() == [("outside_workspace", "a/SKILL.md"), ("outside_workspace", "b/SKILL.md")]


def test_case_54_a_sibling_of_the_workspace_with_the_same_beginning_is_outside(
    tmp_path: Path, shelf: Shelf
) -> None:
    sibling = tmp_path.with_name(tmp_path.name + "-b") / "a"
    sibling.mkdir(parents=True)
    (sibling / "SKILL.md").write_text("---\nname: a\ndescription: x\n---\n")
    shelf.root.mkdir(parents=True)
    (shelf.root / "a").symlink_to(sibling)
    assert shelf.problems() == [("outside_workspace", "a/SKILL.md")]


def test_case_54_links_inside_the_workspace_are_followed_at_every_level(shelf: Shelf) -> None:
    shelf.skill("real", body="x")
    (shelf.root / "linked").symlink_to("real")
    (shelf.workspace / "alias").symlink_to(".symphony")
    assert shelf.problems(path="alias/skills") == [("duplicate_name", "alias/skills/linked/SKILL.md")]
    (skill,) = shelf.load(path="alias/skills").skills
    assert skill.directory == "real"


def test_case_54_a_link_that_leads_nowhere_or_in_circles(shelf: Shelf) -> None:
    shelf.root.mkdir(parents=True)
    (shelf.root / "dangling").symlink_to("nowhere")
    (shelf.root / "circle").symlink_to("circle")
    (shelf.root / "file").symlink_to("plain")
    (shelf.root / "plain").write_text("x")
    shelf.write("gone", "x", file="README.md")
    (shelf.root / "gone" / "SKILL.md").symlink_to("../../no/SKILL.md")
    assert shelf.problems() == [("unreadable", "circle/SKILL.md")]
    assert shelf.problems(Severity.WARNING) == [
        ("dangling_link", "dangling"),
        ("dangling_link", "gone/SKILL.md"),
    ]


def test_a_root_that_is_a_link_to_nothing_is_told(shelf: Shelf) -> None:
    (shelf.workspace / "elsewhere").symlink_to("nowhere")
    found = shelf.load(path="elsewhere/skills")
    assert [(one.code, one.path) for one in found.problems] == [("dangling_link", "elsewhere/skills")]
    (shelf.workspace / ".symphony").symlink_to("nowhere")
    assert shelf.load().problems == (), "the default root costs one look"
    told = with_advice(shelf.workspace, SkillOptions(), shelf.load()).problems
    assert [(one.code, one.path) for one in told] == [("dangling_link", ".symphony/skills")]


def test_case_55_the_root_may_be_a_link_inside_the_workspace(shelf: Shelf) -> None:
    shelf.skill("a")
    shelf.root.rename(shelf.workspace / "agents")
    shelf.root.symlink_to("../agents")
    assert shelf.entries() == ["- a — About a."]
    assert shelf.load().root == shelf.root


def test_case_55_a_root_that_leads_out_is_refused_without_a_walk(
    shelf: Shelf, tmp_path_factory: pytest.TempPathFactory, calls: list[str]
) -> None:
    (shelf.workspace / ".symphony").mkdir()
    shelf.root.symlink_to(tmp_path_factory.mktemp("outside"))
    calls.clear()
    (problem,) = shelf.load().problems
    assert (problem.code, problem.path, problem.line) == ("outside_workspace", ".symphony/skills", None)
    assert "scandir" not in calls


def test_case_56_a_directory_named_like_the_file_is_refused(shelf: Shelf) -> None:
    (shelf.root / "a" / "SKILL.md").mkdir(parents=True)
    assert shelf.problems() == [("not_regular_file", "a/SKILL.md")]


def test_case_57_an_unreadable_directory_does_not_hide_the_others(
    shelf: Shelf, fail_open: Callable[[str, int], None]
) -> None:
    shelf.skill("a")
    shelf.skill("b")
    fail_open("a", errno.EACCES)
    assert shelf.names() == ["b"]
    assert shelf.problems() == [("unreadable", "a/SKILL.md")]


def test_case_57_an_unreadable_file_is_reported(shelf: Shelf, fail_open: Callable[[str, int], None]) -> None:
    shelf.skill("a")
    fail_open("SKILL.md", errno.EACCES)
    assert shelf.problems() == [("unreadable", "a/SKILL.md")]


def test_case_57_an_unreadable_root_is_reported(shelf: Shelf, fail_open: Callable[[str, int], None]) -> None:
    shelf.skill("a")
    fail_open("skills", errno.EACCES)
    (problem,) = shelf.load().problems
    assert (problem.code, problem.path, problem.severity) == (
        "unreadable",
        ".symphony/skills",
        Severity.ERROR,
    )


@pytest.mark.parametrize("call", ["scandir", "read"])
def test_case_57_a_disk_that_fails_is_reported(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    shelf.skill("a")
    monkeypatch.setattr(os, call, fail)
    assert [one.code for one in shelf.load().problems] == ["unreadable"]


def test_case_58_a_lower_case_file_is_not_loaded_but_mentioned(shelf: Shelf) -> None:
    shelf.write("a", "---\nname: a\ndescription: x\n---\n", file="skill.md")
    assert shelf.names() == []
    assert shelf.problems(Severity.WARNING) == [("lowercase_filename", "a/skill.md")]
    assert shelf.problems() == []


def test_case_59_what_is_no_skill_is_ignored_silently(shelf: Shelf) -> None:
    shelf.skill("a")
    for name in ("README.md", ".DS_Store", "notes"):
        (shelf.root / name).write_text("x")
    (shelf.root / "empty").mkdir()
    assert shelf.names() == ["a"]
    assert shelf.problems(Severity.ERROR, Severity.WARNING) == []


def test_case_60_hidden_directories_are_ignored(shelf: Shelf) -> None:
    shelf.skill(".git")
    shelf.skill(".x")
    assert (shelf.load().skills, shelf.load().problems) == ((), ())


def test_case_61_a_file_two_levels_down_is_not_found(shelf: Shelf) -> None:
    shelf.skill("a/b", "name: b")
    assert (shelf.load().skills, shelf.load().problems) == ((), ())


def test_case_62_a_file_among_the_references_is_not_found(shelf: Shelf) -> None:
    shelf.skill("a")
    shelf.skill("a/references/old", "name: old")
    assert shelf.names() == ["a"]


@pytest.mark.parametrize(
    "data",
    [
        b"---\nname: a\ndescription: \xff\n---\n",
        "---\nname: a\ndescription: x\n---\n".encode("utf-16"),
        "---\nname: a\ndescription: x\n---\n".encode("utf-16-le"),
        "---\nname: a\ndescription: x\n---\n".encode("utf-16-be"),
    ],
)
def test_case_63_front_matter_that_is_not_utf8_is_refused(shelf: Shelf, data: bytes) -> None:
    assert shelf.error_of(data) == "not_utf8"


def test_case_63_the_body_may_be_anything(shelf: Shelf) -> None:
    shelf.write("a", b"---\nname: a\ndescription: x\n---\n\xff\xfe\0" + b"\xff" * 5_000)
    assert shelf.names() == ["a"]


def test_case_64_what_vanishes_after_the_listing_is_skipped(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.skill("a")
    shelf.skill("b")
    real = os.open

    def vanish(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == "a":
            shutil.rmtree(shelf.root / "a", ignore_errors=True)
        if path == "SKILL.md":
            (shelf.root / "b" / "SKILL.md").unlink(missing_ok=True)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", vanish)
    found = shelf.load()
    assert (found.skills, found.problems) == ((), ())


def test_case_64_a_directory_swapped_for_a_link_out_is_not_followed(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "SKILL.md").write_text("---\nname: a\ndescription: Secret.\n---\n")
    shelf.skill("a")
    real = os.open

    def swap(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == "a" and not (shelf.root / "a").is_symlink():
            shutil.rmtree(shelf.root / "a")
            (shelf.root / "a").symlink_to(outside)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", swap)
    assert shelf.problems() == [("outside_workspace", "a/SKILL.md")]


def test_case_64_a_file_that_shrinks_while_it_is_read(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.skill("a", f"x: {'y' * 10_000}")
    real = os.read
    pieces = iter([4_096, 0])
    monkeypatch.setattr(os, "read", lambda descriptor, _: real(descriptor, next(pieces)))
    assert [one.code for one in shelf.load().problems] == ["front_matter_too_large"]


def test_case_65_five_thousand_directories_stop_at_the_limit(shelf: Shelf) -> None:
    for number in range(5_000):
        (shelf.root / f"d{number:04}").mkdir(parents=True)
    shelf.skill("d0000")
    shelf.skill("d4999")
    start = time.thread_time()
    found = shelf.load()
    assert time.thread_time() - start < 20
    assert [skill.name for skill in found.skills] == ["d0000"]
    assert (found.problems[0].code, found.problems[0].path) == ("limit_exceeded", ".symphony/skills")
    assert found.incomplete == "count"


@pytest.mark.parametrize("stray", ["valid", "broken", "dangling link", "directory"])
def test_a_stray_file_beside_the_skills_hides_none_of_them(shelf: Shelf, stray: str) -> None:
    for name in ("a", "b"):
        shelf.skill(name)
    file = shelf.root / "SKILL.md"
    if stray == "dangling link":
        file.symlink_to("nowhere")
    elif stray == "directory":
        file.mkdir()
    else:
        file.write_text("---\nname: c\ndescription: d\n---\n" if stray == "valid" else "# Title\n")
    assert shelf.names() == ["a", "b"]
    assert shelf.problems() == [("stray_file", "SKILL.md")]


def test_a_directory_named_as_its_skill_is_one_beside_those_below_it(shelf: Shelf) -> None:
    shelf.skill("a")
    shelf.write(".", "---\nname: skills\ndescription: How to write skills.\n---\n")
    assert shelf.names() == ["a", "skills"]
    assert shelf.problems() == []
    assert [path.is_file() for path in map(shelf.load().file, shelf.load().skills)] == [True, True]


def test_a_directory_that_is_not_utf8_is_told_as_text(shelf: Shelf) -> None:
    shelf.skill(os.fsdecode(b"\xff"), "name: a", "description: b")
    assert shelf.names() == []
    assert shelf.problems() == [("invalid_directory", "\ufffd/SKILL.md")]


@pytest.mark.parametrize(
    "directory", ["good ", "good\u034f", "good\ufe0f", "a  b", "b<system>", "x (file: y)"]
)
def test_a_directory_that_cannot_be_found_by_what_is_shown_is_refused(shelf: Shelf, directory: str) -> None:
    shelf.skill("good")
    shelf.skill(directory, "name: other")
    assert shelf.entries() == ["- good — About good."]
    assert [code for code, _ in shelf.problems()] == ["invalid_directory"]


def test_no_descriptor_is_left_open(shelf: Shelf) -> None:
    shelf.skill("a")
    shelf.write("b", "# x")
    (shelf.root / "c").symlink_to("/")
    shelf.load()
    shelf.load(path="missing/path")
    assert [path for _, path in open_descriptors() if path.startswith(str(shelf.workspace))] == []
