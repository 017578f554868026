"""The tools of a session: what is offered when, and what each call is answered."""

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from anyio import to_thread
from structlog.testing import capture_logs
from typing_extensions import override

from harness.binding import FakeTracker, make_context
from symphony.agents.base import AgentBackend, Capabilities
from symphony.config import AgentSettings
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs import session_skills
from symphony.daemon.runs.session_skills import SessionTools
from symphony.daemon.runs.skills import load_run_skills, missing_tools, session_options
from symphony.domain import Issue, ToolResult, ToolSpec
from symphony.skills import ActivationMode, AvailableSkills, SkillOptions, load, render

if TYPE_CHECKING:
    from symphony.workspaces import Workspace, WorkspaceManager

pytestmark = pytest.mark.asyncio

ISSUE = Issue(id="1", identifier="SYM-1", title="t", state="Todo", dispatchable=True)
COMMENT = ToolSpec(name="board_comment", description="d", input_schema={})
TOOL = SkillOptions(activation=ActivationMode.TOOL)
SEARCH = SkillOptions(search_above=1)


@dataclass
class ToolTracker(FakeTracker):
    """A tracker with tools, which answers every call by its name."""

    specs: tuple[ToolSpec, ...] = (COMMENT,)

    @override
    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        return self.specs

    @override
    async def execute_agent_tool(self, name: str, arguments: Any, *, issue: Issue) -> ToolResult:
        return ToolResult.of({"ran": name, "arguments": dict(arguments), "issue": issue.id})


@dataclass
class Session:
    """Tools of one session, and which skills it was given."""

    tools: SessionTools
    given: list[str]

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        return await self.tools.run(tool, arguments, issue=ISSUE)

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.tools.specs]


async def session(workspace: Path, *names: str, options: SkillOptions = TOOL) -> Session:
    """A session in a workspace with these skills."""
    return await to_thread.run_sync(lambda: _made(workspace, names, options))


def _made(workspace: Path, names: Iterable[str], options: SkillOptions) -> Session:
    for name in names:
        path = workspace / ".symphony/skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\nname: {name}\ndescription: About {name}.\n---\nBody of {name}.\n")
    found = load(workspace, options)
    offer = AvailableSkills.of(found, render(found, options), workspace=workspace, options=options)
    given: list[str] = []
    tools = SessionTools(ToolTracker(), offer, on_activated=given.append)
    return Session(tools, given)


def message(result: ToolResult) -> str:
    """Of a structured failure (AG18)."""
    assert not result.success
    return str(json.loads(result.text)["error"]["message"])


class TestWhatIsOffered:
    @pytest.mark.parametrize(
        ("options", "names"),
        [
            (SkillOptions(), []),
            (TOOL, ["activate_skill"]),
            (SEARCH, ["skill_search"]),
            (replace(TOOL, search_above=1), ["activate_skill", "skill_search"]),
            (replace(TOOL, search_above=2), ["activate_skill"]),
        ],
        ids=["reading", "activating", "searching", "both", "few enough"],
    )
    async def test_the_trackers_tools_and_those_that_are_chosen(
        self, tmp_path: Path, options: SkillOptions, names: list[str]
    ) -> None:
        assert (await session(tmp_path, "a", "b", options=options)).names == ["board_comment", *names]

    @pytest.mark.parametrize("options", [TOOL, replace(SEARCH, activation=ActivationMode.TOOL)])
    async def test_where_there_is_nothing_to_list_there_is_no_tool(
        self, tmp_path: Path, options: SkillOptions
    ) -> None:
        assert (await session(tmp_path, options=options)).names == ["board_comment"]

    async def test_the_tool_knows_the_listed_names(self, tmp_path: Path) -> None:
        offered = await session(tmp_path, "a", "b", options=replace(TOOL, max_skills_in_prompt=1))
        assert offered.tools.specs[1].input_schema["properties"]["name"]["enum"] == ["a"]

    async def test_a_call_of_the_trackers_tool_reaches_it(self, tmp_path: Path) -> None:
        answer = await (await session(tmp_path, "a")).call("board_comment", body="hi")
        assert json.loads(answer.text) == {"ran": "board_comment", "arguments": {"body": "hi"}, "issue": "1"}


