"""The page about skills says what is so: codes, keys, formats, commands, and code that runs."""

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from symphony.skills import DropReason, Format, Scope, SkillOptions, Validation, load
from symphony.skills.codes import MEANINGS
from symphony.skills.command import main
from symphony.workflow.settings import SkillsSettings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "skills.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_every_code_stands_in_the_table_as_the_code_has_it() -> None:
    table = PAGE.split("<!-- codes:begin -->\n")[1].split("<!-- codes:end -->")[0]
    rows = [
        f"| `{code.value}` | {meaning.severity.value} | {meaning.message} | {meaning.hint} |"
        for code, meaning in MEANINGS.items()
    ]
    assert table.splitlines()[2:] == rows


@pytest.mark.parametrize("word", [*Format, *Scope, *Validation, *DropReason])
def test_every_word_of_the_vocabulary_is_there(word: str) -> None:
    assert f"`{word}`" in PAGE


@pytest.mark.parametrize("name", [field.name for field in fields(SkillOptions)])
def test_every_option_is_there(name: str) -> None:
    assert re.search(rf"`{name}\b", PAGE), name


def test_the_example_of_a_skill_passes_the_strict_profile(tmp_path: Path) -> None:
    (tmp_path / "release-notes").mkdir()
    (tmp_path / "release-notes/SKILL.md").write_text(blocks("markdown")[0], encoding="utf-8")
    found = load(tmp_path, SkillOptions(path=".", validation=Validation.STRICT))
    assert ([skill.name for skill in found.skills], found.problems) == (["release-notes"], ())


def test_the_library_example_runs_in_ten_lines(tmp_path: Path) -> None:
    (tmp_path / ".agents/skills/a").mkdir(parents=True)
    (tmp_path / ".agents/skills/a/SKILL.md").write_text("---\nname: a\ndescription: Works.\n---\n")
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "- a — Works. ('a',) ()\nNone\n" in done.stdout, done.stderr


def test_the_commands_shown_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory in (".symphony/skills/release-notes", "my-skills/x", ".agents/skills/y"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "SKILL.md").write_text("---\nname: release-notes\ndescription: d\n---\n")
    monkeypatch.chdir(tmp_path)
    shown = [line for text in blocks("sh") for line in text.splitlines() if "symphony.skills" in line]
    entries = [step for text in blocks("yaml") for step in re.findall(r"(?:entry|run): (python .*)", text)]
    assert len(shown) == 6
    assert len(entries) == 2
    for line in (*shown, *entries):
        assert main(shlex.split(line, comments=True)[3:]) == 0, line
    assert "## Available skills" in capsys.readouterr().out


def test_the_yaml_shown_is_yaml() -> None:
    settings, hook, action = map(yaml.safe_load, blocks("yaml"))
    assert SkillsSettings.model_validate(settings["agent"]["skills"]).source == "base_branch"
    assert settings["agent"]["skills"].keys() <= SkillsSettings.model_fields.keys()
    assert hook["repos"][0]["hooks"][0]["pass_filenames"] is False
    assert action["jobs"]["skills"]["steps"][-1]["run"].endswith("--format github")
