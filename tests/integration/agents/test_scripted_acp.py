"""The acp backend against a real process that speaks the protocol and has no model."""

from __future__ import annotations

import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from harness.acp import COMMENT, ENVELOPE, AcpBench
from harness.real import require_bubblewrap
from harness.shell import word
from kit.speakers import PLACE, scripted_acp
from symphony.agents.base import AgentError, Turn
from symphony.agents.events import (
    Activity,
    AgentEvent,
    ApprovalAnswered,
    InputRequired,
    ItemFinished,
    ItemStarted,
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
from symphony.domain import Blame, Category
from symphony.scheduler import Thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from symphony.agents.events import AgentEvent

pytestmark = pytest.mark.asyncio

COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)
GRACE_MS = 300


@pytest.fixture
def bench(tmp_path: Path) -> AcpBench:
    home = tmp_path / "home"
    home.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}
    return AcpBench.at(tmp_path, environ, settings={"command": scripted_acp()}, grace_ms=GRACE_MS)


def ended(events: Sequence[AgentEvent]) -> TurnEnd:
    last = events[-1]
    assert isinstance(last, TurnEnd)
    return last


async def refused_start(bench: AcpBench, **settings: Any) -> Any:
    with pytest.raises(AgentError) as caught:
        async with bench.session(**settings):
            pytest.fail("the session must not open")
    assert bench.living() == ()
    return caught.value.failure


async def test_two_turns_run_on_one_process_and_one_session(bench: AcpBench) -> None:
    async with bench.session() as session:
        first = await bench.turn(session, bench.script({"write": "a.txt", "text": "a"}, {"commit": "add a"}))
        second = await bench.turn(session, bench.script({"say": "more"}))
        assert session.pid == bench.spawned[0].pid
    starts = [event for event in (*first, *second) if isinstance(event, SessionStarted)]
    assert len({event.thread_id for event in starts}) == 1
    assert len({event.turn_id for event in starts}) == 2
    assert first[-1] == second[-1] == COMPLETED
    assert bench.git("log", "-1", "--format=%s") == "add a"
    assert any(isinstance(event, Text) and event.message == "more" for event in second)
    assert len(bench.spawned) == 1


async def test_work_is_told_as_items(bench: AcpBench) -> None:
    async with bench.session() as session:
        events = await bench.turn(
            session, bench.script({"write": "a.txt", "text": "a"}, {"run": ["false"], "may_fail": True})
        )
    started = [event for event in events if isinstance(event, ItemStarted)]
    finished = [event for event in events if isinstance(event, ItemFinished)]
    assert [event.kind for event in started] == ["edit", "execute"]
    assert str(bench.workspace / "a.txt") in started[0].arguments
    assert [(event.summary, event.status, event.exit_code) for event in finished] == [
        (f"Edit {bench.workspace}/a.txt", "completed", None),
        ("false", "failed", 1),
    ]


async def test_tokens_count_per_turn_and_fold_into_a_sum(bench: AcpBench) -> None:
    progress = RunStats()
    used = []
    async with bench.session() as session:
        for text in ("one", "two"):
            for event in await bench.turn(session, bench.script({"say": text * 100})):
                progress.add(event)
                used += [event.tokens.total_tokens] if isinstance(event, UsageUpdate) else []
    assert len(used) == 2
    seen = progress.snapshot()
    assert seen.facts.tokens.total_tokens == sum(used) > 0
    assert seen.facts.turn_count == 2


@pytest.mark.parametrize(
    ("switches", "settings"),
    [
        (("--usage", "quota"), {"usage_path": "_meta.quota.token_count"}),
        (("--usage", "usage"), {"usage": "last_call"}),
    ],
)
async def test_tokens_are_found_where_the_workflow_says(
    bench: AcpBench, switches: tuple[str, ...], settings: dict[str, Any]
) -> None:
    async with bench.session(command=scripted_acp(*switches), **settings) as session:
        events = await bench.turn(session, bench.script({"say": "x"}))
    assert [event.absolute for event in events if isinstance(event, UsageUpdate)] == [False]


