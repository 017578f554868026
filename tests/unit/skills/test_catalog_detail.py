"""One skill, shown whole: its fields, what it hides, its text without anything that steers a terminal."""

from pathlib import Path
from typing import Any

import pytest

from symphony.characters import visible
from symphony.cli.commands.skills import detail, detail_lines
from symphony.cli.documents import SkillDetail
from symphony.skills import SkillOptions, load, render, skill_digests
from unit.skills.conftest import Shelf


def shown(workspace: Path, name: str, **options: Any) -> tuple[SkillDetail, list[str]]:
    chosen = SkillOptions(**options)
    found = load(workspace, chosen)
    document = detail(workspace, found, name, render(found, chosen), chosen)
    assert document is not None
    return document, list(detail_lines(document, found, "."))


def test_the_text_is_shown_with_its_escapes_visible(shelf: Shelf) -> None:
    shelf.skill("a", "metadata: {symphony-phases: TEST}", body="One\n\x1b[2Jtwo\u202e\tthree\n")
    document, lines = shown(shelf.workspace, "a")
    assert document.body == "One\n\x1b[2Jtwo\u202e\tthree"
    assert lines[-2:] == ["One", "\\x1b[2Jtwo\\u202e\tthree"]
    assert {"enabled: yes", "phases: TEST"} <= {*lines}


def test_a_long_text_ends_with_where_the_rest_is(shelf: Shelf) -> None:
    path = shelf.skill("a", body="x\n" * 2_000)
    lines = shown(shelf.workspace, "a")[1]
    assert lines[-1] == f"(more in {path})"
    assert lines.count("x") == 500


def test_a_skill_that_has_just_gone_has_no_text(shelf: Shelf) -> None:
    path = shelf.skill("a")
    options = SkillOptions()
    found = load(shelf.workspace, options)
    path.unlink()
    document = detail(shelf.workspace, found, "a", render(found, options), options)
    assert document is not None
    assert (document.body, document.sha256, document.files) == (None, None, ())
    assert "" not in list(detail_lines(document, found, "."))


def test_a_skill_of_the_user_is_shown_and_digested_like_any_other(shelf: Shelf, tmp_path: Path) -> None:
    user = tmp_path / "home"
    for root, body in ((user, "Mine"), (shelf.root, "Ours")):
        for name in ("both", "mine")[: 2 if root is user else 1]:
            (root / name).mkdir(parents=True)
            (root / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n{body}\n")
    (user / "mine/extra.txt").write_text("x")
    mine, lines = shown(shelf.workspace, "mine", user_path=str(user))
    assert (mine.scope, mine.body, mine.files) == ("user", "Mine", ("extra.txt",))
    assert "files: extra.txt" in lines
    both = shown(shelf.workspace, "both", user_path=str(user))[0]
    assert (both.body, both.shadows) == ("Ours", (f"{user}/both/SKILL.md",))
    options = SkillOptions(user_path=str(user))
    digests = skill_digests(shelf.workspace, load(shelf.workspace, options).skills, options)
    assert len(set(digests.values())) == 2
    assert mine.sha256 == digests[mine.path]


@pytest.mark.parametrize("line", ["plain", "日本語", "tab\there"])
def test_text_stays_text(line: str) -> None:
    assert visible(line) == line