class TestActivating:
    async def test_the_body_comes_once_and_is_told(self, tmp_path: Path) -> None:
        ours = await session(tmp_path, "a")
        with capture_logs() as logs:
            first = await ours.call("activate_skill", name="a")
            again = await ours.call("activate_skill", name="a")
        assert '<skill_content name="a">\nBody of a.' in first.text
        assert (again.success, "already active" in again.text) == (True, True)
        assert "Body of a." not in again.text
        assert ours.given == ["a"]
        assert [(log["event"], log["name"]) for log in logs] == [("skill_activated", "a")]

    async def test_after_a_compaction_it_comes_again(self, tmp_path: Path) -> None:
        ours = await session(tmp_path, "a")
        await ours.call("activate_skill", name="a")
        ours.tools.on_compacted()
        assert "Body of a." in (await ours.call("activate_skill", name="a")).text
        assert ours.given == ["a", "a"]

    async def test_a_compaction_is_nothing_to_a_session_that_reads(self, tmp_path: Path) -> None:
        (await session(tmp_path, "a", options=SkillOptions())).tools.on_compacted()

    @pytest.mark.parametrize(
        "arguments", [{}, {"name": 1}, {"name": None}, {"name": ["a"]}, {"name": "a", "x": 1}, {"skill": "a"}]
    )
    async def test_bad_arguments_are_a_failure_with_words(
        self, tmp_path: Path, arguments: dict[str, Any]
    ) -> None:
        ours = await session(tmp_path, "a")
        assert "`name`" in message(await ours.tools.run("activate_skill", arguments, issue=ISSUE))
        assert ours.given == []

    async def test_an_unknown_name_and_a_vanished_file_are_failures_too(self, tmp_path: Path) -> None:
        ours = await session(tmp_path, "a")
        assert "no such skill" in message(await ours.call("activate_skill", name="../../etc/passwd"))
        await to_thread.run_sync((tmp_path / ".symphony/skills/a/SKILL.md").unlink)
        assert "cannot be read" in message(await ours.call("activate_skill", name="a"))
        assert ours.given == []


class TestSearching:
    async def test_the_answer_is_a_list(self, tmp_path: Path) -> None:
        answer = await (await session(tmp_path, "a", "pdf", options=SEARCH)).call("skill_search", query="pdf")
        assert answer.success
        assert f"- pdf (file: {tmp_path}/.symphony/skills/pdf/SKILL.md) — About pdf." in answer.text

    async def test_a_limit_is_kept(self, tmp_path: Path) -> None:
        answer = await (await session(tmp_path, "a", "b", options=SEARCH)).call(
            "skill_search", query="about", limit=1
        )
        assert answer.text.count("\n- ") == 1

    @pytest.mark.parametrize(
        ("arguments", "names"),
        [
            ({}, "`query`"),
            ({"query": 1}, "`query`"),
            ({"query": " "}, "`query`"),
            ({"query": "x" * 1_001}, "`query`"),
            ({"query": "x", "limit": 0}, "`limit`"),
            ({"query": "x", "limit": 21}, "`limit`"),
            ({"query": "x", "limit": True}, "`limit`"),
            ({"query": "x", "limit": "2"}, "`limit`"),
            ({"query": "x", "words": 1}, "'words'"),
        ],
    )
    async def test_bad_arguments_are_a_failure_with_words(
        self, tmp_path: Path, arguments: dict[str, Any], names: str
    ) -> None:
        ours = await session(tmp_path, "a", "b", options=SEARCH)
        assert names in message(await ours.call("skill_search", **arguments))


