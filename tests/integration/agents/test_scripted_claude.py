"""The claude backend against the scripted speaker: what no real agent does on demand."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from harness.claude import COMMENT, ClaudeBench
from harness.real import require_bubblewrap
from kit.speakers import PLACE, scripted_claude
from symphony.agents.base import AgentError, IsolationError, Turn
from symphony.agents.events import (
    Activity,
    AgentEvent,
    ApprovalAnswered,
    InputRequired,
    ItemFinished,
    LogNotice,
    Malformed,
    SessionStarted,
    Text,
    ToolCalled,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.agents.isolation import Isolation
from symphony.agents.run_stats import RunStats
from symphony.config import ClaudeSettings
from symphony.domain import Blame, Category, ToolResult
from symphony.scheduler import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from symphony.agents.events import AgentEvent

    Make = Callable[..., ClaudeBench]

pytestmark = pytest.mark.asyncio
COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a bench whose speaker has these switches, in an empty home."""

    def build(*switches: str, **changes: Any) -> ClaudeBench:
        home = tmp_path / "home"
        home.mkdir()
        path = f"{sys.exec_prefix}/bin:{os.environ['PATH']}"
        environ = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}
        settings = {"grace_ms": 300, "command": scripted_claude(*switches), **changes}
        return ClaudeBench.at(tmp_path, environ, **settings)

    return build