@pytest.mark.parametrize(
    ("switches", "settings"), [(("--usage", "none"), {}), (("--usage", "usage"), {"usage": "none"})]
)
async def test_an_agent_may_tell_no_tokens(
    bench: AcpBench, switches: tuple[str, ...], settings: dict[str, Any]
) -> None:
    async with bench.session(command=scripted_acp(*switches), **settings) as session:
        events = await bench.turn(session, bench.script({"say": "x"}))
    assert not any(isinstance(event, UsageUpdate) for event in events)
    assert events[-1] == COMPLETED


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"system_text": "prompt"},
        {"system_meta": {"_meta": {"systemPrompt": {"append": "{envelope}"}}}},
        {"profile": "claude-agent-acp"},
    ],
    ids=["fallback", "prompt", "meta", "profile"],
)
async def test_the_envelope_reaches_the_agent_in_every_way(bench: AcpBench, settings: dict[str, Any]) -> None:
    skill = bench.workspace / "greet" / "SKILL.md"
    skill.parent.mkdir()
    skill.write_text("value: hello\n", "utf-8")
    envelope = f"## Available skills\n\nRead {bench.workspace}/<name>/SKILL.md.\n\n- greet: when greeting"
    async with bench.session({"envelope": envelope}, **settings) as session:
        events = await bench.turn(
            session,
            bench.script({"skill": "greet", "value_of": "value"}, {"say": "It is {skill_value}."}),
        )
    assert any(isinstance(event, Text) and event.message == "It is hello." for event in events)


async def test_the_envelope_reaches_an_agent_by_a_file_that_its_configuration_names(bench: AcpBench) -> None:
    config = 'echo "$OPENCODE_CONFIG_CONTENT"'
    show = f"""{config}; {config} | grep -o '/[^"]*envelope.md' | xargs -d '\\n' cat"""
    bench.environ["OPENCODE_CONFIG_CONTENT"] = '{"model": "local/m"}'
    async with bench.session({"envelope": ENVELOPE}, profile="opencode") as session:
        events = await bench.turn(session, bench.script({"run": f"{{ {show}; }} > shown"}))
    assert events[-1] == COMPLETED
    shown = await anyio.Path(bench.workspace / "shown").read_text("utf-8")
    assert '"model": "local/m"' in shown
    assert '"bash": "ask"' in shown
    assert ENVELOPE in shown
    file = shown.partition('"instructions": ["')[2].partition('"')[0]
    assert not await anyio.Path(file).exists()


async def test_tools_of_ours_are_reached_and_need_no_approval(bench: AcpBench) -> None:
    async with bench.session({"tools": (COMMENT,)}) as session:
        events = await bench.turn(
            session, bench.script({"tool": "board_comment", "arguments": {"text": "hi"}})
        )
    assert bench.calls == [("board_comment", {"text": "hi"})]
    assert ToolCalled(name="board_comment", success=True) in events
    assert events[-1] == COMPLETED


@pytest.mark.parametrize("on_approval", ["decline", "accept"])
async def test_an_approval_is_answered_by_policy(bench: AcpBench, on_approval: str) -> None:
    async with bench.session(on_approval=on_approval) as session:
        events = await bench.turn(session, bench.script({"ask_approval": "touch approved"}))
    assert ApprovalAnswered(kind="execute", decision=on_approval) in events
    assert events[-1] == COMPLETED
    assert (bench.workspace / "approved").exists() is (on_approval == "accept")


async def test_a_blocked_approval_ends_the_run_and_runs_nothing(bench: AcpBench) -> None:
    bench.grace_ms = 60_000  # for its answer, also on a busy machine
    async with bench.session(on_approval="block") as session:
        events = await bench.turn(session, bench.script({"ask_approval": "touch approved"}))
        left = await session.stop()
    assert isinstance(events[-1], InputRequired)
    assert events[-1].approval
    assert "touch approved" in events[-1].reason
    assert not (bench.workspace / "approved").exists()
    assert [event.status for event in left if isinstance(event, TurnEnd)] == [TurnStatus.INTERRUPTED]


async def test_a_question_to_a_person_ends_the_run(bench: AcpBench) -> None:
    async with bench.session() as session:
        events = await bench.turn(session, bench.script({"ask_input": "Which colour?"}))
    assert events[-1] == InputRequired(reason="the agent asks: Which colour?", question="Which colour?")


async def test_files_are_not_written_for_an_agent_and_the_turn_goes_on(bench: AcpBench) -> None:
    async with bench.session(command=scripted_acp("--asks-for-files")) as session:
        events = await bench.turn(session, bench.script({"write": "a.txt", "text": "mine"}))
    assert events[-1] == COMPLETED
    assert (bench.workspace / "a.txt").read_text() == "mine"


