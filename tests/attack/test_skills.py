"""Hostile skills: whatever lies in a directory of skills, the list has one clean line for each entry.

No name or text opens a block of its own, every file that is named can be opened, nothing outside is read, the
work is bounded, and a good skill beside the hostile ones is always listed.
"""

import os
import re
import unicodedata
from pathlib import Path
from random import Random

import pytest

from attack.conftest import Rounds
from symphony.skills import Format, Severity, SkillOptions, Validation, load, render

TRICKS = (
    *("\u034f", "\u200b", "\u200d", "\u202e", "\u2028", "\u0085", "\u2800", "\u3164", "\ufe0f", "\ufeff"),
    *("\x1b[2J", "\x00", "\r", "\n", "\t", "  ", "\u00a0", "\U000e0041", "é", "日本", "\u0430"),
    *("# System", "## ", "```sh", "~~~", "> x", "1. x", "- ", "* ", "---", "[x]: y", "| a", " — ", "&lt;"),
    *("</available_skills>", "<system-reminder>", "<!--", " (directory: good)", " (file: /etc/passwd)"),
    *("&foo ", "*foo ", "!foo ", "!!str ", ": ", " #", "'", '"', "[", "{", "}", "]", "? ", "@", "%", "`"),
)
KEYS = ("name", "description", "when_to_use", "whenToUse", "metadata", "x", "Use when", "? ", "- ")
STRUCTURE = re.compile(r"- (?:#|>|```|~~~|\d+[.)]\s|[-+*]\s|\[[^\]]*\]:|\|)|(?!- )")
MAX_READ = 65_536


def _text(random: Random) -> str:
    words = ("good", "a", "pdf", "Use when: x", *random.choices(TRICKS, k=3))
    return "".join(random.choices(words, k=random.randint(1, 4)))


def _file(random: Random) -> bytes:
    lines = []
    for _ in range(random.randint(1, 5)):
        value = _text(random)
        if random.random() < 0.1:
            value = random.choice(("[" * 99, "x, " * 3_000, "\n  - a\n  - b", ">-\n  one\n  two", "&a [*a]"))
        quoted = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        lines.append(f"{random.choice(KEYS)}: {random.choice((value, value, quoted))}")
    fence = random.choice(("---", "---", "---", "--- ", "---# Title", "----", ""))
    text = random.choice(("---\n", "---\n", "---\n", "\ufeff---\r\n", "\n---\n")) + "\n".join(lines)
    return f"{text}\n{fence}\nbody\n".encode("utf-8", "surrogatepass")


def _directory(random: Random, root: Path, outside: Path) -> None:
    name = random.choice((_text(random).encode(), b"\xff\xfe", b"good ", b"SKILL.md"))
    name = name.replace(b"/", b"_").replace(b"\0", b"")[:200]
    if (
        name in {b"", b".", b"..", b"good"}
        or (path := root / os.fsdecode(name)).exists()
        or path.is_symlink()
    ):
        return
    match random.randrange(9):
        case 0:
            path.symlink_to(random.choice((outside, Path("nowhere"), Path("good"), path)))
        case 1:
            path.write_bytes(_file(random))
        case 2:
            (path / "SKILL.md").mkdir(parents=True)
        case 3:
            path.mkdir()
            os.mkfifo(path / "SKILL.md")
        case 4:
            path.mkdir()
            (path / "SKILL.md").symlink_to(outside / "SKILL.md")
        case _:
            path.mkdir()
            (path / "SKILL.md").write_bytes(_file(random))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "SKILL.md").write_text("---\nname: outside\ndescription: A secret.\n---\n")
    return place


def _check(workspace: Path) -> None:
    for validation in Validation:
        options = SkillOptions(validation=validation)
        found = load(workspace, options)
        errors = [one for one in found.problems if one.severity is Severity.ERROR]
        assert "good" in [skill.name for skill in found.skills]
        assert len({skill.name for skill in found.skills}) == len(found.skills)
        assert len({(one.path, one.code) for one in errors}) == len(errors), "one error for each file"
        for skill in found.skills:
            assert found.file(skill).is_file(), "what is named can be opened"
        for form in Format:
            block = str(render(found, SkillOptions(format=form, max_prompt_chars=10**6)).text)
            assert "A secret" not in block
            assert not [one for one in block.replace("\n", "") if unicodedata.category(one) in {"Cc", "Cs"}]
            extra = 6 if form is Format.XML else 4
            assert len(block.splitlines()) == len(found.skills) + extra, "one line for each entry"
            if form is not Format.XML:
                entries = block.split("\n")[4:]
                assert not [entry for entry in entries if STRUCTURE.match(entry)]
                assert not [entry for entry in entries if re.search(r"<[A-Za-z/!]", entry)]


def test_any_directory_of_skills_gives_one_clean_line_for_each(
    rounds: Rounds, tmp_path: Path, outside: Path
) -> None:
    for number, random in enumerate(rounds()):
        workspace = tmp_path / str(number)
        root = workspace / ".symphony" / "skills"
        (root / "good").mkdir(parents=True)
        (root / "good" / "SKILL.md").write_text("---\nname: good\ndescription: Good.\n---\n")
        for _ in range(random.randint(1, 12)):
            _directory(random, root, outside)
        _check(workspace)


def test_the_work_for_one_root_is_bounded(
    rounds: Rounds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only so many values and bytes are looked at, and the list says that it is not whole."""
    read: list[int] = []
    real = os.read

    def counting(descriptor: int, length: int) -> bytes:
        data = real(descriptor, length)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "read", counting)
    monkeypatch.setattr("symphony.skills.loader._MAX_BYTES", 300_000)
    monkeypatch.setattr("symphony.skills.loader._MAX_EVENTS", 3_000)
    for number, random in enumerate(rounds(5)):
        workspace = tmp_path / str(number)
        for index in range(30):
            path = workspace / ".symphony" / "skills" / f"s{index:02}" / "SKILL.md"
            path.parent.mkdir(parents=True)
            junk = random.choice(("x: [" + "1," * 2_000 + "]", "# words\n" * 4_000, "x: [" + "1," * 2_000))
            path.write_text(f"---\nname: s{index:02}\ndescription: d\n{junk}\n---\n")
        read.clear()
        found = load(workspace, SkillOptions())
        assert found.incomplete == "size"
        assert sum(read) <= 300_000 + MAX_READ
        assert len(found.skills) < 30
        assert "incomplete" in str(render(found, SkillOptions()).text)
