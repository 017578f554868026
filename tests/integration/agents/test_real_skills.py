"""Skills with the real Codex: what its model is shown, and what it gets when it calls our tools."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from anyio import to_thread

from harness.binding import FakeTracker
from integration.agents.conftest import RealBench
from kit.model_server import say, tool
from symphony.agents.base import Briefing, ListAgentSkills
from symphony.agents.codex.backend import codex_skill_roots
from symphony.agents.codex.session import CodexSession
from symphony.agents.events import ContextCompacted, TurnEnd, TurnStatus
from symphony.daemon.runs.session_skills import SessionTools
from symphony.domain import Issue, ToolResult
from symphony.skills import (
    ActivationMode,
    AvailableSkills,
    NativeListing,
    SkillOptions,
    dedupe_native,
    load,
    render,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from integration.agents.conftest import RealBench
    from symphony.agents.codex.session import CodexSession
    from symphony.domain import ToolResult

    Make = Callable[..., RealBench]

pytestmark = [pytest.mark.asyncio, pytest.mark.real_codex]

OURS, THEIRS = ".symphony/skills", ".agents/skills"
ISSUE = Issue(id="1", identifier="MT-1", title="t", state="Todo", dispatchable=True)
COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)
TOOL = SkillOptions(activation=ActivationMode.TOOL)


def skill(bench: RealBench, path: str) -> None:
    """A skill in the workspace whose every text can be told apart."""
    place = bench.workspace / path / "SKILL.md"
    place.parent.mkdir(parents=True)
    name = place.parent.name
    place.write_text(f"---\nname: {name}\ndescription: About-{name}.\n---\nBody-of-{name}.\n")


def link(bench: RealBench, path: str, target: str) -> None:
    place = bench.workspace / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(bench.workspace / target, place.parent))


@asynccontextmanager
async def session(
    bench: RealBench,
    options: SkillOptions = TOOL,
    *,
    native: bool = True,
    answers: list[str] | None = None,
) -> AsyncIterator[CodexSession]:
    """A session as a run opens it; what our tools answer is also added to `answers`."""
    made: list[SessionTools] = []

    async def briefing(ask: ListAgentSkills) -> Briefing:
        block, plan, offer = await _skills(bench, options, ask if native else None)
        tools = SessionTools(FakeTracker(), offer, on_activated=lambda _: None)
        made.append(tools)
        return Briefing(envelope=block, tools=tools.specs, agent_lists_skills=plan.listing)

    def forget() -> None:
        made[0].on_compacted()

    async def run_tool(name: str, arguments: Mapping[str, Any]) -> ToolResult:
        answer = await made[0].run(name, arguments, issue=ISSUE)
        if answers is not None:
            answers.append(answer.text)
        return answer

    request = replace(
        bench.request(),
        briefing=briefing,
        run_tool=run_tool,
        on_compacted=forget,
    )
    async with bench.backend(bench.command).open(request) as opened:
        yield opened


async def _skills(
    bench: RealBench, options: SkillOptions, ask: ListAgentSkills | None
) -> tuple[str | None, NativeListing, AvailableSkills | None]:
    """As a run settles it; without `ask` both lists are left as they are."""
    roots = codex_skill_roots(bench.environ)
    places = [*(bench.workspace / one for one in roots.workspace), *roots.host]
    found = await to_thread.run_sync(load, bench.workspace, options)
    plan = NativeListing()
    if ask is not None:
        plan = await to_thread.run_sync(dedupe_native, found, bench.workspace, places)
        listed = await ask()
        assert listed is not None, "Codex says what it lists"
        plan = plan.confirmed(listed)
    block = render(found, options, native=plan.duplicates)
    return block.text, plan, AvailableSkills.of(found, block, workspace=bench.workspace, options=options)


def texts(node: object) -> list[str]:
    """Every string of a request body."""
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [text for child in children for text in texts(child)]


def told(bench: RealBench, words: str, *, request: int = 0) -> int:
    """How often these words occur in what the model was shown as its conversation."""
    return sum(text.count(words) for text in texts(bench.server.requests[request].body["input"]))


def outputs(bench: RealBench) -> list[str]:
    """What our tools had answered when the model was asked for the last time."""
    body = bench.server.requests[-1].body
    return ["\n".join(texts(item)) for item in body["input"] if str(item.get("type")).endswith("_output")]


async def test_the_block_comes_once_and_before_the_agents_own(real: Make) -> None:
    bench = real({"work": (say("Done."),)})
    await to_thread.run_sync(skill, bench, f"{OURS}/greet")
    async with session(bench) as opened:
        assert (await bench.turn(opened, "[[work]]"))[-1] == COMPLETED
    shown = [
        (item["role"], text)
        for item in bench.server.requests[0].body["input"]
        for text in texts(item.get("content"))
    ]
    (ours,) = [place for place, (_, text) in enumerate(shown) if text.startswith("## Available skills\n")]
    (theirs,) = [place for place, (_, text) in enumerate(shown) if "<skills_instructions>" in text]
    assert (shown[ours][0], ours < theirs) == ("developer", True)
    assert told(bench, "- greet — About-greet.") == 1
    assert told(bench, "Body-of-greet") == 0


async def test_a_skill_is_activated_once(real: Make) -> None:
    call = tool("activate_skill", {"name": "greet"})
    bench = real({"work": (call, call, tool("activate_skill", {"name": "no"}), say("Done."))})
    await to_thread.run_sync(skill, bench, f"{OURS}/greet")
    async with session(bench) as opened:
        assert (await bench.turn(opened, "[[work]]"))[-1] == COMPLETED
    first, again, unknown = outputs(bench)
    assert '<skill_content name="greet">\nBody-of-greet.' in first
    assert str(bench.workspace / OURS / "greet") in first
    assert "already active" in again
    assert "Body-of-greet" not in again
    assert "no such skill" in unknown
    (offered,) = [
        one for one in bench.server.requests[0].body["tools"] if one.get("name") == "activate_skill"
    ]
    assert offered["parameters"]["properties"]["name"]["enum"] == ["greet"]


async def test_a_skill_is_found_and_then_activated(real: Make) -> None:
    steps = (
        tool("skill_search", {"query": "pdf forms"}),
        tool("activate_skill", {"name": "pdf-forms"}),
        tool("skill_search", {"query": ""}),
        say("Done."),
    )
    bench = real({"work": steps})
    for name in ("greet", "pdf-forms", "other"):
        await to_thread.run_sync(skill, bench, f"{OURS}/{name}")
    async with session(bench, replace(TOOL, search_above=2)) as opened:
        assert (await bench.turn(opened, "[[work]]"))[-1] == COMPLETED
    assert told(bench, "There are 3 skills") == 1
    assert told(bench, "About-greet") == 0, "nothing is listed"
    found, body, bad = outputs(bench)
    assert f"- pdf-forms (file: {bench.workspace}/{OURS}/pdf-forms/SKILL.md) — About-pdf-forms." in found
    assert "Body-of-pdf-forms." in body
    assert "`query` must be a text" in bad


@pytest.mark.parametrize(("real_place", "linked"), [(OURS, THEIRS), (THEIRS, OURS)])
async def test_case_80_a_linked_directory_is_listed_once(real: Make, real_place: str, linked: str) -> None:
    bench = real({"work": (say("Done."),)})
    await to_thread.run_sync(skill, bench, f"{real_place}/greet")
    await to_thread.run_sync(link, bench, linked, real_place)
    async with session(bench) as opened:
        await bench.turn(opened, "[[work]]")
    assert told(bench, "About-greet") == 1
    assert told(bench, "- greet — About-greet.") == 1
    assert told(bench, "<skills_instructions>") == 0


async def test_left_alone_it_would_be_listed_twice(real: Make) -> None:
    bench = real({"work": (say("Done."),)})
    await to_thread.run_sync(skill, bench, f"{OURS}/greet")
    await to_thread.run_sync(link, bench, THEIRS, OURS)
    async with session(bench, native=False) as opened:
        await bench.turn(opened, "[[work]]")
    assert told(bench, "About-greet") == 2


async def test_a_teams_other_skills_stay_and_ours_is_not_repeated(real: Make) -> None:
    bench = real({"work": (say("Done."),)})
    for path in (f"{OURS}/greet", f"{OURS}/shared", f"{THEIRS}/team", f"{THEIRS}/group/deep"):
        await to_thread.run_sync(skill, bench, path)
    await to_thread.run_sync(link, bench, f"{THEIRS}/shared", f"{OURS}/shared")
    async with session(bench) as opened:
        await bench.turn(opened, "[[work]]")
    for name in ("greet", "shared", "team", "deep"):
        assert told(bench, f"About-{name}.") == 1, name
    assert told(bench, "- greet — About-greet.") == 1
    assert told(bench, "- shared — ") == 0


ODD = {
    "bold": "description: **About-bold.**",
    "pipe": "description: |About-pipe.",
    "plain": "description: About-plain.",
    "metadata": 'description: About-metadata.\nmetadata: "x"',
    "when": "when_to_use: About-when.",
    "colon": "description: About-colon. Use when: asked",
    "long-" * 13 + "name": "description: About-long-name.",
    "escapes": 'description: "About-escapes. \\ud83d\\ude00"',
}


def _odd(bench: RealBench) -> list[str]:
    """The texts of our skills, each of which Codex finds as well, reads in its own way, and may refuse."""
    for name, head in ODD.items():
        place = bench.workspace / OURS / name / "SKILL.md"
        place.parent.mkdir(parents=True)
        place.write_text(f"---\nname: {name}\n{head}\n---\nBody.\n")
        link(bench, f"{THEIRS}/{name}", f"{OURS}/{name}")
    skill(bench, f"{THEIRS}/team")
    loaded = {one.name for one in load(bench.workspace, TOOL).skills}
    assert {"bold", "pipe", "plain", "metadata", "when", "colon"} < loaded
    return [f"About-{'long-name' if name.startswith('long') else name}." for name in loaded]


async def test_what_codex_refuses_is_in_our_list_and_nothing_is_listed_twice(real: Make) -> None:
    bench = real({"work": (say("Done."),)})
    texts_of_ours = await to_thread.run_sync(_odd, bench)
    async with session(bench) as opened:
        await bench.turn(opened, "[[work]]")
    for text in (*texts_of_ours, "About-team."):
        assert told(bench, text) == 1, text


async def test_after_a_compaction_a_skill_is_given_again(real: Make) -> None:
    call = tool("activate_skill", {"name": "greet"})
    bench = real({"one": (call, say("First.")), "two": (call, say("Second."))})
    await to_thread.run_sync(skill, bench, f"{OURS}/greet")
    config = bench.home.path / "config.toml"
    await to_thread.run_sync(_prepend, config, "model_auto_compact_token_limit = 150\n")
    answers: list[str] = []
    async with session(bench, answers=answers) as opened:
        first = await bench.turn(opened, "[[one]]")
        second = await bench.turn(opened, "[[two]]")
    assert ContextCompacted() in (*first, *second)
    assert ["Body-of-greet." in answer for answer in answers] == [True, True]


def _prepend(path: Path, line: str) -> None:
    path.write_text(line + path.read_text())
