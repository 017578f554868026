"""`symphony instructions`: init, list, compose and check, with their JSON, their settings and bad input."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.project import Project
from published.schemas import conforms_to
from symphony.cli.main import main
from symphony.skills import EMBEDDED

DIRECTORY = ".symphony/instructions"
NAMES = [
    "safety",
    "environment",
    "status_signals",
    "planning",
    "implement",
    "test",
    "pr_creation",
    "pr_review",
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(root=tmp_path).create()
    monkeypatch.chdir(made.repo)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["instructions", *arguments])


def as_json(*arguments: str, code: int = 0) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == code, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    conforms_to(f"instructions-{arguments[0]}", document)
    return document


def test_without_settings_the_embedded_modules_are_shown_with_a_warning(project: Project) -> None:
    listed = run("list", "--phase", "test")
    assert listed.exit_code == 0
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert rows[0] == ["NAME", "PRIORITY", "PHASES", "CHARS", "SELECTED"]
    assert [row[0] for row in rows[1:]] == NAMES
    assert [row[0] for row in rows if row[-1] == "yes"] == [*NAMES[:3], "test"]
    assert "warning: agent.instructions.source is not set" in listed.stderr
    document = as_json("list")
    assert (document["source"], document["origin"], document["problems"]) == ("embedded", "source", [])
    assert document["sha256"] in listed.stderr
    assert not (project.repo / DIRECTORY).exists()


def test_init_writes_modules_that_pass_the_check_and_overwrites_nothing(project: Project) -> None:
    files = as_json("init")["files"]
    assert [(project.repo / DIRECTORY / name).read_bytes() for name in files] == [
        (EMBEDDED / name).read_bytes() for name in files
    ]
    assert as_json("check") == {"problems": []}
    assert as_json("list")["source"] == "local"
    safety = project.repo / DIRECTORY / "safety.md"
    safety.write_text("Mine.\n")
    again = run("init")
    assert again.exit_code == 1
    assert "safety.md" in again.stderr
    assert safety.read_text() == "Mine.\n"
    assert as_json("compose", "--phase", "X")["text"].startswith("Mine.\n\n# Environment")
    assert run("init", "--path", "prompts/skills").exit_code == 0
    (project.repo / "out").symlink_to("/tmp")
    assert run("init", "--path", "out/x").exit_code == 1
    assert run("init", "--path", "../x").exit_code == 1


def test_compose_prints_what_a_session_gets_and_names_what_does_not_fit(project: Project) -> None:
    settings = {"source": "embedded", "max_chars": 4_000}
    project.workflow(agent={"instructions": settings}, workspace={"repo": None})
    done = run("compose", "--phase", "PLAN")
    document = as_json("compose", "--phase", "PLAN")
    assert done.stdout == f"{document['text']}\n"
    assert done.stderr.endswith("dropped: planning\n")
    assert (document["modules"], document["dropped"]) == (NAMES[:3], ["planning"])
    assert document["chars"] == len(document["text"]) <= 4_000


def test_check_finds_every_mistake_and_the_phases_that_nobody_has_or_serves(project: Project) -> None:
    phases = {"default": "IMPLEMENT", "rules": [{"state": "Docs", "phase": "DOCS"}]}
    instructions = {"source": "local", "path": "prompts/skills", "fallback": "all.md"}
    project.workflow(agent={"instructions": instructions, "phases": phases}, workspace={"repo": None})
    project.write(
        "prompts/skills/manifest.yaml",
        'version: "1"\nskills:\n'
        "  - {name: a, file: a.md, phases: [IMPLEMENT, TEST]}\n"
        "  - {name: b, file: b.md}\n",
    )
    project.write("prompts/skills/a.md", "# A \x1b[2J\n")
    project.write("prompts/skills/b.md", "# B\n")
    found = as_json("check")["problems"]
    place = "prompts/skills/manifest.yaml"
    assert [(one["code"], one["path"], one["line"]) for one in found] == [
        ("unknown_phase", place, 3),
        ("unused_phase", place, None),
    ]
    assert run("check", "--strict").exit_code == 1
    project.workflow(agent={"instructions": instructions, "phases": phases}, workspace={"repo": "."})
    checked = json.loads(CliRunner().invoke(main, ["check", "--json"]).stdout)["problems"]
    warnings = {(one["path"], one["line"]) for one in checked if one["code"] == "instructions_problem"}
    assert warnings == {(str(project.repo / place), 3), (str(project.repo / place), None)}
    (project.repo / "prompts/skills/b.md").unlink()
    project.write("all.md", "Be careful.\n")
    problem, *others = as_json("check", code=1)["problems"]
    assert (problem["code"], problem["path"]) == ("missing_file", "prompts/skills/b.md")
    assert others == found
    composed = run("compose", "--phase", "TEST")
    assert (composed.exit_code, composed.stdout) == (1, "Be careful.\n")
    assert "prompts/skills/b.md: error missing_file" in composed.stderr
    assert as_json("compose", "--path", "nowhere", code=1)["problems"][0]["code"] == "missing_manifest"
    assert as_json("list", "--path", "/etc", code=1)["problems"][0]["code"] == "outside_directory"
    assert not (project.root / "home/.local").exists(), "nothing is kept"


def test_a_remote_source_that_does_not_answer_is_one_line(project: Project) -> None:
    settings = {"source": "remote", "url": "http://127.0.0.1:9/manifest.yaml"}
    project.workflow(agent={"instructions": settings}, workspace={"repo": None})
    done = run("compose", "--phase", "TEST")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("http://127.0.0.1:9/manifest.yaml: error unavailable")


def _workflow(project: Project, agent: str) -> None:
    front = f"tracker: {{kind: markdown}}\nagent:\n{agent}"
    (project.repo / "WORKFLOW.md").write_text(f"---\n{front}---\nwork\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("section", "refused"),
    [
        ("  instructions: {source: remote}\n", True),
        ("  instructions: {source: local, max_chars: none}\n", True),
        ("  phases: {rules: [{phase: TEST}]}\n", True),
        ("  max_turns: many\n", True),
        ("  instructions: {source: embedded}\n", False),
    ],
)
def test_what_run_refuses_is_not_called_sound(project: Project, section: str, *, refused: bool) -> None:
    _workflow(project, section)
    done = run("check")
    assert done.exit_code == int(refused), done.output
    problems = as_json("check", code=int(refused))["problems"]
    assert [
        one for one in problems if one["severity"] == "error" and one["line"] in {4, 5}
    ] != [] or not refused


def test_phases_are_compared_although_the_source_has_another_error(project: Project) -> None:
    _workflow(project, "  instructions: {source: local}\n  phases: {default: PLAN}\n")
    folder = project.repo / DIRECTORY
    folder.mkdir(parents=True)
    (folder / "manifest.yaml").write_text(
        'version: "1"\nskills:\n- {name: a, file: a.md, phases: [TEST]}\n- {name: b, file: missing.md}\n'
    )
    (folder / "a.md").write_text("text\n")
    codes = [one["code"] for one in as_json("check", code=1)["problems"]]
    assert codes == ["missing_file", "unknown_phase", "unused_phase"]
    (folder / "missing.md").write_text("text\n")
    assert [one["code"] for one in as_json("check")["problems"]] == ["unknown_phase", "unused_phase"]
