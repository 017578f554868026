"""The preview_prompt and a real dispatch, compared byte for byte as the agent received it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.project import Project, scripted
from harness.serving import serving
from harness.shell import word
from symphony.api.models import Prompt
from symphony.daemon.admission import open_store
from symphony.daemon.context import RuntimeContext, build_context
from symphony.daemon.runs.prompts import preview_prompt
from symphony.daemon.runs.skills import RunCatalog, load_run_skills
from symphony.domain import AgentChoice, Category, Issue, SymphonyError
from symphony.processes.local import LocalHost
from symphony.scheduler import RunEnded

pytestmark = pytest.mark.asyncio

BODY = """\
{{ issue.identifier }} "{{ issue.title }}" try {{ attempt | default: "first" }}

{{ issue.description }}
"""
ODD = "Grüße {{ nothing }} <b> & “quotes” \\ ---"
DONE = {"tool": "board_move", "arguments": {"state": "Done"}}


def _setup(project: Project, **agent: Any) -> None:
    """A workflow whose agent is overheard: every line it is sent is also kept."""
    heard = project.root / "heard"
    heard.mkdir()
    project.workflow(body=BODY, command=f'tee {word(heard)}/"$SYMPHONY_RUN_ID" | {scripted()}', agent=agent)
    project.skill("release", description="When releasing.")
    project.skill("grüße", description="When 'quoting' \"things\" — or not.")
    project.skill("bad", description="")
    project.commit("Skills")


def _heard(project: Project) -> list[tuple[str | None, str]]:
    """Envelope and first prompt of every session so far, in order."""
    found = []
    for path in sorted((project.root / "heard").iterdir(), key=lambda one: one.stat().st_mtime_ns):
        frames = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        threads = [one["params"] for one in frames if one.get("method") == "thread/start"]
        turns = [one["params"]["input"] for one in frames if one.get("method") == "turn/start"]
        if turns:
            found.append((threads[0].get("developerInstructions"), turns[0][0]["text"]))
    return found


def _files(root: Path) -> dict[str, int]:
    """Everything below a directory with its time of change."""
    return {str(path): path.lstat().st_mtime_ns for path in root.rglob("*")}


async def _context(project: Project) -> RuntimeContext:
    environment = project.env()
    store = await to_thread.run_sync(open_store, project.repo / "WORKFLOW.md", environment)
    return build_context(store.current(), host=LocalHost(), environment=environment)


async def _issue(context: RuntimeContext) -> Issue:
    (issue,) = await context.tracker.fetch_issues_by_ids(["SYM-1"])
    return issue


async def _preview(project: Project, attempt: int | None = None) -> Prompt:
    context = await _context(project)
    return await preview_prompt(context, await _issue(context), attempt, agent=AgentChoice())


async def test_the_preview_is_what_the_agent_gets_in_a_new_workspace(project: Project) -> None:
    await to_thread.run_sync(_setup, project)
    await to_thread.run_sync(lambda: project.issue("SYM-1", [DONE], title=ODD, text=ODD))
    before = await to_thread.run_sync(_files, project.root)
    told = await _preview(project)
    assert await to_thread.run_sync(_files, project.root) == before, "it leaves no trace"
    assert told.envelope is not None
    assert str(project.workspaces / "SYM-1" / ".symphony" / "skills") in told.envelope
    assert [one.name for one in told.skills.listed] == ["grüße", "release"]
    wrong = [problem.path for problem in told.skills.problems if problem.severity == "error"]
    assert wrong == [".symphony/skills/bad/SKILL.md"]
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    assert await to_thread.run_sync(_heard, project) == [(told.envelope, told.prompt)]
    assert "try first" in told.prompt
    assert "{{ nothing }}" in told.prompt


async def test_the_preview_is_what_the_agent_gets_in_the_workspace_that_is_there(project: Project) -> None:
    await to_thread.run_sync(_setup, project)
    skill = "---\nname: found\ndescription: Written by the agent.\n---\n"
    steps = [{"write": ".symphony/skills/found/SKILL.md", "text": skill}, {"fail": "once"}]
    await to_thread.run_sync(lambda: project.issue("SYM-1", steps))
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    await to_thread.run_sync(lambda: project.issue("SYM-1", [DONE]))
    told = await _preview(project, 1)
    assert [one.name for one in told.skills.listed] == ["found", "grüße", "release"]
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    assert (await to_thread.run_sync(_heard, project))[-1] == (told.envelope, told.prompt)


async def test_skills_switched_off_and_no_skills_give_the_same_texts(project: Project) -> None:
    await to_thread.run_sync(lambda: _setup(project, skills={"enabled": False}))
    await to_thread.run_sync(lambda: project.issue("SYM-1", [DONE]))
    told = await _preview(project)
    assert (told.envelope, told.skills.listed, told.skills.problems) == (None, (), ())
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    assert await to_thread.run_sync(_heard, project) == [(None, told.prompt)]


async def test_a_prompt_that_fails_to_render_fails_the_preview_too(project: Project) -> None:
    project.workflow(body="{% for i in (1..2000000) %}x{% endfor %}")
    project.issue("SYM-1")
    with pytest.raises(SymphonyError) as caught:
        await _preview(project)
    assert caught.value.failure.category is Category.TEMPLATE_RENDER_ERROR


async def test_a_remote_that_was_never_fetched_gives_a_note_and_the_prompt(project: Project) -> None:
    project.workflow(workspace={"repo": project.repo.as_uri()})
    project.skill("release")
    project.commit("Skills")
    project.issue("SYM-1")
    told = await _preview(project)
    assert told.envelope is None
    assert told.note is not None
    assert "never fetched" in told.note
    assert told.prompt.startswith("SYM-1")


@pytest.mark.slow
async def test_of_the_base_branch_the_preview_and_the_run_name_the_same_place(project: Project) -> None:
    await to_thread.run_sync(lambda: _setup(project, skills={"source": "base_branch"}))
    skill = "---\nname: release\ndescription: Rewritten by the branch.\n---\n"
    rewrite = {"write": ".symphony/skills/release/SKILL.md", "text": skill}
    steps = [rewrite, {"commit": "Rewrite"}, {"fail": "once"}]
    await to_thread.run_sync(lambda: project.issue("SYM-1", steps))
    told = await _preview(project)
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    await to_thread.run_sync(lambda: project.issue("SYM-1", [DONE]))
    again = await _preview(project, 1)
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    assert told.envelope is not None
    assert await to_thread.run_sync(_heard, project) == [
        (told.envelope, told.prompt),
        (again.envelope, again.prompt),
    ]
    assert again.envelope == told.envelope, "whatever the branch says by now"
    assert "When releasing." in told.envelope
    assert f"{project.workspaces}/.symphony/pinned/" in told.envelope
    assert told.skills.commit == await to_thread.run_sync(project.git, "rev-parse", "HEAD")


async def test_without_a_base_branch_there_is_no_catalog_and_no_replacement(project: Project) -> None:
    await to_thread.run_sync(_setup, project)
    await to_thread.run_sync(lambda: project.issue("SYM-1", [DONE]))
    context = await _context(project)
    workspace = await context.workspaces.prepare(await _issue(context), None)
    skills = context.settings.agent.skills.model_copy(update={"source": "base_branch"})
    settings = context.settings.model_copy(
        update={
            "agent": context.settings.agent.model_copy(update={"skills": skills}),
            "workspace": context.settings.workspace.model_copy(update={"base_branch": "nowhere"}),
        }
    )
    workflow = replace(context.workflow, settings=settings)
    elsewhere = build_context(workflow, host=LocalHost(), environment=project.env())
    with capture_logs() as logs:
        catalog = await load_run_skills(elsewhere, workspace, "codex")
    assert catalog == RunCatalog()
    assert not catalog.complete, "so that no comment says that all is well"
    (line,) = [line for line in logs if line["event"] == "skills_failed"]
    assert "no branch nowhere" in line["reason"]


@pytest.mark.parametrize("called", [False, True])
async def test_a_skill_for_people_is_in_no_session_but_of_an_issue_whose_label_calls_for_it(
    project: Project,
    called: bool,  # noqa: FBT001 - a parameter
) -> None:
    await to_thread.run_sync(_setup, project)
    kept = "---\nname: deploy\ndescription: Deploy it.\ndisable-model-invocation: true\n---\n"
    await to_thread.run_sync(lambda: project.write(".symphony/skills/deploy/SKILL.md", kept))
    await to_thread.run_sync(project.commit, "For people")
    labels = "labels: ['skill:deploy']\n" if called else "labels: ['deploy']\n"
    await to_thread.run_sync(lambda: project.issue("SYM-1", [DONE], extra=labels))
    told = await _preview(project)
    assert told.envelope is not None
    assert ("Deploy it." in told.envelope) is called
    dropped = [(one.name, one.reason) for one in told.skills.dropped]
    assert dropped == ([] if called else [("deploy", "for_people")])
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded)
    assert await to_thread.run_sync(_heard, project) == [(told.envelope, told.prompt)]
