"""The contract of agents (AG22): every case, with every agent, scripted and real, made by the registry.

What a backend cannot do its capabilities say, and then the case is not for it. `players` says how an agent is
made to do what a case needs, and how to add one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio import to_thread

from harness.acp_agents import DRIVEN
from harness.players import COMMENT, PLAYERS, Act, Player
from kit.model_server import api_error, rate_limited, unauthorized
from symphony import skills
from symphony.agents.acp.profiles import PROFILES
from symphony.agents.base import AgentError, Turn
from symphony.agents.events import (
    AgentEvent,
    ApprovalAnswered,
    InputRequired,
    ItemFinished,
    ItemStarted,
    Malformed,
    SessionStarted,
    Text,
    TurnEnd,
    TurnStatus,
)
from symphony.agents.run_stats import RunStats
from symphony.domain import Category
from symphony.scheduler import Thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from symphony.agents.events import AgentEvent

pytestmark = pytest.mark.asyncio

COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)
_MARKS = {
    "codex": [pytest.mark.real_codex],
    "claude": [pytest.mark.real_claude],
    **{name: [pytest.mark.real_acp(name)] for name in DRIVEN},
}
TALKERS = tuple(name for name in PLAYERS if name != "one-shot")
SCRIPTED = tuple(name for name in PLAYERS if name.startswith("scripted-"))


@pytest.fixture(params=[pytest.param(name, marks=_MARKS.get(name, [])) for name in PLAYERS])
def player(request: pytest.FixtureRequest) -> Iterator[Player]:
    with PLAYERS[request.param]() as made:
        yield made


@pytest.fixture(params=[pytest.param(name, marks=_MARKS.get(name, [])) for name in TALKERS])
def talker(request: pytest.FixtureRequest) -> Iterator[Player]:
    """Who goes on with a conversation: a one-shot program is told its whole task anew in each turn."""
    with PLAYERS[request.param]() as made:
        yield made


@pytest.fixture(params=SCRIPTED)
def scripted(request: pytest.FixtureRequest) -> Iterator[Player]:
    with PLAYERS[request.param]() as made:
        yield made


def texts(events: Sequence[AgentEvent]) -> str:
    return "".join(event.message for event in events if isinstance(event, Text))


def failed(events: Sequence[AgentEvent]) -> Category:
    ended = events[-1]
    assert isinstance(ended, TurnEnd), ended
    assert ended.status is TurnStatus.FAILED
    assert ended.failure is not None
    return ended.failure.category


def skip_unless(able: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not able:
        pytest.skip(f"the agent has no {what}, as its capabilities say")


# --- a turn ----------------------------------------------------------------------------------------------


@pytest.mark.conformance("A-19")
async def test_a_turn_begins_says_something_and_completes(player: Player) -> None:
    async with player.open() as session:
        assert session.resume_refused is None
        opened = session.thread_id
        events = await player.play(session, Act("say", "All is well."))
    assert isinstance(events[0], SessionStarted)
    assert opened in {events[0].thread_id, None}
    assert opened is not None or not player.able.resume, "who can go on is known before its first turn"
    assert events[0].session_id == f"{events[0].thread_id}-{events[0].turn_id}"
    assert "All is well." in texts(events)
    assert events[-1] == COMPLETED
    assert player.spawned


@pytest.mark.conformance("A-19")
async def test_work_is_done_in_the_workspace_and_reported(player: Player) -> None:
    async with player.open() as session:
        work = Act("run", "printf hello > hello.txt && git add -A && git commit -q -m 'say hello'")
        events = await player.play(session, work)
    assert events[-1] == COMPLETED, events
    assert (player.workspace / "hello.txt").read_text() == "hello"
    assert player.git("log", "-1", "--format=%s") == "say hello"
    if player.kind != "command":  # a one-shot program reports no more than its output
        assert any(isinstance(event, ItemStarted) for event in events)
        assert any(isinstance(event, ItemFinished) for event in events)


async def test_a_second_turn_goes_on_with_the_thread(talker: Player) -> None:
    async with talker.open() as session:
        first = await talker.play(session, Act("say", "One."))
        second = await talker.play(session, Act("say", "Two."))
    begun = [event for event in (*first, *second) if isinstance(event, SessionStarted)]
    assert len({event.thread_id for event in begun}) == 1
    assert len({event.turn_id for event in begun}) == len(begun) == 2
    assert first[-1] == second[-1] == COMPLETED


async def test_the_envelope_reaches_the_agent_once(player: Player) -> None:
    """Real agents show it in what their model is asked, a scripted one reads the skill that it names."""
    envelope = await to_thread.run_sync(with_a_skill, player)
    seen = {"command": Act("run", 'cat "$SYSTEM" > seen.txt')}.get(player.kind, Act("skill", "greet-well"))
    async with player.open(envelope=envelope) as session:
        events = await player.play(session, Act("say", "I see.") if player.real else seen)
    assert events[-1] == COMPLETED, events
    if player.server is not None:
        asked = [
            json.dumps(each.body, ensure_ascii=False)
            for each in player.server.requests
            if each.scenario and each.body.get("tools")  # a title is asked for without any
        ]
        assert asked
        assert all(each.count("when somebody is greeted") == 1 for each in asked)
    elif player.kind == "command":
        assert (player.workspace / "seen.txt").read_text() == envelope


def with_a_skill(player: Player) -> str:
    """Put a skill into the workspace; returns the block that lists it."""
    folder = player.workspace / ".symphony/skills/greet-well"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: greet-well\ndescription: How to greet. Use it when somebody is greeted.\n---\nBow.\n"
    )
    options = skills.SkillOptions(user_path=None)
    block = skills.render(skills.load(player.workspace, options), options)
    assert block.text is not None
    return block.text


async def test_tokens_are_counted_and_never_fall(talker: Player) -> None:
    assert talker.able.usage
    progress, totals = RunStats(), [0]
    async with talker.open() as session:
        for text in ("One.", "Two."):
            for event in await talker.play(session, Act("say", text)):
                progress.add(event)
            totals.append(progress.facts.tokens.total_tokens)
    assert totals == sorted(set(totals)), "each turn adds some"


# --- what it may ask -------------------------------------------------------------------------------------


async def test_a_tool_of_ours_is_called_and_answered(talker: Player) -> None:
    assert talker.able.client_tools
    async with talker.open(tools=(COMMENT,)) as session:
        events = await talker.play(session, Act("tool", "Half done."))
    assert talker.calls == [("board_comment", {"text": "Half done."})], events
    assert events[-1] == COMPLETED


@pytest.mark.parametrize(("posture", "runs"), [("accept", True), ("decline", False)])
async def test_an_approval_is_answered_by_the_policy(
    scripted: Player,
    posture: str,
    runs: bool,  # noqa: FBT001 - a row
) -> None:
    async with scripted.open(settings={"on_approval": posture}) as session:
        events = await scripted.play(session, Act("approve", "touch approved"))
    assert [event.decision for event in events if isinstance(event, ApprovalAnswered)] == [posture]
    assert (scripted.workspace / "approved").exists() is runs
    assert events[-1] == COMPLETED


async def test_an_approval_may_block(scripted: Player) -> None:
    async with scripted.open(settings={"on_approval": "block"}) as session:
        events = await scripted.play(session, Act("approve", "touch approved"))
    assert isinstance(events[-1], InputRequired)
    assert events[-1].approval
    assert not (scripted.workspace / "approved").exists()


async def test_a_question_to_a_person_ends_the_turn_with_its_words(scripted: Player) -> None:
    async with scripted.open() as session:
        events = await scripted.play(session, Act("ask", "Which colour shall it be?"))
    assert isinstance(events[-1], InputRequired)
    assert "Which colour shall it be?" in (events[-1].question or events[-1].reason)


# --- the end ---------------------------------------------------------------------------------------------


@pytest.mark.conformance("A-19")
async def test_a_stop_in_the_middle_of_a_command_leaves_nothing_behind(player: Player) -> None:
    async with player.open() as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(player.play, session, Act("hang"))
            begun = anyio.Path(player.workspace / "begun")
            while not await begun.exists():  # noqa: ASYNC110 - another process makes it
                await anyio.sleep(0.02)
            assert player.living(), "the search finds what lives"
            tasks.cancel_scope.cancel()
        await session.stop()
        assert await session.stop() == ()
        assert not player.living()
    assert not any(player.host.is_alive(one) for one in player.spawned)


@pytest.mark.parametrize(
    "faults",
    [("--ignore-eof", "--ignore-sigterm"), ("--own-session-child",), ("--ignore-eof",)],
)
async def test_who_does_not_want_to_end_is_ended(scripted: Player, faults: tuple[str, ...]) -> None:
    async with scripted.open(faults=faults, grace_ms=300) as session:
        await scripted.play(session, Act("say", "Hello."))
        assert scripted.living()
    assert not scripted.living()


async def test_a_session_is_gone_on_with(talker: Player) -> None:
    skip_unless(talker.able.resume, "resume")
    async with talker.open() as session:
        events = await talker.play(session, Act("say", "One."))
    assert isinstance(events[0], SessionStarted)
    thread = Thread(thread_id=events[0].thread_id)
    async with talker.open(resume=thread) as session:
        assert session.resume_refused is None
        again = await talker.play(session, Act("say", "Two."))
    assert isinstance(again[0], SessionStarted)
    assert again[0].thread_id == thread.thread_id
    assert again[-1] == COMPLETED


async def test_a_thread_that_nobody_knows_makes_a_new_one(talker: Player) -> None:
    skip_unless(talker.able.resume, "resume")
    unknown = "01a1ffe7-3904-7545-8698-173661a66cca"
    async with talker.open(resume=Thread(thread_id=unknown)) as session:
        assert session.resume_refused is not None
        events = await talker.play(session, Act("say", "Anew."))
    assert isinstance(events[0], SessionStarted)
    assert events[0].thread_id != unknown
    assert events[-1] == COMPLETED


# --- what goes wrong -------------------------------------------------------------------------------------


async def test_a_program_that_is_not_there_is_named_with_a_hint(player: Player) -> None:
    try:
        async with player.open(settings={"command": "/nowhere/agent-of-no-one"}) as session:
            ended = (await player.play(session, Act("say", "Hello.")))[-1]
        failure = ended.failure if isinstance(ended, TurnEnd) else None
    except AgentError as error:
        failure = error.failure
    assert failure is not None
    assert failure.category in {Category.CODEX_NOT_FOUND, Category.AGENT_NOT_FOUND}
    assert failure.hint
    assert not player.living()


@pytest.mark.parametrize("name", [*SCRIPTED, "one-shot"])
async def test_a_turn_that_fails_says_why(name: str) -> None:
    with PLAYERS[name]() as player:
        async with player.open() as session:
            events = await player.play(session, Act("fail", "the build is broken"))
    assert failed(events) is Category.TURN_FAILED
    ended = events[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.failure is not None
    assert "the build is broken" in ended.failure.message


REFUSALS = {
    "codex": (unauthorized(), rate_limited()),
    "claude": (
        api_error(401, "authentication_error", "invalid x-api-key"),
        api_error(429, "rate_limit_error", "Number of requests exceeded your per-minute limit"),
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=_MARKS[name]) for name in REFUSALS])
async def test_a_key_that_is_refused_and_a_limit_have_their_classes(name: str) -> None:
    with PLAYERS[name]() as player:
        assert player.server is not None
        classes = (Category.AGENT_AUTH, Category.AGENT_RATE_LIMITED)
        for answer, category in zip(REFUSALS[name], classes, strict=True):
            async with player.open() as session:
                prompt = player.prompt([Act("say", "never heard")])
                player.server.learn(prompt.split("[[")[1].removesuffix("]]"), (answer,) * 9)
                events = [event async for event in session.run_turn(Turn(prompt=prompt, title="MT-1: try"))]
            assert failed(events) is category


async def test_an_agent_that_ends_in_a_turn_is_told_from_one_that_fails(scripted: Player) -> None:
    with pytest.raises(AgentError) as caught:
        async with scripted.open() as session:
            await scripted.play(session, Act("exit", "7"))
    assert caught.value.failure.category is Category.PORT_EXIT
    assert "7" in caught.value.failure.message


async def test_garbage_is_told_and_does_not_matter(scripted: Player) -> None:
    async with scripted.open(faults=("--garbage",)) as session:
        events = await scripted.play(session, Act("say", "Hello."))
    assert any(isinstance(event, Malformed) for event in events)
    assert events[-1] == COMPLETED


@pytest.mark.slow
async def test_a_line_of_ten_megabytes_is_read_and_a_longer_one_survived(scripted: Player) -> None:
    for size in (10 * 1024 * 1024 - 8_192, 11 * 1024 * 1024):
        async with scripted.open(faults=("--huge-line", str(size))) as session:
            events = await scripted.play(session, Act("say", "Hello."))
        assert events[-1] == COMPLETED


async def test_silence_in_a_turn_has_a_limit(scripted: Player) -> None:
    limits = {"turn_timeout_ms": 400}
    silent = ("--silent-after", "turn/started")
    with pytest.raises(AgentError) as caught:
        async with scripted.open(faults=silent, settings=limits, grace_ms=300) as session:
            await scripted.play(session, Act("say", "Hello."))
    assert caught.value.failure.category is Category.TURN_TIMEOUT
    assert not scripted.living()


async def test_silence_at_the_start_has_a_limit(scripted: Player) -> None:
    limits = {"read_timeout_ms": 700}
    if scripted.kind == "acp":
        limits["start_timeout_ms"] = 700
    with pytest.raises(AgentError) as caught:
        async with scripted.open(faults=("--silent-after", "initialize"), settings=limits):
            pytest.fail("the session must not open")
    assert caught.value.failure.category is Category.RESPONSE_TIMEOUT
    assert not scripted.living()


# --- secrets ---------------------------------------------------------------------------------------------


async def test_a_command_sees_no_secret_of_the_tracker_and_no_key_of_another_agent(player: Player) -> None:
    others = dict.fromkeys(KEYS - own_keys(player) - player.environ.keys(), "others-key")
    player.environ = {**player.environ, "LINEAR_API_KEY": "tracker-secret", **others}
    async with player.open() as session:
        events = await player.play(session, Act("run", "env > seen.txt"))
    assert events[-1] == COMPLETED, events
    seen = (player.workspace / "seen.txt").read_text()
    assert "PATH=" in seen
    assert "tracker-secret" not in seen
    assert "others-key" not in seen


KEYS = {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"}


def own_keys(player: Player) -> AbstractSet[str]:
    """What the agent is given to reach its model; some reach several."""
    if player.kind == "acp":
        return PROFILES[player.settings.get("profile", "generic")].variables
    return {{"codex": "OPENAI_API_KEY", "claude": "ANTHROPIC_API_KEY"}.get(player.kind, "")}