@pytest.mark.parametrize("by", ["load", "resume"])
async def test_a_session_is_gone_on_with_by_a_later_process(bench: AcpBench, tmp_path: Path, by: str) -> None:
    agent = scripted_acp("--threads", str(tmp_path / "threads"), "--resume-by", by)
    prompt = f"Work.\n\n{bench.script({'say': 'first'}).partition('Work.')[2]}"
    async with bench.session(command=agent) as session:
        first = await bench.turn(session, prompt)
    thread_id = next(event.thread_id for event in first if isinstance(event, SessionStarted))
    changes = {"resume": Thread(thread_id=thread_id), "envelope": ENVELOPE}
    async with bench.session(changes, command=agent) as session:
        assert session.resume_refused is None
        second = await bench.turn(session, "Go on.")
    told = [event.message for event in second if isinstance(event, Text)]
    assert not any("earlier process" in text for text in told)
    assert any("no further turn" in text for text in told)
    assert next(event.thread_id for event in second if isinstance(event, SessionStarted)) == thread_id


@pytest.mark.parametrize("by", ["broken-load", "none"])
async def test_a_session_that_cannot_be_gone_on_with_is_a_new_one(bench: AcpBench, by: str) -> None:
    changes = {"resume": Thread(thread_id="gone"), "envelope": ENVELOPE}
    async with bench.session(changes, command=scripted_acp("--resume-by", by)) as session:
        refusal = session.resume_refused
        events = await bench.turn(session, bench.script({"say": "anew"}))
    assert refusal is not None
    assert refusal.category is Category.RESPONSE_ERROR
    assert events[-1] == COMPLETED


async def test_mode_and_model_are_chosen_from_what_is_offered(bench: AcpBench) -> None:
    async with bench.session(mode="careful", model="large") as session:
        events = await bench.turn(session, bench.script({"say": "x"}))
    assert events[-1] == COMPLETED


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"model": "larger"}, "did you mean large? it offers small, large"),
        ({"mode": "bold"}, "it offers default"),
    ],
)
async def test_what_is_not_offered_is_said_at_the_start(
    bench: AcpBench, settings: dict[str, Any], hint: str
) -> None:
    failure = await refused_start(bench, **settings)
    assert failure.blame is Blame.CONFIG
    assert not failure.retryable
    assert hint in failure.hint


async def test_another_version_of_the_protocol_is_refused(bench: AcpBench) -> None:
    failure = await refused_start(bench, command=scripted_acp("--protocol-version", "2"))
    assert failure.category is Category.RESPONSE_ERROR
    assert "version 2 of the protocol" in failure.message


async def test_a_missing_login_is_told_with_what_to_do(bench: AcpBench) -> None:
    failure = await refused_start(bench, command=scripted_acp("--no-login"), profile="gemini")
    assert failure.category is Category.AGENT_AUTH
    assert "GEMINI_API_KEY" in failure.hint


async def test_an_agent_that_was_updated_meanwhile_is_noticed(bench: AcpBench) -> None:
    version = anyio.Path(bench.top / "version")
    backend = bench.backend(command=f'{scripted_acp()} --agent-version "$(cat {word(version)})"')
    await version.write_text("1.0", "utf-8")
    found = await backend.preflight(bench.root, run_id=bench.run_id)
    assert found.version == "1.0"
    await version.write_text("1.1", "utf-8")
    async with backend.open(bench.request()) as session:
        events = await bench.turn(session, bench.script({"say": "x"}))
    assert any(isinstance(event, LogNotice) and "1.1 now; " in event.message for event in events)


@pytest.mark.parametrize("method", ["initialize", "thread/start"])
async def test_a_start_without_an_answer_is_a_response_timeout(bench: AcpBench, method: str) -> None:
    failure = await refused_start(
        bench,
        command=scripted_acp("--silent-after", method),
        read_timeout_ms=100,
        start_timeout_ms=1_500,
    )
    assert failure.category is Category.RESPONSE_TIMEOUT


async def test_silence_in_a_turn_is_a_turn_timeout(bench: AcpBench) -> None:
    agent = scripted_acp("--silent-after", "turn/started")
    async with bench.session(command=agent, turn_timeout_ms=200) as session:
        with pytest.raises(AgentError) as caught:
            await bench.turn(session, bench.script({"say": "hi"}))
    assert caught.value.failure.category is Category.TURN_TIMEOUT
    assert bench.living() == ()


async def test_garbage_is_told_and_the_turn_goes_on(bench: AcpBench) -> None:
    async with bench.session(command=scripted_acp("--garbage", "--split-lines")) as session:
        events = await bench.turn(session, bench.script({"say": "grüße, 世界"}))
    assert any(isinstance(event, Malformed) for event in events)
    assert LogNotice(level="info", message="this line is no protocol") in events
    assert any(isinstance(event, Text) and event.message == "grüße, 世界" for event in events)
    assert events[-1] == COMPLETED


