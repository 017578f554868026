"""The page about skills says what is so: codes, keys, formats, commands, and code that runs."""

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from symphony.cli.main import main as symphony
from symphony.config import SkillsSettings
from symphony.skills import (
    MEANINGS,
    ActivationMode,
    DropReason,
    Format,
    Scope,
    SkillOptions,
    Validation,
    load,
)

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


def test_every_word_of_the_vocabulary_is_there() -> None:
    vocabulary = [*Format, *Scope, *Validation, *DropReason, *ActivationMode]
    assert [word for word in vocabulary if f"`{word}`" not in PAGE] == []


def test_every_option_is_there() -> None:
    names = [field.name for field in fields(SkillOptions)]
    assert [name for name in names if not re.search(rf"`{name}\b", PAGE)] == []


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


def _commands(program: str) -> list[list[str]]:
    """What the page shows of a program, as arguments: in shell blocks, in the hook and in the action."""
    shell = [line for text in blocks("sh") for line in text.splitlines()]
    entries = [step for text in blocks("yaml") for step in re.findall(r"(?:entry|run): (.*)", text)]
    shown = [line for line in (*shell, *entries) if line.startswith(f"{program} ")]
    return [shlex.split(line.removeprefix(program), comments=True) for line in shown]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with what the page's commands are about, and a home with a skill."""
    for name in (
        ".symphony/skills/release-notes",
        "my-skills/x",
        ".agents/skills/y",
        "home/.claude/skills/z",
    ):
        (tmp_path / name).mkdir(parents=True)
        text = f"---\nname: {Path(name).name}\ndescription: Notes.\n---\n"
        (tmp_path / name / "SKILL.md").write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("arguments", _commands("symphony skills"), ids=" ".join)
def test_the_commands_that_are_shown_work(arguments: list[str], tmp_path: Path) -> None:
    if "https://github.com/example/skills" in arguments:
        arguments = _of_a_repository_here(arguments, tmp_path / "elsewhere")
    done = CliRunner().invoke(symphony, ["skills", *arguments])
    assert done.exit_code == 0, done.output


def _of_a_repository_here(arguments: list[str], place: Path) -> list[str]:
    """The same command for a repository with such a tag and such a skill."""
    (place / "skills/pdf-tools").mkdir(parents=True)
    (place / "skills/pdf-tools/SKILL.md").write_text("---\nname: pdf-tools\ndescription: d\n---\n")
    person = ("-c", "user.name=x", "-c", "user.email=x@x")
    for step in (("init", "-q"), ("add", "-A"), (*person, "commit", "-qm", "x"), ("tag", "v1.2")):
        subprocess.run(["git", *step], cwd=place, check=True)
    return [place.as_uri() if "://" in one else one for one in arguments]


def test_the_yaml_shown_is_yaml() -> None:
    shown = [yaml.safe_load(text) for text in blocks("yaml")]
    (hook,) = [one for one in shown if "repos" in one]
    (action,) = [one for one in shown if "jobs" in one]
    (settings,) = [one for one in shown if "agent" in one]
    assert SkillsSettings.model_validate(settings["agent"]["skills"]).source == "base_branch"
    assert settings["agent"]["skills"].keys() <= SkillsSettings.model_fields.keys()
    assert hook["repos"][0]["hooks"][0]["pass_filenames"] is False
    assert action["jobs"]["skills"]["steps"][-1]["run"].endswith("--github")
    assert {"check --strict", "check --github"} <= {" ".join(one) for one in _commands("symphony skills")}
    files = re.compile(hook["repos"][0]["hooks"][0]["files"])
    assert [
        one for one in (".symphony/skills/a/SKILL.md", "WORKFLOW.md", "src/a.py") if files.search(one)
    ] == [
        ".symphony/skills/a/SKILL.md",
        "WORKFLOW.md",
    ]
