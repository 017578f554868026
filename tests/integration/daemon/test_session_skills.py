"""Skills from a dispatch to the answer of a tool: the daemon's own service, and an agent overheard."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.project import Project, scripted, until
from harness.serving import serving
from harness.shell import word
from symphony.api.models import Prompt
from symphony.daemon.admission import open_store
from symphony.daemon.context import build_context
from symphony.daemon.runs.prompts import preview_prompt
from symphony.domain import AgentChoice
from symphony.processes.local import LocalHost
from symphony.scheduler import RunEnded

pytestmark = pytest.mark.asyncio

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
GIVEN = {"skill_activated", "skill_seen"}
OURS, THEIRS = ".symphony/skills", ".agents/skills"


def activate(name: str) -> dict[str, Any]:
    return {"tool": "activate_skill", "arguments": {"name": name}}


def _setup(project: Project, *steps: dict[str, Any], links: dict[str, str], **skills: Any) -> None:
    """Two skills, links of the repository, and an agent whose every line of input is also kept."""
    command = f"tee -a {word(project.root)}/heard | {scripted()}"
    project.workflow(command=command, agent={"skills": {"user_path": None, **skills}})
    for name in ("greet", "release"):
        project.skill(name, description=f"About {name}.", body=f"Body of {name}.")
    for place, target in links.items():
        link = project.repo / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(project.repo / target, link.parent))
    project.commit("Skills")
    project.issue("SYM-1", [*steps, DONE])


def _heard(project: Project) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.root / "heard").read_text("utf-8").splitlines()]


async def run(
    project: Project, *steps: dict[str, Any], links: dict[str, str] | None = None, **skills: Any
) -> tuple[Prompt, dict[str, Any], list[str]]:
    """The preview_prompt, what thread/start was sent, and what the agent's calls of tools were answered."""
    await to_thread.run_sync(lambda: _setup(project, *steps, links=links or {}, **skills))
    told = await _preview(project)
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    frames = await to_thread.run_sync(_heard, project)
    (started,) = [frame["params"] for frame in frames if frame.get("method") == "thread/start"]
    assert started.get("developerInstructions") == told.envelope
    answers = [frame["result"]["output"] for frame in frames if "output" in frame.get("result", {})]
    return told, started, answers[:-1]


async def _preview(project: Project) -> Prompt:
    environment = project.env()
    store = await to_thread.run_sync(open_store, project.repo / "WORKFLOW.md", environment)
    context = build_context(store.current(), host=LocalHost(), environment=environment)
    (issue,) = await context.tracker.fetch_issues_by_ids(["SYM-1"])
    return await preview_prompt(context, issue, None, agent=AgentChoice())


def _tools(started: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in started["dynamicTools"]]


async def test_by_default_there_is_no_tool_and_the_agents_own_list_is_left_alone(project: Project) -> None:
    told, started, _ = await run(project)
    assert not {"activate_skill", "skill_search"} & set(_tools(started))
    assert "skills" not in started["config"]
    assert [one.name for one in told.skills.listed] == ["greet", "release"]


