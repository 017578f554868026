"""The table of capabilities in docs/agents.md is what the backends say of themselves."""

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.project import Project
from symphony.agents.acp.profiles import PROFILES
from symphony.agents.base import BackendContext, Capabilities
from symphony.agents.registry import AGENTS, create_backend
from symphony.cli.commands.check import check_workflow
from symphony.config import (
    AGENT_SECTIONS,
    AcpSettings,
    AgentSection,
    ClaudeSettings,
    CodexSettings,
    CommandSettings,
    NamedAgent,
    load_workflow,
)
from symphony.processes.local import LocalHost
from symphony.trackers.registry import TRACKERS

PAGE = Path(__file__).parents[3] / "docs" / "agents.md"
BEGIN, END = "<!-- capabilities:begin -->\n", "<!-- capabilities:end -->\n"
AROUND = BackendContext(host=LocalHost(), environ={}, secret_names=frozenset(), homes=Path("/nowhere"))
SETTINGS: tuple[AgentSection, ...] = (
    CodexSettings(),
    ClaudeSettings(),
    AcpSettings(command="an-agent"),
    CommandSettings(command="an-agent {prompt_file}"),
)
SAMPLES = {
    kind: NamedAgent(name=kind, kind=kind, settings=settings)
    for kind, settings in zip(AGENT_SECTIONS, SETTINGS, strict=True)
}
WORDS = {
    "system_block_at_start": "system-level text at the start",
    "system_block_on_resume": "the same when a conversation goes on",
    "client_tools": "Symphony's tools",
    "resume": "goes on with a conversation",
    "usage": "counts tokens",
    "absolute_usage": "as totals of the conversation",
    "rate_limits": "tells of its allowance",
    "sandbox": "a sandbox of its own",
    "approvals": "asks, and is answered",
    "interrupt": "a turn ends without the process",
}


PROFILED = {
    f"acp {profile}": NamedAgent(name="acp", kind="acp", settings=AcpSettings(profile=profile))
    for profile in sorted(PROFILES)
    if profile != "generic"
}


def _table() -> str:
    samples = {**SAMPLES, **PROFILED}
    kinds = [name for name in sorted(samples) if name.split()[0] in AGENTS.names]
    able = {kind: create_backend(samples[kind], AROUND).capabilities for kind in kinds}
    head = "| | " + " | ".join(f"`{kind}`" for kind in kinds) + " |\n"
    rule = "|---|" + "---|" * len(kinds) + "\n"
    rows = [
        f"| {words} | " + " | ".join("yes" if getattr(able[kind], name) else "no" for kind in kinds) + " |\n"
        for name, words in WORDS.items()
    ]
    return head + rule + "".join(rows)


def test_the_table_tells_what_every_backend_can_do() -> None:
    """`SYMPHONY_WRITE_DOCS=1` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    shown, after = rest.split(END)
    if os.environ.get("SYMPHONY_WRITE_DOCS"):
        PAGE.write_text(f"{before}{BEGIN}{_table()}{END}{after}", encoding="utf-8")
        return
    assert shown == _table(), "write it anew with SYMPHONY_WRITE_DOCS=1"


def test_every_capability_has_its_line() -> None:
    assert WORDS.keys() == {field.name for field in fields(Capabilities)}


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
