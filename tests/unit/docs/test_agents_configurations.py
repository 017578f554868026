"""Every configuration that the pages of agents show is one that `symphony check` accepts."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.project import Project
from symphony.agents.acp.profiles import PROFILES
from symphony.cli.checking import check_workflow
from symphony.config import AGENT_SECTIONS, NamedAgent, load_workflow
from symphony.trackers.registry import TRACKERS

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (DOCS / "agents.md", *sorted((DOCS / "agents").glob("*.md")))
PROGRAMS = (
    "aider",
    "bwrap",
    "claude",
    "claude-agent-acp",
    "codex",
    "codex-acp",
    "gemini",
    "my-agent",
    "opencode",
)
# A sandbox that the command itself makes is not seen, and a page about an agent tells of no budget.
_NOTED = {"unguarded", "no_budget"}
_NEWLINE = "\n"
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
BASE: Mapping[str, Any] = {"tracker": {"kind": "markdown"}, "workspace": {"repo": "."}}


def _shown() -> list[Any]:
    """Each block of YAML, with where it begins."""
    return [
        pytest.param(block[1], id=f"{page.name}:{block.string.count(_NEWLINE, 0, block.start(1)) + 1}")
        for page in PAGES
        for block in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository, and programs of every name that the pages start."""
    made = Project(root=tmp_path).create()
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        program = tmp_path / "bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return made


def _written(project: Project, shown: str) -> Path:
    settings = {**yaml.safe_load(shown)}
    for section, values in BASE.items():
        settings[section] = {**values, **settings.get(section, {})}
    return project.write(
        "WORKFLOW.md", f"---\n{yaml.safe_dump(settings)}---\nDo {{{{ issue.identifier }}}}.\n"
    )


def _environment(project: Project) -> dict[str, str]:
    return {"HOME": str(project.root), "PATH": f"{project.root / 'bin'}:{os.environ['PATH']}"}


def _agents(path: Path) -> tuple[NamedAgent, ...]:
    workflow = load_workflow(
        path, environment={"HOME": "/h"}, tracker_kinds=TRACKERS.names, agent_kinds=AGENT_SECTIONS
    )
    return tuple(workflow.agents.values())


@pytest.mark.parametrize("shown", _shown())
def test_check_accepts_what_a_page_shows(project: Project, shown: str) -> None:
    report = check_workflow(_written(project, shown), _environment(project))
    assert report.valid, report.problems
    assert {problem.code for problem in report.problems} <= _NOTED, report.problems


def test_every_agent_has_a_configuration(project: Project) -> None:
    """One of each kind, and one of each profile, `generic` among them."""
    agents = [agent for shown in _shown() for agent in _agents(_written(project, *shown.values))]
    assert {agent.kind for agent in agents} == set(AGENT_SECTIONS)
    profiles = {getattr(agent.settings, "profile", "") for agent in agents if agent.kind == "acp"}
    assert profiles == set(PROFILES)
    assert "aider" in {getattr(agent.settings, "profile", "") for agent in agents if agent.kind == "command"}
