"""The copies of the library's skills that sessions get."""

import os
from dataclasses import replace
from pathlib import Path

import anyio
from structlog.testing import capture_logs

from harness.binding import FakeTracker, make_context
from harness.scheduling import make_issue
from symphony.daemon.library_skills import NO_LIBRARY_SKILLS, LibrarySkills, copy_library_skills
from symphony.library.model import Change, SkillText, TargetKind
from symphony.library.store import Library
from symphony.skills import SkillOptions

STYLE = SkillText(name="style", description="Style.", when_to_use="Always.", content="Be brief.\n")
ADA = Change(author="ada")


def copied(tmp_path: Path, library: Library, *labels: str) -> LibrarySkills:
    context = replace(make_context(tmp_path, FakeTracker()), library=library)
    return anyio.run(copy_library_skills, context, make_issue("1", labels=labels), "codex")


def test_a_session_gets_a_copy_that_no_later_version_changes(tmp_path: Path) -> None:
    library = Library(tmp_path / "library.db")
    assert copied(tmp_path, library) == NO_LIBRARY_SKILLS
    assert not library.path.exists()
    library.add(STYLE, ADA)
    first = copied(tmp_path, library)
    assert first.root is not None
    file = first.root / "style" / "SKILL.md"
    assert (file.read_bytes(), os.access(first.root, os.R_OK), first.versions) == (
        STYLE.file(),
        True,
        {"style": 1},
    )
    assert file.stat().st_mode & 0o222 == 0
    assert copied(tmp_path, library) == first
    library.edit(replace_content("Be long.\n"), ADA, base_version=1)
    second = copied(tmp_path, library)
    assert second.root != first.root
    assert (second.versions, file.read_bytes()) == ({"style": 2}, STYLE.file())
    options = SkillOptions(user_path="~/mine")
    assert second.added_to(options).user_paths == ("~/mine", str(second.root))
    assert NO_LIBRARY_SKILLS.added_to(options) == options


def replace_content(content: str) -> SkillText:
    return SkillText(name="style", description="Style.", when_to_use="Always.", content=content)


def test_an_assignment_decides_and_a_broken_library_costs_a_log_line(tmp_path: Path) -> None:
    library = Library(tmp_path / "library.db")
    library.add(STYLE, ADA)
    library.assign(TargetKind.AGENT, "codex", ())
    assert copied(tmp_path, library) == NO_LIBRARY_SKILLS
    with capture_logs() as lines:
        assert copied(tmp_path, library, "skill:style", "skill:missing").versions == {"style": 1}
    assert [(line["event"], line["names"]) for line in lines] == [("library_skills_unknown", ("missing",))]
    library.path.write_bytes(b"damaged" * 1_000)
    with capture_logs() as lines:
        assert copied(tmp_path, library) == NO_LIBRARY_SKILLS
    assert [line["event"] for line in lines] == ["library_unavailable"]