async def test_huge_lines_are_read_or_malformed(bench: AcpBench) -> None:
    async with bench.session(command=scripted_acp("--huge-line", str(24 * 1024 * 1024))) as session:
        events = await bench.turn(session, bench.script({"say": "hi"}))
    assert any(isinstance(event, Malformed) for event in events)
    assert events[-1] == COMPLETED


async def test_a_request_that_nobody_knows_is_refused(bench: AcpBench) -> None:
    async with bench.session(command=scripted_acp("--unknown-request")) as session:
        events = await bench.turn(session, bench.script({"say": "hi"}))
    assert any(isinstance(event, LogNotice) and event.message.endswith("was refused") for event in events)
    assert events[-1] == COMPLETED


async def test_the_end_of_the_process_in_a_turn_is_port_exit(bench: AcpBench) -> None:
    async with bench.session(command=scripted_acp("--exit-on", "turn/started:3")) as session:
        with pytest.raises(AgentError) as caught:
            await bench.turn(session, bench.script({"say": "hi"}))
    assert caught.value.failure.category is Category.PORT_EXIT


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("429 Too Many Requests", Category.AGENT_RATE_LIMITED),
        ("You exceeded your current quota", Category.AGENT_USAGE_LIMIT),
        ("401 Unauthorized", Category.AGENT_AUTH),
        ("the prompt is too long", Category.AGENT_CONTEXT_FULL),
        ("something broke", Category.TURN_FAILED),
    ],
)
async def test_an_error_as_the_answer_to_a_prompt_has_a_class(
    bench: AcpBench, text: str, category: Category
) -> None:
    async with bench.session(command=scripted_acp("--refuse-prompt", f"'{text}'")) as session:
        end = ended(await bench.turn(session, "Work."))
    assert end.failure is not None
    assert (end.status, end.failure.category) == (TurnStatus.FAILED, category)
    assert text in end.failure.message


async def test_a_failed_turn_carries_the_agents_words(bench: AcpBench) -> None:
    async with bench.session() as session:
        end = ended(await bench.turn(session, bench.script({"fail": "cannot go on"})))
    assert end.failure is not None
    assert end.failure.category is Category.TURN_FAILED
    assert "cannot go on" in end.failure.message


async def test_streamed_words_count_as_activity(bench: AcpBench) -> None:
    async with bench.session() as session:
        events = await bench.turn(session, bench.script({"say": "hello"}))
    assert sum(event.count for event in events if isinstance(event, Activity)) > 0


async def test_stopping_a_turn_cancels_it_and_leaves_nothing(bench: AcpBench) -> None:
    bench.grace_ms = 60_000  # for its answer, also on a busy machine
    async with bench.session() as session:
        prompt = bench.script({"run": "touch began; sleep 1000"})
        async with aclosing(session.run_turn(Turn(prompt=prompt, title="t"))) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, ItemStarted):
                    break
        while not await anyio.Path(bench.workspace / "began").exists():  # noqa: ASYNC110 - another process
            await anyio.sleep(0.01)
        left = await session.stop()
    assert [event.status for event in left if isinstance(event, TurnEnd)] == [TurnStatus.INTERRUPTED]
    assert any(isinstance(event, UsageUpdate) for event in left)
    assert bench.living() == ()


async def test_an_agent_that_will_not_end_is_ended(bench: AcpBench) -> None:
    agent = scripted_acp("--ignore-eof", "--ignore-sigterm", "--own-session-child")
    async with bench.session(command=agent) as session:
        assert len(bench.living()) > 1
        await session.stop()
    assert bench.living() == ()


async def test_neither_secrets_nor_keys_of_other_agents_reach_a_shell(bench: AcpBench) -> None:
    bench.environ.update(
        LINEAR_API_KEY="tracker-secret",
        ANTHROPIC_API_KEY="of-claude",
        GEMINI_API_KEY="of-gemini",
        MY_KEY="mine",
    )
    profile = anyio.Path(bench.environ["HOME"]) / ".bash_profile"
    await profile.write_text("export LINEAR_API_KEY=profile-secret\n", "utf-8")
    bench.secret_names = frozenset({"LINEAR_API_KEY"})
    settings: dict[str, Any] = {"profile": "gemini", "env": ("MY_KEY",), "env_values": {"FIXED": "value"}}
    async with bench.session(**settings) as session:
        await bench.turn(session, bench.script({"run": "env > shown"}))
    shown = await anyio.Path(bench.workspace / "shown").read_text("utf-8")
    for hidden in ("tracker-secret", "profile-secret", "of-claude"):
        assert hidden not in shown
    for passed in ("of-gemini", "MY_KEY=mine", "FIXED=value", "GEMINI_CLI_NO_RELAUNCH=true"):
        assert passed in shown