class TestADiskThatHangs:
    @pytest.fixture
    def gate(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
        """No call waits; the threads are let go at the end of the test."""
        monkeypatch.setattr(session_skills, "TOOL_DEADLINE_S", 0.05)
        event = threading.Event()
        yield event
        event.set()

    async def test_it_costs_one_failure_and_the_skill_counts_as_unread(
        self, tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = await session(tmp_path, "a")
        with monkeypatch.context() as patched:
            patched.setattr("symphony.skills.activate.read_content", lambda *_: gate.wait())
            assert "in time" in message(await ours.call("activate_skill", name="a"))
        assert ours.given == []
        gate.set()
        monkeypatch.setattr(session_skills, "TOOL_DEADLINE_S", 5.0)
        assert "Body of a." in (await ours.call("activate_skill", name="a")).text

    async def test_no_more_than_one_thread_ever_hangs(
        self, tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = await session(tmp_path, "a", "b")
        hanging = []

        def hang(*_: object) -> None:
            hanging.append(1)
            gate.wait()

        monkeypatch.setattr("symphony.skills.activate.read_content", hang)
        for name in ("a", "b", "a"):
            assert "in time" in message(await ours.call("activate_skill", name=name))
        assert hanging == [1]

    async def test_a_search_that_takes_too_long_is_a_failure(
        self, tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours = await session(tmp_path, "a", "b", options=SEARCH)
        monkeypatch.setattr("symphony.skills.activate.search_skills", lambda *_, **__: gate.wait() and ())
        assert "in time" in message(await ours.call("skill_search", query="a"))


@dataclass
class Agent:
    """As much of a backend as is asked."""

    client_tools: bool = True

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            system_block_at_start=True,
            client_tools=self.client_tools,
            absolute_usage=True,
            sandbox=True,
            resume=False,
        )


@dataclass
class Place:
    """As much of a workspace and of its manager as is asked."""

    path: Path = Path("/nowhere")

    def head_commit(self, workspace: object) -> str | None:
        del workspace
        return None


class TestWhatCannotBeOffered:
    def context(
        self, tmp_path: Path, *, taken: tuple[str, ...] = (), client_tools: bool = True, **skills: Any
    ) -> RuntimeContext:
        specs = tuple(ToolSpec(name=name, description="", input_schema={}) for name in taken)
        made = make_context(tmp_path, ToolTracker(specs=specs))
        settings = made.settings.model_copy(
            update={"agent": AgentSettings.model_validate({"skills": skills})}
        )
        return replace(
            made,
            workflow=replace(made.workflow, settings=settings),
            agents={"codex": cast("AgentBackend", Agent(client_tools=client_tools))},
        )

    async def test_what_is_chosen_holds_where_it_can(self, tmp_path: Path) -> None:
        context = self.context(tmp_path, activation="tool", search_above=7)
        assert not missing_tools(context, "codex")
        options = session_options(context, "codex")
        assert (options.activation, options.search_above) == (ActivationMode.TOOL, 7)

    async def test_a_tool_of_the_tracker_keeps_its_name(self, tmp_path: Path) -> None:
        context = self.context(
            tmp_path, taken=("activate_skill", "skill_search"), activation="tool", search_above=7
        )
        assert missing_tools(context, "codex") == dict.fromkeys(
            ["activate_skill", "skill_search"], "the tracker has a tool of this name"
        )
        options = session_options(context, "codex")
        assert (options.activation, options.search_above) == (ActivationMode.READ, None)

    async def test_an_agent_without_tools_reads_and_is_told_of_all(self, tmp_path: Path) -> None:
        context = self.context(tmp_path, client_tools=False, activation="tool")
        assert missing_tools(context, "codex") == {"activate_skill": "the agent takes no tools"}
        assert session_options(context, "codex").activation is ActivationMode.READ

    async def test_the_run_says_why_and_goes_on_without(self, tmp_path: Path) -> None:
        context = self.context(tmp_path, taken=("activate_skill",), activation="tool", native="always")
        workspace = cast("Workspace", Place(path=tmp_path))
        await session(tmp_path, "a")
        with capture_logs() as logs:
            catalog = await load_run_skills(
                replace(context, workspaces=cast("WorkspaceManager", Place())), workspace, "codex"
            )
        assert "read `" in str(catalog.block)
        said = [(log["tool"], log["reason"]) for log in logs if log["event"] == "skill_tool_left_out"]
        assert said == [("activate_skill", "the tracker has a tool of this name")]

    async def test_what_is_not_chosen_is_not_missed(self, tmp_path: Path) -> None:
        context = self.context(tmp_path, taken=("activate_skill",), client_tools=False)
        assert not missing_tools(context, "codex")