async def test_a_skill_is_activated_and_counts_as_seen(project: Project) -> None:
    with capture_logs() as logs:
        told, started, answers = await run(project, activate("greet"), activate("greet"), activation="tool")
    assert "activate_skill" in _tools(started)
    assert "call the tool `activate_skill`" in str(told.envelope)
    first, again = answers
    assert "Body of greet." in first
    assert "already active" in again
    events = [(log["event"], log["name"]) for log in logs if log["event"] in GIVEN]
    assert events == [("skill_activated", "greet"), ("skill_seen", "greet")]


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
async def test_a_resumed_conversation_is_not_given_a_skill_again(project: Project, *, changed: bool) -> None:
    def setup() -> None:
        project.workflow(
            command=scripted("--threads", str(project.root / "threads")),
            agent={"skills": {"user_path": None, "activation": "tool"}},
        )
        project.skill("greet", body="Body of greet.")
        project.commit("Skills")
        asking = [activate("greet"), {"ask_input": "Which?"}]
        project.issue("SYM-1", asking, [activate("greet"), DONE])

    def answered() -> None:
        if changed:
            skill = project.workspaces / "SYM-1" / ".symphony/skills/greet/SKILL.md"
            skill.write_text(skill.read_text().replace("Body of greet.", "Another body."))
        assert project.symphony("issue", "comment", "SYM-1", "This one.", "--author", "zoe").returncode == 0

    await to_thread.run_sync(setup)
    with capture_logs() as logs:
        async with serving(project) as served:
            await served.watcher.until_seen(RunEnded)
            await to_thread.run_sync(lambda: until(lambda: project.comments("SYM-1") or None, lambda: ""))
        assert [log["name"] for log in logs if log["event"] == "skill_activated"] == ["greet"]
        await to_thread.run_sync(answered)
        async with serving(project) as served:
            await served.watcher.until_seen(RunEnded)
    events = [log["event"] for log in logs]
    assert events.count("thread_resumed") == 1
    answered_calls = [log["success"] for log in logs if log.get("tool") == "activate_skill"]
    assert all(answered_calls)
    assert len(answered_calls) > 1, "the second session asked, in its first turn or in its second"
    assert events.count("skill_activated") == 1 + changed


async def test_too_many_to_list_are_searched(project: Project) -> None:
    search = {"tool": "skill_search", "arguments": {"query": "release"}}
    with capture_logs() as logs:
        told, started, answers = await run(
            project, search, activate("release"), activation="tool", search_above=1
        )
    assert {"activate_skill", "skill_search"} <= set(_tools(started))
    assert "There are 2 skills" in str(told.envelope)
    found, body = answers
    assert f"- release (file: {project.workspaces}/SYM-1/{OURS}/release/SKILL.md) — About release." in found
    assert "Body of release." in body
    assert {one.reason for one in told.skills.dropped} == {"search"}
    (said,) = [log for log in logs if log["event"] == "skills_searchable"]
    assert (said["count"], said["limit"]) == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["workspace", "base_branch"])
async def test_case_80_where_all_is_ours_the_agents_own_list_is_off(project: Project, source: str) -> None:
    with capture_logs() as logs:
        told, started, _ = await run(project, links={THEIRS: OURS}, source=source)
    assert started["config"]["skills"] == {"include_instructions": False}
    assert [one.name for one in told.skills.listed] == ["greet", "release"]
    assert [log["event"] for log in logs].count("agent_skills_silenced") == 1


@pytest.mark.slow
async def test_what_the_agent_lists_anyway_is_not_repeated(project: Project) -> None:
    await to_thread.run_sync(_team, project)
    told, started, _ = await run(project, links={f"{THEIRS}/greet": f"{OURS}/greet"})
    assert "skills" not in started["config"]
    assert [one.name for one in told.skills.listed] == ["release"]
    assert [(one.name, one.reason) for one in told.skills.dropped] == [("greet", "native")]
    (greet,) = told.skills.native
    assert greet.name == "greet"
    assert greet.sha256 is not None, "what the agent lists is known by its content too"


@pytest.mark.slow
async def test_the_text_of_the_base_branch_is_not_left_out_for_that_of_the_branch(project: Project) -> None:
    await to_thread.run_sync(_team, project)
    links = {f"{THEIRS}/greet": f"{OURS}/greet"}
    told, started, _ = await run(project, links=links, source="base_branch")
    assert "skills" not in started["config"]
    assert [one.name for one in told.skills.listed] == ["greet", "release"]


@pytest.mark.slow
async def test_the_two_lists_can_be_left_as_they_are(project: Project) -> None:
    told, started, _ = await run(project, links={THEIRS: OURS}, native="always")
    assert "skills" not in started["config"]
    assert [one.name for one in told.skills.listed] == ["greet", "release"]


def _team(project: Project) -> Path:
    return project.write(f"{THEIRS}/team/SKILL.md", "---\nname: team\ndescription: d\n---\n")