async def test_a_private_home_is_furnished_and_used(bench: AcpBench) -> None:
    async with bench.session(profile="gemini", home="private") as session:
        await bench.turn(session, bench.script({"run": "env > shown"}))
    home = bench.top / "homes" / "acp"
    shown = await anyio.Path(bench.workspace / "shown").read_text("utf-8")
    assert f"HOME={home}\n" in shown
    assert f"XDG_CONFIG_HOME={home}/.config\n" in shown
    settings = home / ".gemini" / "settings.json"
    assert "gemini-api-key" in settings.read_text("utf-8")
    assert bench.backend(profile="gemini", home="private").skill_roots.host[0] == home / ".gemini/skills"
    settings.write_text("{}", "utf-8")
    async with bench.session(profile="gemini", home="private"):
        assert settings.read_text("utf-8") == "{}"


async def test_a_private_home_that_cannot_be_furnished_is_told(bench: AcpBench) -> None:
    home = bench.top / "homes" / "acp"
    home.mkdir(parents=True)
    (home / ".gemini").write_text("in the way", "utf-8")
    failure = await refused_start(bench, profile="gemini", home="private")
    assert failure.category is Category.STATE_DIRECTORY
    assert ".gemini/settings.json" in failure.message


async def test_the_check_opens_a_session_and_leaves_nothing(bench: AcpBench) -> None:
    found = await bench.backend().preflight(bench.root, run_id=bench.run_id)
    assert (found.agent, found.notices) == ("symphony-scripted-agent", ())
    assert bench.living() == ()
    assert list((bench.root / ".symphony").iterdir()) == []


async def test_the_check_says_that_sessions_begin_anew(bench: AcpBench) -> None:
    backend = bench.backend(command=scripted_acp("--resume-by", "none"))
    found = await backend.preflight(bench.root, run_id=bench.run_id)
    assert found.notices == (
        "symphony-scripted-agent cannot continue earlier sessions: every run starts a new one",
    )


@pytest.mark.parametrize(
    ("settings", "category", "words"),
    [
        ({"command": "symphony-no-such-agent"}, Category.AGENT_NOT_FOUND, "symphony-no-such-agent"),
        ({"command": scripted_acp("--no-login")}, Category.AGENT_AUTH, "Authentication required"),
        ({"command": scripted_acp("--protocol-version", "3")}, Category.AGENT_PREFLIGHT, "version 3"),
        ({"model": "huge"}, Category.AGENT_PREFLIGHT, "offers no model 'huge'"),
        (
            {"command": "tail -f /dev/null", "start_timeout_ms": 300},
            Category.AGENT_PREFLIGHT,
            "no answer to initialize",
        ),
        ({"command": "true"}, Category.AGENT_PREFLIGHT, "ended with exit code 0"),
    ],
)
async def test_the_check_fails_with_a_hint(
    bench: AcpBench, settings: dict[str, Any], category: Category, words: str
) -> None:
    backend = bench.backend(**{"read_timeout_ms": 30_000, "start_timeout_ms": 30_000, **settings})
    with pytest.raises(AgentError) as caught:
        await backend.preflight(bench.root, run_id=bench.run_id)
    failure = caught.value.failure
    assert failure.category is category
    assert words in failure.message
    assert failure.hint
    assert bench.living() == ()


async def test_an_enclosed_agent_reaches_its_tools_and_its_envelope(bench: AcpBench) -> None:
    require_bubblewrap()
    held = Isolation(hidden=(bench.top / "homes",), readable=(PLACE,))
    changes = {"tools": (COMMENT,), "envelope": ENVELOPE}
    steps = (
        {"tool": "board_comment", "arguments": {"text": "hi"}},
        {"run": 'cat "$(echo "$OPENCODE_CONFIG_CONTENT" | grep -o \'/[^"]*envelope.md\')" > shown'},
        {"run": f"touch {word(bench.top)}/outside", "may_fail": True},
    )
    context = {"isolation": held}
    backend = bench.backend(context=context, profile="opencode", home="private")
    async with backend.open(bench.request(**changes)) as session:
        events = await bench.turn(session, bench.script(*steps))
    assert events[-1] == COMPLETED
    assert bench.calls == [("board_comment", {"text": "hi"})]
    assert await anyio.Path(bench.workspace / "shown").read_text("utf-8") == f"{ENVELOPE}\n"
    assert not (bench.top / "outside").exists()
