"""`symphony library`: what each command prints, changes and refuses, on the file of the library."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.project import Project
from published.schemas import conforms_to
from symphony.cli.main import main
from symphony.library.model import Change, SkillText
from symphony.library.store import LIBRARY_FILE, Library

ADA = Change(author="ada", reason="first")


def skill(name: str, content: str = "# How\n", description: str = "What it does.") -> SkillText:
    return SkillText(name=name, description=description, when_to_use="", content=content)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(root=tmp_path).create()
    made.workflow(workspace={"repo": None})
    monkeypatch.chdir(made.repo)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(made.state_dir))
    return made


@pytest.fixture
def store(project: Project) -> Library:
    return Library(project.state_dir / LIBRARY_FILE)


def run(*arguments: str, stdin: str | bytes = "", code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["library", *arguments], input=stdin)
    assert done.exit_code == code, done.output
    return done


def as_json(*arguments: str, stdin: str | bytes = "", code: int = 0, shape: str = "") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json", stdin=stdin, code=code).stdout)
    conforms_to(f"library-{shape or arguments[0]}", document)
    return document


# --- looking ---


def test_a_list_has_all_skills_or_those_with_all_words(store: Library) -> None:
    for number in range(60):
        store.add(skill(f"skill-{number:02}"), ADA)
    store.add(skill("migrate", description="Migrate a database."), ADA)
    assert as_json("list")["total"] == len(as_json("list")["skills"]) == 61
    assert [one["name"] for one in as_json("list", "DATABASE", "migrate")["skills"]] == ["migrate"]
    assert as_json("list", "--learned")["skills"] == []
    rows = [line.split() for line in run("list", "database").stdout.splitlines()]
    assert rows[0] == ["NAME", "VERSION", "ORIGIN", "CHANGED", "DESCRIPTION"]
    assert rows[1][:3] == ["migrate", "1", "written"]


def test_an_earlier_version_is_shown(store: Library) -> None:
    store.add(skill("style", "one\n"), ADA)
    store.edit(skill("style", "two\n"), ADA, base_version=1)
    assert as_json("show", "style")["file"].endswith("---\ntwo\n")
    page = as_json("show", "style", "1")
    assert (page["shown"], page["skill"]["version"]) == (1, 2)
    assert page["file"].endswith("---\none\n")
    assert run("show", "style", "1").stdout.endswith("---\none\n")


def test_what_is_not_there_is_an_error_with_a_hint(store: Library) -> None:
    store.add(skill("style"), ADA)
    for arguments in (("show", "styl"), ("show", "style", "9")):
        done = run(*arguments, code=1)
        assert done.stdout == ""
        assert done.stderr.splitlines()[1].startswith("hint: ")


def test_a_secret_is_not_shown(store: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    store.add(skill("style", "use hunter2-hunter2\n"), ADA)
    assert "hunter2" not in run("show", "style").stdout
    assert "hunter2" not in as_json("show", "style")["file"]


def test_nothing_of_a_skill_steers_the_terminal(store: Library) -> None:
    store.add(skill("style", "a\x1b[2Jb\n", description="\x1b[31mred"), ADA)
    for arguments in (("list",), ("show", "style")):
        assert "\x1b" not in run(*arguments).stdout


# --- where the library is ---


def test_without_a_workflow_and_without_a_library_there_is_nothing_to_open(
    project: Project, store: Library
) -> None:
    (project.repo / "WORKFLOW.md").unlink()
    run("list", code=3)
    assert not store.path.exists()
    store.add(skill("style"), ADA)
    assert as_json("list")["total"] == 1


def test_other_mistakes_than_those_of_agent_do_not_matter(project: Project, store: Library) -> None:
    store.add(skill("style"), ADA)
    project.workflow(tracker={"kind": "linear", "api_key": "$NOT_SET_HERE"})
    assert as_json("list")["total"] == 1
    project.workflow(agent={"library": {"sync": "sometimes"}})
    run("list", code=3)
    (project.repo / "WORKFLOW.md").write_text("---\ntracker: {\n---\n")
    run("list", code=3)


def test_a_damaged_library_is_told_and_left_as_it_is(store: Library) -> None:
    store.path.parent.mkdir(parents=True, exist_ok=True)
    store.path.write_bytes(b"damaged" * 1_000)
    assert "damaged" in run("list", code=1).stderr
    assert store.path.read_bytes() == b"damaged" * 1_000
