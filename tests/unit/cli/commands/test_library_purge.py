"""`symphony library purge`: what it takes out, says and asks."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.project import Project
from published.schemas import conforms_to
from symphony.cli.main import main
from symphony.library.model import Authorship, Evidence, Origin, SkillText
from symphony.library.store import LIBRARY_FILE, Library

AGENT = Authorship(author="codex", run_id="run-1")
EVERYTHING = ("--learned-since", "2020-01-01")


def skill(name: str, content: str = "One.\n") -> SkillText:
    return SkillText(name=name, description="What it does.", when_to_use="", content=content)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    project = Project(root=tmp_path).create()
    project.workflow(workspace={"repo": None})
    monkeypatch.chdir(project.repo)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(project.state_dir))
    library = Library(project.state_dir / LIBRARY_FILE)
    library.add(skill("style"), Authorship(author="ada"))
    library.edit(skill("style", "Learned.\n"), AGENT, base_version=1)
    library.add(skill("fresh"), AGENT, origin=Origin.LEARNED)
    library.propose(skill("other"), Evidence(run_id="run-1"), base_version=0)
    return library


def purge(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["library", "purge", *arguments])
    assert done.exit_code == code, done.output
    return done


def as_json(*arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(purge(*arguments, "--json").stdout)
    conforms_to("library-purge", document)
    return document


def test_it_says_what_it_would_do_and_does_it_once(store: Library) -> None:
    found = as_json(*EVERYTHING, "--dry-run")
    assert found == {
        "dry_run": True,
        "removed": ["fresh"],
        "reverted": [{"name": "style", "before": 2, "version": 3, "text_of": 1}],
        "rejected": [1],
    }
    assert store.skill("style").version == 2
    assert as_json(*EVERYTHING, "--yes") == found | {"dry_run": False}
    assert (store.skill("style").text, len(store.skills())) == (skill("style"), 1)
    assert store.history("style")[0].change.author
    assert purge(*EVERYTHING).stdout == ""


def test_without_a_terminal_it_needs_a_yes(store: Library) -> None:
    purge(*EVERYTHING, code=2)
    assert store.skill("style").version == 2
    assert len(purge(*EVERYTHING, "--yes").stdout.splitlines()) == 3


def test_nothing_older_than_the_date_is_touched(store: Library) -> None:
    for date in ("2999-01-01", "2999-01-01T10:00:00", "2999-01-01T10:00:00+02:00"):
        assert purge("--learned-since", date).stdout == ""
    assert store.skill("style").version == 2
    for wrong in ("yesterday", ""):
        purge("--learned-since", wrong, code=2)


def test_no_agent_purges(store: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMPHONY_RUN_ID", "run-1")
    purge(*EVERYTHING, "--yes", code=1)
    assert store.skill("style").version == 2
