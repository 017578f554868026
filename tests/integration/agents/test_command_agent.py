"""Sessions of one-shot agents with real processes: whatever a shell can be told is an agent."""

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from harness.real import require_bubblewrap
from harness.secrets_probe import PROBE, TRACKER_SECRETS, plant
from harness.sessions import briefed
from harness.shell import word
from symphony.agents.base import AgentError, BackendContext, Briefing, Envelope, SessionRequest, Turn
from symphony.agents.command import backend as backend_module
from symphony.agents.command import session as session_module
from symphony.agents.command.backend import CommandBackend
from symphony.agents.command.session import CommandSession
from symphony.agents.events import AgentEvent, SessionStarted, Text, TurnEnd, TurnStatus
from symphony.agents.isolation import Isolation
from symphony.agents.registry import create_backend
from symphony.config import CommandSettings, NamedAgent
from symphony.domain import Category, Failure, ToolResult
from symphony.processes.base import Identity
from symphony.processes.local import LocalHost

pytestmark = pytest.mark.asyncio

TITLE = "SYM-1: Say 'hello'; $(touch made)"
COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)


async def no_tool(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    raise AssertionError((name, arguments))


@dataclass
class Bench:
    """A workspace and its surroundings."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    isolation: Isolation | None = None
    secret_names: frozenset[str] = frozenset({"TRACKER_TOKEN"})
    host: LocalHost = field(default_factory=LocalHost)
    spawned: list[Identity] = field(default_factory=list)
    run_id: str = field(default_factory=lambda: f"test-{uuid4().hex}")

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def context(self) -> BackendContext:
        return BackendContext(
            host=self.host,
            environ={"PATH": os.environ["PATH"], "HOME": str(self.root / "home"), **self.environ},
            secret_names=self.secret_names,
            homes=self.root / "homes",
            isolation=self.isolation,
            grace_ms=300,
        )

    def backend(self, command: str | None = None, **settings: Any) -> CommandBackend:
        return CommandBackend(
            settings=CommandSettings(command=command, **settings), context=self.context(), name="mine"
        )

    def request(self, envelope: str | None = None, **changes: Any) -> SessionRequest:
        values: dict[str, Any] = {
            "run_id": self.run_id,
            "cwd": self.workspace,
            "briefing": briefed(Briefing(envelope=envelope)),
            "run_tool": no_tool,
            "stderr_path": self.root / "stderr.log",
            "on_spawned": self.spawned.append,
            **changes,
        }
        return SessionRequest(**values)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for name in ("workspace", "home"):
        (tmp_path / name).mkdir()
    return Bench(root=tmp_path)


async def turn(session: CommandSession, prompt: str = "Work.", title: str = TITLE) -> list[AgentEvent]:
    return [event async for event in session.run_turn(Turn(prompt=prompt, title=title))]


async def one_turn(
    bench: Bench, command: str, *, envelope: str | None = None, **settings: Any
) -> list[AgentEvent]:
    async with bench.backend(command, **settings).open(bench.request(envelope)) as session:
        return await turn(session)


def texts(events: list[AgentEvent]) -> list[str]:
    return [line for event in events if isinstance(event, Text) for line in event.message.splitlines()]


def failure(events: list[AgentEvent]) -> Failure:
    last = events[-1]
    assert isinstance(last, TurnEnd)
    assert last.failure is not None
    return last.failure


async def test_a_turn_is_a_process_whose_output_is_told_line_by_line(bench: Bench) -> None:
    async with bench.backend("echo one; echo two; echo three >&2").open(bench.request()) as session:
        assert session.pid == 0
        assert session.resume_refused is None
        events = await turn(session)
        assert session.pid == bench.spawned[0].pid
    first = events[0]
    assert isinstance(first, SessionStarted)
    assert first.session_id == f"{bench.run_id}-1"
    assert texts(events) == ["one", "two"]
    assert events[-1] == COMPLETED
    assert await anyio.Path(bench.root / "stderr.log").read_text() == "three\n"
    assert not bench.host.find_marked([bench.run_id])


async def test_aider_reads_the_envelope_of_each_turn_from_its_read_only_file(bench: Bench) -> None:
    program = bench.root / "home" / "bin" / "aider"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor word; do [ "$before" = --read ] && cat "$word"; before=$word; done\n')
    program.chmod(0o755)
    (bench.root / "home" / ".bash_profile").write_text(f"PATH={word(program.parent)}:$PATH\n")
    async with bench.backend(profile="aider").open(bench.request("PLAN TEXT")) as session:
        told = [
            texts([event async for event in session.run_turn(Turn(prompt="go", envelope=envelope))])
            for envelope in (Envelope(), Envelope(phase="TEST", instructions="TEST TEXT"), Envelope())
        ]
    changed = ["The phase of the work on this issue is TEST.", "TEST TEXT"]
    assert told == [["PLAN TEXT"], changed, changed]


async def test_prompt_and_envelope_are_private_files_outside_of_the_workspace(bench: Bench) -> None:
    """Whose text is never in a command line, and gone at the end."""
    command = "stat -c '%a %n' {prompt_file} {envelope_file} && cat {envelope_file} {prompt_file}"
    events = await one_turn(bench, command, envelope="## Available skills")
    said = texts(events)
    modes, names = zip(*(line.split(" ", 1) for line in said[:2]), strict=True)
    assert modes == ("600", "600")
    assert said[2] == "## Available skillsWork."
    directory = Path(names[0]).parent
    assert not directory.is_relative_to(bench.workspace)
    assert not await anyio.Path(directory).exists()


async def test_without_a_file_of_its_own_the_envelope_stands_before_the_prompt(bench: Bench) -> None:
    events = await one_turn(bench, "cat {prompt_file}", envelope="## Available skills\n")
    assert texts(events) == ["## Available skills", "Work."]
    assert bench.backend("cat {prompt_file}").capabilities.system_block_at_start is False
    assert bench.backend("cat {envelope_file}").capabilities.system_block_at_start is True


async def test_what_an_issue_is_called_is_a_word_and_no_command(bench: Bench) -> None:
    command = "printf '%s\\n' {issue} {title} {workspace} {model}"
    events = await one_turn(bench, command, model="gpt")
    assert texts(events) == ["SYM-1", "Say 'hello'; $(touch made)", str(bench.workspace), "gpt"]
    assert [path.name async for path in anyio.Path(bench.workspace).iterdir()] == []


async def test_a_later_turn_is_told_the_task_again(bench: Bench) -> None:
    """It has no conversation in which the task could still be."""
    async with bench.backend("cat {prompt_file}").open(bench.request("E")) as session:
        await turn(session, "The task.")
        events = await turn(session, "Go on.")
    first = events[0]
    assert isinstance(first, SessionStarted)
    assert first.turn_id == "2"
    assert texts(events) == ["E", "The task.", "---", "Go on."]
    assert len(bench.spawned) == 2
    assert bench.spawned[0] != bench.spawned[1]


async def test_an_agent_that_reads_its_input_finds_its_end(bench: Bench) -> None:
    assert (await one_turn(bench, "cat; echo read"))[-1] == COMPLETED


@pytest.mark.parametrize(
    ("command", "category", "words"),
    [
        ("echo why >&2; exit 3", Category.TURN_FAILED, "the agent ended with exit code 3: why"),
        ("echo why; exit 3", Category.TURN_FAILED, "the agent ended with exit code 3: why"),
        ("exit 3", Category.TURN_FAILED, "the agent ended with exit code 3"),
        ("no-such-agent {prompt_file}", Category.AGENT_NOT_FOUND, "no-such-agent: command not found"),
        ("./no-program", Category.AGENT_NOT_FOUND, "/no-program: No such file or directory"),
        ("kill -9 $$", Category.TURN_FAILED, "the agent was ended by SIGKILL"),
    ],
)
async def test_an_end_that_is_none_says_why(
    bench: Bench, command: str, category: Category, words: str
) -> None:
    found = failure(await one_turn(bench, command))
    assert found.category is category
    assert words in found.message


async def test_what_an_earlier_turn_said_is_no_reason_of_a_later_one(bench: Bench) -> None:
    command = "[ -e there ] && exit 4; touch there; echo earlier >&2; exit 3"
    async with bench.backend(command).open(bench.request()) as session:
        assert "earlier" in failure(await turn(session)).message
        assert failure(await turn(session)).message == "the agent ended with exit code 4"


async def test_what_an_agent_left_running_ends_with_its_turn(bench: Bench) -> None:
    """And it does not hold the turn up, although it holds its output."""
    events = await one_turn(bench, "sleep 1000 & echo started")
    assert texts(events) == ["started"]
    assert events[-1] == COMPLETED
    assert not bench.host.find_marked([bench.run_id])


async def test_an_agent_that_closes_its_output_may_work_on(bench: Bench) -> None:
    os.mkfifo(bench.root / "gate")
    command = f"exec >&- 2>&-; read -r word < {word(bench.root / 'gate')}; touch done"
    async with bench.backend(command).open(bench.request()) as session:
        events: list[AgentEvent] = []
        async with anyio.create_task_group() as tasks:

            async def collect() -> None:
                events.extend(await turn(session))

            tasks.start_soon(collect)
            await anyio.to_thread.run_sync((bench.root / "gate").write_text, "go\n")
    assert events[-1] == COMPLETED
    assert await anyio.Path(bench.workspace / "done").exists()


async def test_silence_has_a_limit(bench: Bench) -> None:
    with pytest.raises(AgentError) as caught:
        await one_turn(bench, "echo first; sleep 1000", turn_timeout_ms=200)
    assert caught.value.failure.category is Category.TURN_TIMEOUT
    assert not bench.host.find_marked([bench.run_id])


async def test_a_turn_that_is_stopped_leaves_no_process(bench: Bench) -> None:
    async with bench.backend("echo here; (sleep 1000 & sleep 1000)").open(bench.request()) as session:
        async for event in session.run_turn(Turn(prompt="Work.", title=TITLE)):
            if isinstance(event, Text):
                break
        assert bench.host.find_marked([bench.run_id])
        await session.stop()
        assert not bench.host.find_marked([bench.run_id])
        assert await session.stop() == ()


async def test_a_session_that_never_had_a_turn_has_nothing_to_stop(bench: Bench) -> None:
    async with bench.backend("true").open(bench.request()) as session:
        assert await session.stop() == ()
    assert bench.spawned == []


async def test_it_gets_the_variables_that_are_named_and_no_secret(bench: Bench) -> None:
    bench.environ = {
        "TRACKER_TOKEN": "secret",
        "OTHER_TOKEN": "secret",
        "OPENAI_API_KEY": "key",
        "MY_KEY": "mine",
        "LANG": "C.UTF-8",
    }
    names = set(texts(await one_turn(bench, "env | cut -d= -f1", env=("MY_KEY", "TRACKER_TOKEN"))))
    assert {"MY_KEY", "PATH", "HOME", "LANG", "SYMPHONY_RUN_ID", "SYMPHONY_PROMPT_FILE"} <= names
    assert names.isdisjoint({"TRACKER_TOKEN", "OTHER_TOKEN", "OPENAI_API_KEY"})


async def test_a_profile_names_its_keys(bench: Bench) -> None:
    bench.environ = {"OPENAI_API_KEY": "key", "GEMINI_API_KEY": "other"}
    names = set(texts(await one_turn(bench, "env | cut -d= -f1", profile="aider")))
    assert "OPENAI_API_KEY" in names
    assert "GEMINI_API_KEY" not in names


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        ({}, frozenset[str]()),
        ({"profile": "aider"}, frozenset({"OPENAI_API_KEY", "ANTHROPIC_API_KEY"})),
        ({"env": ("GEMINI_API_KEY", "NPM_TOKEN")}, frozenset({"GEMINI_API_KEY", "NPM_TOKEN"})),
    ],
    ids=["plain", "profile", "named"],
)
async def test_no_secret_and_no_key_of_another_agent_is_shown(
    bench: Bench, settings: dict[str, Any], own: frozenset[str]
) -> None:
    """Neither by the daemon nor by a login profile."""
    planted = await anyio.to_thread.run_sync(partial(plant, bench.root / "home", own=own))
    bench.environ, bench.secret_names = dict(planted.environ), TRACKER_SECRETS
    assert (await one_turn(bench, f"({PROBE}) > shown.txt", **settings))[-1] == COMPLETED
    shown = await anyio.Path(bench.workspace / "shown.txt").read_text()
    assert planted.leaks(shown) == []
    assert all(f"{name}=planted" in shown for name in own), "its own it has, or the test proves nothing"


async def test_a_private_home_is_one_of_the_daemons_own(bench: Bench) -> None:
    bench.environ = {"XDG_CONFIG_HOME": "/somewhere"}
    events = await one_turn(bench, "printf '%s\\n' \"$HOME\" ${XDG_CONFIG_HOME-none}", home="private")
    assert texts(events) == [str(bench.root / "homes" / "mine"), "none"]
    assert stat.S_IMODE((await anyio.Path(bench.root / "homes" / "mine").stat()).st_mode) == 0o700


async def test_inside_an_isolation_it_reads_its_prompt_and_writes_to_its_workspace(bench: Bench) -> None:
    await anyio.to_thread.run_sync(require_bubblewrap)
    bench.isolation = Isolation(hidden=(bench.root,))
    await anyio.Path(bench.root / "homes").mkdir()
    command = "cat {prompt_file} && touch made ~/kept && ! touch {prompt_file} 2>&-"
    events = await one_turn(bench, command, home="private")
    assert (texts(events), events[-1]) == (["Work."], COMPLETED)
    assert await anyio.Path(bench.workspace / "made").exists()
    assert await anyio.Path(bench.root / "homes" / "mine" / "kept").exists()


async def test_a_workspace_that_is_not_there_is_known_before_anything_starts(bench: Bench) -> None:
    with pytest.raises(AgentError) as caught:
        async with bench.backend("true").open(bench.request(cwd=bench.root / "nowhere")):
            pass
    assert caught.value.failure.category is Category.INVALID_WORKSPACE_CWD


async def test_a_shell_that_cannot_be_started_is_a_failure_with_a_hint(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("bash")

    monkeypatch.setattr(bench.host, "spawn", refuse)
    with pytest.raises(AgentError) as caught:
        await one_turn(bench, "true")
    assert caught.value.failure.category is Category.AGENT_NOT_FOUND
    assert "bash must be on PATH" in str(caught.value.failure.hint)


@pytest.mark.parametrize("broken", ["mkdtemp", "_write_new"])
async def test_a_prompt_that_cannot_be_written_is_a_failure_of_the_machine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile if broken == "mkdtemp" else session_module, broken, refuse)
    with pytest.raises(AgentError) as caught:
        await one_turn(bench, "true")
    assert caught.value.failure.category is Category.STATE_DIRECTORY
    assert "No space left" in caught.value.failure.message


async def test_settings_that_name_no_command_make_no_backend(bench: Bench) -> None:
    with pytest.raises(AgentError) as caught:
        bench.backend()
    assert caught.value.failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert "command is required" in caught.value.failure.message


async def test_the_registry_makes_one(bench: Bench) -> None:
    agent = NamedAgent(name="mine", kind="command", settings=CommandSettings(command="true"))
    backend = create_backend(agent, bench.context())
    assert isinstance(backend, CommandBackend)
    assert not backend.capabilities.client_tools
    assert not backend.capabilities.resume
    assert not backend.capabilities.usage
    assert backend.skill_roots.workspace == ()


# --- preflight -------------------------------------------------------------------------------------------


async def test_the_program_is_looked_for_before_anything_is_claimed(bench: Bench) -> None:
    found = await bench.backend("env FOO=1 true").preflight(bench.root, run_id=bench.run_id)
    assert (found.agent, found.version) == ("env", "unknown")
    found = await bench.backend("$SHELL -c true").preflight(bench.root, run_id=bench.run_id)
    assert found.agent == "command"
    with pytest.raises(AgentError) as caught:
        await bench.backend("no-such-agent {prompt_file}").preflight(bench.root, run_id=bench.run_id)
    assert caught.value.failure.category is Category.AGENT_NOT_FOUND
    assert "no program no-such-agent" in caught.value.failure.message


def _program(bench: Bench, script: str) -> str:
    """A program that answers to every argument by what the script does."""
    path = bench.root / "agent"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{word(path)} {{prompt_file}}"


async def test_a_known_program_is_asked_for_its_version(bench: Bench) -> None:
    for answer, expected in (('echo "aider 0.86.2 $1"', "0.86.2"), ("echo hello", "unknown")):
        program = await anyio.to_thread.run_sync(_program, bench, answer)
        backend = bench.backend(program, profile="aider")
        assert (await backend.preflight(bench.root, run_id=bench.run_id)).version == expected
    found = await bench.backend("$AGENT x", profile="aider").preflight(bench.root, run_id=bench.run_id)
    assert (found.agent, found.version) == ("command", "unknown")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no module >&2; exit 1", "failed with exit code 1: no module"),
        ("exit 1", "failed with exit code 1: no output"),
        ("sleep 1000", "did not answer within"),
    ],
)
async def test_a_program_that_cannot_tell_its_version_is_not_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(backend_module, "_VERSION_TIMEOUT_MS", 2_000)
    program = await anyio.to_thread.run_sync(_program, bench, script)
    with pytest.raises(AgentError) as caught:
        await bench.backend(program, profile="aider").preflight(bench.root, run_id=bench.run_id)
    assert caught.value.failure.category is Category.AGENT_PREFLIGHT
    assert words in caught.value.failure.message
    assert caught.value.failure.hint is not None