def of(kind: type[AgentEvent], events: Sequence[AgentEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_two_turns_run_on_one_process_and_each_token_counts_once(make: Make) -> None:
    bench, progress = make(envelope="e" * 400), RunStats()
    async with bench.session() as session:
        first = await bench.turn(session, bench.script({"write": "a.txt", "text": "a"}, {"commit": "add a"}))
        second = await bench.turn(session, bench.script({"say": "more"}))
        assert session.pid == bench.spawned[0].pid
    for event in (*first, *second):
        progress.add(event)
    starts = of(SessionStarted, (*first, *second))
    assert len({event.thread_id for event in starts}) == 1
    assert len({event.turn_id for event in starts}) == 2
    assert first[-1] == second[-1] == COMPLETED
    assert bench.git("log", "-1", "--format=%s") == "add a"
    told = progress.snapshot()
    assert told.facts.turn_count == 2
    assert told.facts.tokens.total_tokens == sum(
        event.tokens.total_tokens for event in of(UsageUpdate, (*first, *second))
    )
    assert told.facts.tokens.total_tokens > 100, "the envelope counts"
    assert [event.cost_usd > 0 for event in of(TurnEnd, (*first, *second))] == [True, True]


@pytest.mark.parametrize("switch", ["--garbage", "--split-lines", "--stderr-flood=300000"])
async def test_a_speaker_with_bad_manners_is_understood(make: Make, switch: str) -> None:
    bench = make(switch)
    async with bench.session() as session:
        events = await bench.turn(session, bench.script({"say": "hellö"}))
    assert Text(message="hellö") in events
    assert events[-1] == COMPLETED
    assert bool(of(Malformed, events)) == (switch == "--garbage")


@pytest.mark.parametrize(("size", "kept"), [(9_500_000, True), (11_000_000, False)])
async def test_a_line_above_the_limit_is_malformed_and_the_turn_goes_on(
    make: Make, size: int, *, kept: bool
) -> None:
    bench = make(f"--huge-line={size}")
    async with bench.session() as session:
        events = await bench.turn(session, bench.script({"say": "after"}))
    assert any(len(event.message) == size for event in of(Text, events)) == kept
    assert bool(of(Malformed, events)) != kept
    assert events[-1] == COMPLETED


async def test_a_request_that_nobody_knows_is_refused_and_the_turn_goes_on(make: Make) -> None:
    bench = make("--unknown-request")
    async with bench.session() as session:
        events = await bench.turn(session, bench.script({"say": "after"}))
    assert "unsupported request scripted/unknownRequest was refused" in [
        event.message for event in of(LogNotice, events)
    ]
    assert events[-1] == COMPLETED


async def test_tools_run_on_our_side_and_their_answers_reach_the_agent(make: Make) -> None:
    bench = make(tools=(COMMENT,))

    async def refuse(name: str, arguments: Mapping[str, Any]) -> ToolResult:
        del name, arguments
        return ToolResult.error("the board is closed")

    steps = {"tool": "board_comment", "arguments": {"text": "hi"}}
    async with bench.session() as session:
        good = await bench.turn(session, bench.script(steps))
    async with bench.session({"run_tool": refuse}) as session:
        bad = await bench.turn(session, bench.script(steps))
    assert bench.calls == [("board_comment", {"text": "hi"})]
    assert of(ToolCalled, good) == [ToolCalled(name="board_comment", success=True)]
    assert of(ToolCalled, bad) == [ToolCalled(name="board_comment", success=False)]
    (ended,) = of(TurnEnd, bad)
    assert "the board is closed" in ended.failure.message


@pytest.mark.parametrize(("on_approval", "decision"), [("accept", "accept"), ("decline", "decline")])
async def test_an_approval_is_answered_by_policy(make: Make, on_approval: str, decision: str) -> None:
    bench = make()
    async with bench.session(on_approval=on_approval) as session:
        events = await bench.turn(session, bench.script({"ask_approval": "touch made"}))
    assert of(ApprovalAnswered, events) == [ApprovalAnswered(kind="Bash", decision=decision)]
    assert (bench.workspace / "made").exists() == (decision == "accept")
    assert events[-1] == COMPLETED


async def test_a_blocked_approval_and_a_question_end_the_run(make: Make) -> None:
    bench = make()
    async with bench.session(on_approval="block") as session:
        asked = await bench.turn(session, bench.script({"ask_approval": "touch made"}))
    async with bench.session() as session:
        question = await bench.turn(session, bench.script({"ask_input": "Which?"}))
    assert asked[-1] == InputRequired(
        reason="approval required for Bash: bash -c 'touch made'", approval=True
    )
    assert question[-1] == InputRequired(reason="the agent asks: Which?", question="Which?")
    assert not (bench.workspace / "made").exists()
    assert bench.living() == ()


async def test_a_failed_turn_carries_the_agents_words(make: Make) -> None:
    bench = make()
    async with bench.session() as session:
        (*_, ended) = await bench.turn(session, bench.script({"fail": "no luck"}))
    assert isinstance(ended, TurnEnd)
    assert ended.failure is not None
    assert (ended.failure.category, ended.failure.message) == (Category.TURN_FAILED, "no luck")


async def test_the_end_of_the_process_in_a_turn_is_port_exit(make: Make) -> None:
    bench = make()
    async with bench.session() as session:
        with pytest.raises(AgentError) as caught:
            await bench.turn(session, bench.script({"exit": 7}))
    assert caught.value.failure.category is Category.PORT_EXIT
    assert "exit code 7" in caught.value.failure.message


async def test_silence_in_a_turn_is_a_turn_timeout(make: Make) -> None:
    bench = make("--silent-after", "turn/start")
    async with bench.session(turn_timeout_ms=300) as session:
        with pytest.raises(AgentError) as caught:
            await bench.turn(session, bench.script({"say": "x"}))
    assert caught.value.failure.category is Category.TURN_TIMEOUT
    assert bench.living() == ()


async def test_a_start_without_an_answer_is_a_response_timeout_and_leaves_nothing(make: Make) -> None:
    bench = make("--silent-after", "initialize")
    with pytest.raises(AgentError) as caught:
        async with bench.session(read_timeout_ms=1_500):
            pass
    assert caught.value.failure.category is Category.RESPONSE_TIMEOUT
    assert bench.living() == ()


async def test_a_resumed_conversation_goes_on_with_its_script_and_the_new_envelope(
    make: Make, tmp_path: Path
) -> None:
    bench = make("--threads", str(tmp_path / "threads"), envelope="old")
    skill = bench.workspace / ".symphony/skills/greet/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: greet\n---\nsign: yours\n")
    new = f"## Available skills\n\nRead {skill.parents[1]}/<name>/SKILL.md\n\n- greet — hi\n"
    prompt = f'{bench.script({"say": "one"})[:-6]},[{{"skill": "greet", "value_of": "sign"}}]]\n```\n'
    prompt = prompt.replace("]],[", "],[")
    async with bench.session() as session:
        (began, *_) = await bench.turn(session, prompt)
    assert isinstance(began, SessionStarted)
    resume = {"resume": Thread(thread_id=began.thread_id), "envelope": new}
    async with bench.session(resume) as session:
        assert session.resume_refused is None
        (again, *rest) = await bench.turn(session, "Go on.")
    assert isinstance(again, SessionStarted)
    assert again.thread_id == began.thread_id
    assert rest[-1] == COMPLETED, "the skill is listed in what the agent was told anew"
    assert 0 < sum(event.tokens.total_tokens for event in of(UsageUpdate, rest)) < 120


async def test_a_conversation_that_is_lost_is_begun_anew_with_its_tools(make: Make) -> None:
    bench = make(tools=(COMMENT,))
    async with bench.session({"resume": Thread(thread_id="gone")}) as session:
        refused = session.resume_refused
        steps = {"tool": "board_comment", "arguments": {}}
        (began, *_, ended) = await bench.turn(session, bench.script(steps))
    assert refused is not None
    assert refused.message == "No conversation found with session ID: gone"
    assert isinstance(began, SessionStarted)
    assert began.thread_id != "gone"
    assert ended == COMPLETED
    assert len(bench.spawned) == 2


async def test_silence_at_a_resume_is_no_lost_conversation(make: Make) -> None:
    bench = make("--silent-after", "initialize")
    with pytest.raises(AgentError) as caught:
        async with bench.session({"resume": Thread(thread_id="gone")}, read_timeout_ms=1_500):
            pass
    assert caught.value.failure.category is Category.RESPONSE_TIMEOUT
    assert len(bench.spawned) == 1


async def test_an_isolation_that_cannot_be_made_is_no_lost_conversation(make: Make, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/sh\necho "bwrap: Can\'t create file at /x.sock" >&2\nexit 1\n')
    program.chmod(0o755)
    bench = make()
    backend = bench.backend(context={"isolation": Isolation(program=str(program))})
    with pytest.raises(IsolationError):
        async with backend.open(bench.request(resume=Thread(thread_id="earlier"))):
            pass
    assert len(bench.spawned) == 1


@pytest.mark.parametrize(
    "switches", [(), ("--ignore-eof",), ("--ignore-eof", "--ignore-sigterm", "--own-session-child")]
)
async def test_nothing_survives_a_stop_whatever_the_agent_ignores(
    make: Make, switches: tuple[str, ...]
) -> None:
    bench = make(*switches, grace_ms=3_000)
    async with bench.session() as session:
        async for event in session.run_turn(Turn(prompt=bench.script({"run": "sleep 86400"}))):
            if isinstance(event, SessionStarted):
                break
        left = await session.stop()
        assert await session.stop() == ()
    assert TurnStatus.INTERRUPTED in [event.status for event in of(TurnEnd, left)]
    assert bench.living() == ()


async def test_what_is_asked_while_it_stops_is_refused(make: Make) -> None:
    bench = make()
    steps = ({"sleep_ms": 200}, {"ask_approval": "touch made"})
    async with bench.session(on_approval="accept") as session:
        turn = session.run_turn(Turn(prompt=bench.script(*steps)))
        assert isinstance(await anext(aiter(turn)), SessionStarted)
    assert not (bench.workspace / "made").exists()
    assert bench.living() == ()


async def test_cancelling_a_turn_and_leaving_the_context_ends_everything(make: Make) -> None:
    bench = make()
    async with bench.session() as session:
        with anyio.move_on_after(0.5) as limit:
            await bench.turn(session, bench.script({"run": "sleep 86400"}))
        assert limit.cancelled_caught
    assert bench.living() == ()


async def test_streamed_text_counts_as_activity(make: Make) -> None:
    bench = make()
    async with bench.session() as session:
        events = await bench.turn(session, bench.script({"run": "echo out"}))
    assert of(Activity, events)
    assert of(ItemFinished, events)[-1].exit_code == 0


async def test_a_missing_program_is_not_found_with_a_hint(make: Make) -> None:
    bench = make(command="claude-that-is-not-there")
    for attempt in (
        bench.session().__aenter__,
        lambda: bench.backend().preflight(bench.root, run_id=bench.run_id),
    ):
        with pytest.raises(AgentError) as caught:
            await attempt()
        failure = caught.value.failure
        assert (failure.category, failure.blame) == (Category.AGENT_NOT_FOUND, Blame.CONFIG)
        assert "npm install -g @anthropic-ai/claude-code" in str(failure.hint)


async def test_a_missing_shell_is_not_found(make: Make) -> None:
    bench = make()
    context = {"isolation": Isolation(program="/no/such/bwrap")}
    with pytest.raises(AgentError) as caught:
        async with bench.backend(context=context).open(bench.request()):
            pass
    assert caught.value.failure.category is Category.AGENT_NOT_FOUND


async def test_a_workspace_that_is_no_directory_starts_nothing(make: Make, tmp_path: Path) -> None:
    bench = make()
    with pytest.raises(AgentError) as caught:
        async with bench.session({"cwd": tmp_path / "absent"}):
            pass
    assert caught.value.failure.category is Category.INVALID_WORKSPACE_CWD
    assert bench.spawned == []


async def test_the_preflight_passes_and_leaves_nothing(make: Make) -> None:
    bench = make()
    found = await bench.backend().preflight(bench.root, run_id=bench.run_id)
    assert (found.agent, found.version, found.notices) == ("claude", "2.1.197", ())
    assert list((bench.root / ".symphony").iterdir()) == []
    assert bench.living() == ()


@pytest.mark.parametrize(
    ("script", "category", "told"),
    [
        ("echo 1.0.99; false", Category.AGENT_PREFLIGHT, "1.0.99 is too old"),
        ("echo 2.1.197; exit 3", Category.AGENT_PREFLIGHT, "ended with exit code 3"),
        (
            "echo 2.1.197; echo '--dangerously-skip-permissions cannot be used with root' >&2; exit 1",
            Category.AGENT_PREFLIGHT,
            "cannot be used with root",
        ),
    ],
)
async def test_the_preflight_says_what_is_wrong(
    make: Make, script: str, category: Category, told: str
) -> None:
    bench = make(command=f"f() {{ {script.replace('; ', '; ')}; }}; f")
    with pytest.raises(AgentError) as caught:
        await bench.backend().preflight(bench.root, run_id=bench.run_id)
    assert caught.value.failure.category is category
    assert told in caught.value.failure.message
    assert caught.value.failure.hint
    root = "root" in told
    assert ("another user" in str(caught.value.failure.hint)) == root


@pytest.mark.parametrize(
    ("account", "logged_in"),
    [
        ('{"apiProvider": "firstParty", "tokenSource": "none"}', False),
        ('{"apiProvider": "firstParty", "tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY"}', True),
        ('{"apiProvider": "firstParty", "tokenSource": "CLAUDE_CODE_OAUTH_TOKEN"}', True),
        ('{"apiProvider": "bedrock"}', True),
        ("null", True),
    ],
)
async def test_the_preflight_knows_who_is_logged_in(make: Make, account: str, *, logged_in: bool) -> None:
    answer = (
        '{"type":"control_response","response":{"subtype":"success","request_id":"symphony-1",'
        f'"response":{{"account":{account}}}}}}}'
    )
    question = '{"type":"control_request","request_id":"q","request":{"subtype":"x"}}'
    talk = f"echo '{question}'; echo '{answer}'; cat >/dev/null"
    bench = make(command=f"f() {{ case $1 in --version) echo dev;; *) {talk};; esac; }}; f")
    preflight = bench.backend().preflight
    if logged_in:
        found = await preflight(bench.root, run_id=bench.run_id)
        assert found.notices == ("the agent did not tell its version",)
        return
    with pytest.raises(AgentError) as caught:
        await preflight(bench.root, run_id=bench.run_id)
    assert caught.value.failure.category is Category.AGENT_AUTH


async def test_a_newer_version_is_a_notice(make: Make) -> None:
    talk = (
        'echo \'{"type":"control_response","response":{"subtype":"success","request_id":"symphony-1"}}\';'
        " cat >/dev/null"
    )
    bench = make(command=f"f() {{ case $1 in --version) echo 3.0.1;; *) {talk};; esac; }}; f")
    found = await bench.backend().preflight(bench.root, run_id=bench.run_id)
    assert found.notices == ("Claude Code 3.0.1 was not tried with this version; 2.1.197 was",)


async def test_an_opening_that_is_refused_is_a_response_error(make: Make) -> None:
    reply = '{"subtype":"error","request_id":"symphony-1","error":"not today"}'
    bench = make(
        command=f'f() {{ echo \'{{"type":"control_response","response":{reply}}}\'; cat >/dev/null; }}; f'
    )
    with pytest.raises(AgentError) as caught:
        async with bench.session():
            pass
    assert caught.value.failure.category is Category.RESPONSE_ERROR
    assert "initialize was refused: not today" in caught.value.failure.message


async def test_an_end_that_nobody_waits_for_is_no_start(make: Make) -> None:
    bench = make(command='f() { echo \'{"type":"result","subtype":"success"}\'; cat >/dev/null; }; f')
    with pytest.raises(AgentError, match="never started"):
        async with bench.session():
            pass


async def test_an_agent_that_does_not_read_is_not_waited_for(make: Make) -> None:
    talk = '{"type":"control_response","response":{"subtype":"success","request_id":"symphony-1"}}'
    bench = make(command=f"f() {{ echo '{talk}'; sleep 86400; }}; f")
    async with bench.session(read_timeout_ms=4_000) as session:
        with pytest.raises(AgentError, match="has not read its input"):
            await bench.turn(session, "x" * 4_000_000)
    assert bench.living() == ()


async def test_private_homes_and_variables_of_the_workflow_reach_the_agent(
    make: Make, tmp_path: Path
) -> None:
    bench = make()
    bench.environ |= {"MY_REGION": "eu", "OTHER": "x", "CLAUDE_CODE_MAX_RETRIES": "9"}
    prompt = bench.script({"run": "env > ../../env.txt"})
    settings = {"home": "private", "env": ["MY_REGION", "CLAUDE_CODE_MAX_RETRIES"]}
    async with bench.session({"extra_env": {"EXTRA": "1"}}, **settings) as session:
        assert (await bench.turn(session, prompt))[-1] == COMPLETED
    lines = (tmp_path / "env.txt").read_text().splitlines()
    home = tmp_path / "homes/claude"
    assert {f"HOME={home}", f"CLAUDE_CONFIG_DIR={home}", "MY_REGION=eu", "EXTRA=1"} <= set(lines)
    assert {"CLAUDE_CODE_MAX_RETRIES=9", "DISABLE_AUTOUPDATER=1"} <= set(lines)
    assert not any(line.startswith(("OTHER=", "IS_SANDBOX=")) for line in lines)
    assert home.stat().st_mode & 0o777 == 0o700


async def test_a_session_works_inside_an_isolation_with_its_tools(make: Make) -> None:
    require_bubblewrap()
    bench = make(tools=(COMMENT,))
    steps = ({"tool": "board_comment", "arguments": {"text": "from inside"}}, {"run": "echo $IS_SANDBOX > a"})
    context = {"isolation": Isolation(readable=(PLACE,))}
    async with bench.backend(context=context, home="private").open(bench.request()) as session:
        events = await bench.turn(session, bench.script(*steps))
    assert events[-1] == COMPLETED
    assert bench.calls == [("board_comment", {"text": "from inside"})]
    assert (bench.workspace / "a").read_text() == "1\n"


async def test_the_defaults_are_the_documented_posture() -> None:
    settings = ClaudeSettings()
    assert (settings.permission_mode, settings.on_approval) == ("acceptEdits", "decline")
