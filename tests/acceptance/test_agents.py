"""Promise: each issue gets the agent that its label or state asks for, and another while that is limited."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import symphony
from harness.acp_agents import DRIVEN, furnish, place
from harness.project import Logged, Project, scripted, until
from harness.real import require_acp, require_claude, require_codex
from harness.shell import word
from kit.claude_home import KEY
from kit.codex_home import codex_home
from kit.model_server import ModelServer, Scenario, say, tool
from kit.model_server.scenario import shell as codex_shell
from kit.speakers import scripted_acp
from symphony.daemon.admission import ACKNOWLEDGEMENT

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
WORK: list[dict[str, Any]] = [{"write": "a.txt", "text": "a\n"}, {"commit": "Work"}, DONE]
SOURCES = Path(symphony.__file__).parents[1]
TIRED = {"kind": "acp", "command": scripted_acp("--refuse-prompt", "'429, retry after 3600 s'")}


def _noting(project: Project, name: str) -> dict[str, Any]:
    """An agent that notes the runs it was started for."""
    return {"kind": "codex", "command": scripted("--pid-file", str(project.root / name))}


def _runs_of(project: Project, name: str) -> set[str]:
    notes: list[Path] = list((project.root / name).glob("*.json"))
    return {json.loads(note.read_text(encoding="utf-8"))["run_id"] for note in notes}


def _told(project: Project, *arguments: str) -> str:
    done = project.symphony(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _started(daemon: Logged) -> dict[str, tuple[str, str]]:
    return {
        line["issue_identifier"]: (line["agent"], line["agent_reason"])
        for line in daemon.events()
        if line["event"] == "run_started"
    }


@pytest.mark.slow
def test_label_and_state_say_which_agent_an_issue_gets(project: Project) -> None:
    names = ("plain", "painter", "critic")
    project.workflow(
        agents={name: _noting(project, name) for name in names},
        agent={
            "kind": "plain",
            "rules": [{"label": "UI", "use": "painter"}, {"state": "in progress", "use": "critic"}],
        },
    )
    project.issue("SYM-1", WORK)
    project.issue("SYM-2", WORK, extra="labels: [ui]\n")
    project.issue("SYM-3", WORK, state="In Progress")
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert _started(daemon) == {
        "SYM-1": ("plain", "the default (agent.kind)"),
        "SYM-2": ("painter", "agent.rules[0]: label 'ui'"),
        "SYM-3": ("critic", "agent.rules[1]: state 'in progress'"),
    }
    ready = {line["agent"] for line in daemon.events() if line["event"] == "agent_ready"}
    assert ready == set(names)
    for name, issue in zip(names, ("SYM-1", "SYM-2", "SYM-3"), strict=True):
        (began,) = [
            line
            for line in map(json.loads, _told(project, "logs", issue, "--json").splitlines())
            if line["type"] == "run_began"
        ]
        assert began["run"]["agent"] == name
        assert began["run_id"] in _runs_of(project, name), "its own program did the work"
        assert project.branch_log(issue) == ["Work"]


@pytest.mark.slow
def test_while_an_agent_is_rate_limited_its_fallback_takes_over_and_every_surface_says_why(
    project: Project,
) -> None:
    go = project.root / "go"
    project.workflow(
        agents={"tired": TIRED, "second": {"kind": "codex", "command": scripted(), "model": "spare"}},
        agent={"kind": "tired", "fallback": "second"},
    )
    project.issue("SYM-1", [{"wait_for": str(go)}, *WORK])
    with project.daemon(ACKNOWLEDGEMENT) as daemon:
        limited = daemon.wait_for("agent_limited")
        assert (limited["agent"], limited["delay_ms"]) == ("tired", 3_600_000)

        def taken_over() -> dict[str, Any] | None:
            found: dict[str, Any] = json.loads(_told(project, "status", "--json"))
            rows = [row for row in found["running"] if row["agent"]["name"] == "second"]
            return found if rows else None

        state = until(taken_over, daemon.log.read_text)
        (row,) = state["running"]
        reason = "tired is rate limited; it would be the agent by the default (agent.kind)"
        assert row["agent"] == {
            "name": "second",
            "kind": "codex",
            "model": "spare",
            "reason": reason,
            "instead_of": "tired",
        }
        told = {agent["name"]: agent["limited"] for agent in state["agents"]}
        assert told["second"] is None
        assert told["tired"]["code"] == "agent_rate_limited"
        shown = _told(project, "status")
        assert "The agent tired is rate limited: " in shown
        assert "second*" in shown
        assert f"second (codex, spare), instead of tired: {reason}" in _told(project, "explain", "SYM-1")
        assert "by second" in _told(project, "logs", "SYM-1")
        assert json.loads(_told(project, "prompt", "SYM-1", "--json"))["agent"]["name"] == "second"
        go.touch()
        daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="succeeded")
    assert project.branch_log("SYM-1") == ["Work"]
    assert _started(daemon)["SYM-1"] == ("second", reason)


def test_without_a_fallback_issues_wait_and_no_session_is_started_in_vain(project: Project) -> None:
    project.workflow(agents={"tired": TIRED}, agent={"kind": "tired", "max_concurrent_agents": 1})
    project.issue("SYM-1", WORK)
    project.issue("SYM-2", WORK)
    with project.daemon(ACKNOWLEDGEMENT) as daemon:
        daemon.wait_for("run_retrying", issue_identifier="SYM-1")
        told = json.loads(_told(project, "explain", "SYM-2", "--json"))
        assert told["explanation"]["code"] == "agent_limited"
        assert "the agent tired is rate limited" in told["explanation"]["answer"]
        assert "agent.fallback" in told["explanation"]["advice"]
    assert list(_started(daemon)) == ["SYM-1"]


def test_an_agent_that_is_not_there_is_told_by_name_and_line_before_anything_starts(
    project: Project,
) -> None:
    missing = {"kind": "codex", "command": "no-such-agent-here"}
    path = project.workflow(agents={"second": missing}, agent={"fallback": "second"})
    project.issue("SYM-1", WORK)
    line = 1 + path.read_text(encoding="utf-8").splitlines().index('      "command": "no-such-agent-here"')
    done = project.once()
    assert done.returncode == 3
    assert f"WORKFLOW.md:{line}: agent second: " in done.stderr
    assert "hint: " in done.stderr
    checked = json.loads(project.symphony("check", "--json").stdout)
    assert [(one["line"], one["message"]) for one in checked["problems"] if one["severity"] == "error"] == [
        (line, "agents.second.command: the login shell finds no program no-such-agent-here")
    ]
    assert project.state("SYM-1") == "Todo"


# --- every kind ------------------------------------------------------------------------------------------


@pytest.mark.real_codex
@pytest.mark.real_claude
def test_one_daemon_drives_every_kind_of_agent_an_issue_each(project: Project) -> None:
    """Codex and Claude Code are the real ones, with a model of ours; each commit is made by its agent."""
    shell = "echo shell > shell.txt && git add -A && git commit --quiet -m 'Work by shell'"
    agents: dict[str, dict[str, Any]] = {
        "quill": {"kind": "codex", "command": f"{require_codex()} app-server", "read_timeout_ms": 30_000},
        "brush": {"kind": "claude", "command": str(require_claude()), "on_approval": "accept"},
        "puppet": {"kind": "acp", "profile": "generic", "command": scripted_acp()},
        "shell": {"kind": "command", "command": f"{shell} && {_moved_to_done(project)}"},
    }
    with ModelServer(_scenarios()) as server, codex_home(server.base_url) as home:
        project.environment.update(home.env)
        project.environment.update(
            ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=server.base_url.removesuffix("/v1")
        )
        rules = [{"label": name, "use": name} for name in agents]
        project.workflow(agents=agents, agent={"rules": rules})
        project.issue("SYM-1", text="[[codex]]", extra="labels: [quill]\n")
        project.issue("SYM-2", text="[[claude]]", extra="labels: [brush]\n")
        work: list[dict[str, Any]] = [
            {"write": "puppet.txt", "text": "puppet\n"},
            {"commit": "Work by puppet"},
            DONE,
        ]
        project.issue("SYM-3", work, extra="labels: [puppet]\n")
        project.issue("SYM-4", text="Do it.", extra="labels: [shell]\n")
        with project.daemon("--once", ACKNOWLEDGEMENT) as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
    told = {issue: agent for issue, (agent, _) in _started(daemon).items()}
    assert told == dict(zip(("SYM-1", "SYM-2", "SYM-3", "SYM-4"), agents, strict=True))
    for issue, name in told.items():
        assert project.state(issue) == "Done"
        assert project.branch_log(issue) == [f"Work by {name}"]
        assert project.git("show", f"symphony/{issue}:{name}.txt") == name


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.real_acp(name)) for name in DRIVEN])
def test_a_daemon_drives_each_other_real_agent(project: Project, name: str) -> None:
    driven = DRIVEN[name]
    program = require_acp(driven)
    steps = (
        driven.command(f"echo {name} > {name}.txt && git add -A && git commit --quiet -m 'Work by {name}'"),
        driven.tool("board_move", {"state": "Done"}),
        say("Done."),
    )
    with ModelServer({"work": steps}) as server, place() as top:
        project.environment.update(furnish(driven, top, server.base_url))
        settings = {"profile": name, "on_approval": "accept", **driven.settings, "start_timeout_ms": 120_000}
        project.workflow(acp={**settings, "command": program}, agent={"kind": "acp"})
        project.issue("SYM-1", text="[[work]]")
        with project.daemon("--once", ACKNOWLEDGEMENT) as daemon:
            assert daemon.end(500) == 0, daemon.log.read_text()
    assert project.state("SYM-1") == "Done"
    assert project.branch_log("SYM-1") == [f"Work by {name}"]


def _scenarios() -> dict[str, Scenario]:
    def commit(name: str) -> str:
        return f"echo {name} > {name}.txt && git add -A && git commit --quiet -m 'Work by {name}'"

    bash = {"command": commit("brush"), "description": "work"}
    return {
        "codex": (codex_shell(commit("quill")), tool("board_move", {"state": "Done"}), say("Done.")),
        "claude": (
            tool("Bash", bash),
            tool("mcp__symphony__board_move", {"state": "Done"}),
            say("Done."),
        ),
    }


def _moved_to_done(project: Project) -> str:
    """What moves the issue, for a program that is given no tools to do so."""
    program = f"PYTHONPATH={word(SOURCES)} {word(sys.executable)} -m symphony -C {word(project.repo)}"
    return f"{program} issue move {{issue}} Done"
