from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import pytest

from harness.real import require_program
from integration.agents.conftest import RealBench
from kit.model_server import (
    Cut,
    Hang,
    context_full,
    edit_and_commit,
    patch,
    rate_limit_headers,
    rate_limited,
    say,
    server_error,
    shell,
    tool,
    unauthorized,
    usage_limit,
)
from symphony.agents.base import AgentError, Envelope, Turn
from symphony.agents.codex.session import CodexSession
from symphony.agents.events import (
    AgentEvent,
    ApprovalAnswered,
    InputRequired,
    ItemFinished,
    ItemStarted,
    RateLimits,
    SessionStarted,
    Text,
    ToolCalled,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.agents.run_stats import RunStats
from symphony.domain import Category, Tokens
from symphony.scheduler import Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.agents.conftest import RealBench
    from symphony.agents.codex.session import CodexSession

    Make = Callable[..., RealBench]

pytestmark = [pytest.mark.asyncio, pytest.mark.real_codex]

ENVELOPE = "## Available skills\n\n- greet — when greeting"
COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)


def texts(node: object) -> list[str]:
    """Every string of a request body."""
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [text for child in children for text in texts(child)]


def tool_outputs(bench: RealBench) -> list[str]:
    body = bench.server.requests[-1].body
    return [json.dumps(item) for item in body["input"] if str(item.get("type")).endswith("_output")]


async def git(bench: RealBench, *arguments: str) -> str:
    done = await bench.host.run(
        ["git", *arguments], cwd=bench.workspace, env=bench.environ, timeout_ms=60_000
    )
    return done.stdout.decode().strip()


async def test_a_file_is_edited_and_committed_and_the_envelope_arrives_once(real: Make) -> None:
    bench = real({"work": edit_and_commit("src/a.txt", "hello\n", "add a")})
    bench.envelope = ENVELOPE
    async with bench.session(bench.command) as session:
        events = await bench.turn(session, "[[work]] please")
    assert events[-1] == COMPLETED
    assert await git(bench, "log", "-1", "--format=%s") == "add a"
    assert await git(bench, "status", "--porcelain") == ""
    assert (bench.workspace / "src" / "a.txt").read_text() == "hello\n"
    finished = [event for event in events if isinstance(event, ItemFinished)]
    assert [(event.kind, event.exit_code) for event in finished] == [("commandExecution", 0)] * 2
    for request in bench.server.requests:
        found = [item for item in request.body["input"] if any(ENVELOPE in text for text in texts(item))]
        assert [item["role"] for item in found] == ["developer"]
        assert sum(text.count(ENVELOPE) for text in texts(request.body)) == 1
    assert bench.living() == ()


async def test_a_long_text_of_a_phase_comes_whole_and_in_order(real: Make) -> None:
    """Codex cuts long context, and does not repeat context that it has been given with the turn before."""
    bench = real({"work": (say("Ok."),)})
    rules = [f"Rule {number} is about änderungen and tests." for number in range(300)]
    async with bench.session(bench.command) as session:
        for phase in ("PLAN", "TEST", "REVIEW", "TEST"):
            envelope = Envelope(phase=phase, instructions="\n".join(rules))
            turn = Turn(prompt="[[work]]", envelope=envelope)
            assert [event async for event in session.run_turn(turn)][-1] == COMPLETED
    for request in bench.server.requests[1:]:
        items = request.body["input"]
        answered = max(n for n, item in enumerate(items) if item.get("role") == "assistant")
        told = "\n".join(text for item in items[answered + 1 :] for text in texts(item))
        assert re.findall(r"Rule \d+ is about änderungen and tests\.", told) == rules


async def test_another_phase_comes_once_as_a_developer_message(real: Make) -> None:
    bench = real({"work": (say("Ok."),)})
    bench.envelope = "PLAN TEXT"
    async with bench.session(bench.command) as session:
        for text in ("PLAN TEXT", "TEST TEXT", "TEST TEXT"):
            turn = Turn(prompt="[[work]]", envelope=Envelope(instructions=text))
            assert [event async for event in session.run_turn(turn)][-1] == COMPLETED
    first, second, third = (request.body for request in bench.server.requests)
    assert not any("TEST TEXT" in text for text in texts(first))
    for body in (second, third):
        found = [item for item in body["input"] if any("TEST TEXT" in text for text in texts(item))]
        assert [item["role"] for item in found] == ["developer"]
        assert sum(text.count("TEST TEXT") for text in texts(body)) == 1
        assert sum(text.count("PLAN TEXT") for text in texts(body)) == 1
    positions = [number for number, item in enumerate(second["input"]) if "TEST TEXT" in str(item)]
    assert positions[0] > max(n for n, item in enumerate(second["input"]) if item.get("role") == "assistant")


async def test_a_patch_is_applied(real: Make) -> None:
    bench = real({"work": (patch("*** Add File: b.txt\n+there"), say("Done."))})
    async with bench.session(bench.command) as session:
        events = await bench.turn(session, "[[work]]")
    assert (bench.workspace / "b.txt").read_text() == "there\n"
    assert any(isinstance(event, ItemStarted) and event.summary == "b.txt" for event in events)
    assert events[-1] == COMPLETED


async def test_totals_are_absolute_over_turns_and_limits_are_reported(real: Make) -> None:
    headers = rate_limit_headers(primary_used_percent=42.5)
    bench = real({"one": (say("First."),), "two": (say("Second."),)}, headers=headers)
    async with bench.session(bench.command) as session:
        first = await bench.turn(session, "[[one]]")
        second = await bench.turn(session, "[[two]]")
    totals = [event.tokens for event in (*first, *second) if isinstance(event, UsageUpdate)]
    assert totals == [Tokens(100, 10, 110, 60, 0, 2), Tokens(200, 20, 220, 120, 0, 4)]
    assert Text(message="First.") in first
    limits = [event.payload for event in first if isinstance(event, RateLimits)]
    assert limits[-1]["primary"]["usedPercent"] == 43
    starts = [event for event in (*first, *second) if isinstance(event, SessionStarted)]
    assert starts[0].thread_id == starts[1].thread_id
    assert starts[0].turn_id != starts[1].turn_id
    stats = RunStats()
    for event in (*first, *second):
        stats.add(event)
    seen = stats.snapshot()
    assert (seen.facts.model, seen.facts.tokens) == (bench.server.requests[-1].body["model"], totals[-1])
    assert (seen.facts.cost_usd, seen.facts.unpriced_tokens) == (None, 220), "Codex reports no cost"


async def test_a_tool_of_ours_makes_the_round_trip(real: Make) -> None:
    bench = real({"work": (tool("board_comment", {"text": "hi"}), say("Done."))})
    async with bench.session(bench.command) as session:
        events = await bench.turn(session, "[[work]]")
    assert bench.calls == [("board_comment", {"text": "hi"})]
    assert ToolCalled(name="board_comment", success=True) in events
    assert ItemFinished(kind="dynamicToolCall", summary="board_comment", status="completed") in events
    assert any("echo" in output for output in tool_outputs(bench))


async def test_neither_secrets_nor_the_model_key_are_visible_to_a_tool(real: Make) -> None:
    bench = real({"work": (shell("env; cat /proc/$PPID/environ | tr '\\0' '\\n'"), say("Done."))})
    profile = "export LINEAR_API_KEY=profile-secret FROM_PROFILE=1\n"
    await anyio.Path(bench.home.path / ".bash_profile").write_text(profile)
    bench.environ.update(LINEAR_API_KEY="daemon-secret", GITHUB_TOKEN="another-secret")
    bench.secret_names = frozenset({"LINEAR_API_KEY"})
    async with bench.session(bench.command) as session:
        await bench.turn(session, "[[work]]")
    shown = "".join(tool_outputs(bench))
    assert "FROM_PROFILE=1" in shown
    assert f"SYMPHONY_RUN_ID={bench.request().run_id}" in shown
    for secret in ("profile-secret", "daemon-secret", "another-secret", "not-a-secret"):
        assert secret not in shown


async def test_siblings_temp_and_network_are_out_of_reach(real: Make) -> None:
    bench = real({})
    sibling = bench.workspace.parent / "MT-2"
    sibling.mkdir()
    port = bench.server.base_url.split(":")[2].split("/")[0]
    attempts = [
        f"touch {sibling}/x",
        "touch /tmp/symphony-x",
        'touch "$TMPDIR/x"',
        f"exec 3<>/dev/tcp/127.0.0.1/{port}",
    ]
    command = "; ".join(f"(bash -c {json.dumps(each)} && echo OPEN) 2>/dev/null" for each in attempts)
    bench.server._scenarios["work"] = (shell(f"{command}; echo tried"), say("Done."))
    async with bench.session(bench.command) as session:
        await bench.turn(session, "[[work]]")
    shown = "".join(tool_outputs(bench))
    assert "tried" in shown
    assert "OPEN" not in shown


@pytest.mark.parametrize(
    ("step", "category"),
    [
        (unauthorized(), Category.AGENT_AUTH),
        (rate_limited(), Category.AGENT_RATE_LIMITED),
        (usage_limit(), Category.AGENT_USAGE_LIMIT),
        (context_full(), Category.AGENT_CONTEXT_FULL),
        (server_error(), Category.AGENT_UNAVAILABLE),
        (Cut(), Category.AGENT_UNAVAILABLE),
    ],
    ids=["401", "429", "usage limit", "context", "500", "cut"],
)
async def test_errors_of_the_model_become_categories(real: Make, step: Any, category: Category) -> None:
    bench = real({"work": (step,)})
    async with bench.session(bench.command) as session:
        events = await bench.turn(session, "[[work]]")
    ended = events[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.status is TurnStatus.FAILED
    assert ended.failure is not None
    assert ended.failure.category is category
    assert ended.failure.retryable is (category is not Category.AGENT_AUTH)


async def test_a_missing_key_is_a_matter_of_login(real: Make) -> None:
    bench = real({"work": (say("Done."),)})
    del bench.environ["LOCAL_KEY"]
    async with bench.session(bench.command) as session:
        ended = (await bench.turn(session, "[[work]]"))[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.failure is not None
    assert ended.failure.category is Category.AGENT_AUTH


async def test_a_model_that_cannot_be_reached_ends_the_turn_after_the_stall_limit(real: Make) -> None:
    bench = real({})
    config = bench.home.path / "config.toml"
    text = await anyio.Path(config).read_text()
    await anyio.Path(config).write_text(text.replace(bench.server.base_url, "http://127.0.0.1:9/v1"))
    with anyio.fail_after(60):
        async with bench.session(bench.command, stall_timeout_ms=1_500) as session:
            ended = (await bench.turn(session, "hello"))[-1]
    assert isinstance(ended, TurnEnd)
    assert ended.failure is not None
    assert ended.failure.category is Category.AGENT_UNAVAILABLE
    assert ended.failure.retryable
    assert "Reconnecting" in ended.failure.message


async def test_an_approval_is_declined_and_the_turn_goes_on(real: Make) -> None:
    asked = shell("touch outside", sandbox_permissions="require_escalated", justification="because")
    bench = real({"work": (asked, say("Done."))})
    async with bench.session(bench.command, approval_policy="on-request") as session:
        events = await bench.turn(session, "[[work]]")
    assert ApprovalAnswered(kind="commandExecution", decision="decline") in events
    assert events[-1] == COMPLETED
    assert not (bench.workspace / "outside").exists()


async def test_an_approval_blocks_where_that_is_configured(real: Make) -> None:
    asked = shell("touch outside", sandbox_permissions="require_escalated", justification="because")
    bench = real({"work": (asked, say("Done."))})
    async with bench.session(bench.command, approval_policy="on-request", on_approval="block") as session:
        events = await bench.turn(session, "[[work]]")
        left = await session.stop()
    assert isinstance(events[-1], InputRequired)
    assert events[-1].approval
    assert any(isinstance(event, TurnEnd) and event.status is TurnStatus.INTERRUPTED for event in left)


@pytest.mark.conformance("A-17")
@pytest.mark.parametrize("sandbox", ["workspace-write", "danger-full-access"])
async def test_stop_leaves_no_process(real: Make, sandbox: str) -> None:
    bench = real({"work": (shell("sleep 86400 & setsid -f sleep 86400; sleep 86400"), say("Done."))})
    async with bench.session(bench.command, thread_sandbox=sandbox) as session:
        async for event in session.run_turn(Turn(prompt="[[work]]", title="MT-1: wait")):
            if isinstance(event, ItemStarted) and event.kind == "commandExecution":
                break
        await anyio.to_thread.run_sync(bench.server.wait_for, 1)
        family = bench.living()
        assert family
        left = await session.stop()
    assert any(isinstance(event, TurnEnd) and event.status is TurnStatus.INTERRUPTED for event in left)
    assert bench.living() == ()
    assert not any(bench.host.is_alive(identity) for identity in family)


async def test_a_turn_that_hangs_at_the_model_is_silent_and_ends(real: Make) -> None:
    bench = real({"work": (Hang(after_start=True),)})
    async with bench.session(bench.command, turn_timeout_ms=2_000) as session:
        with pytest.raises(AgentError) as caught:
            await bench.turn(session, "[[work]]")
    assert caught.value.failure.category is Category.TURN_TIMEOUT
    assert bench.living() == ()


async def test_the_preflight_passes_and_changes_nothing(real: Make) -> None:
    bench = real({})
    before = await anyio.Path(bench.home.path / "config.toml").read_text()
    found = await bench.backend(bench.command).preflight(bench.workspace.parent, run_id=uuid4().hex)
    assert found.agent == "codex"
    assert found.version[0].isdigit()
    assert await anyio.Path(bench.home.path / "config.toml").read_text() == before
    assert bench.server.requests == ()


async def test_the_preflight_refuses_without_a_login(real: Make) -> None:
    bench = real({})
    await anyio.Path(bench.home.path / "config.toml").write_text("")
    with pytest.raises(AgentError) as caught:
        await bench.backend(bench.command).preflight(bench.workspace.parent, run_id=uuid4().hex)
    assert caught.value.failure.category is Category.AGENT_AUTH


async def test_the_preflight_refuses_a_home_below_the_temp_directory(real: Make) -> None:
    bench = real({})
    bench.environ["TMPDIR"] = str(bench.home.path.parent)
    with pytest.raises(AgentError) as caught:
        await bench.backend(bench.command).preflight(bench.workspace.parent, run_id=uuid4().hex)
    assert caught.value.failure.category is Category.AGENT_PREFLIGHT
    assert "CODEX_HOME" in str(caught.value.failure.hint)


async def test_the_preflight_refuses_without_user_namespaces(real: Make) -> None:
    bench = real({})
    require_program("unshare", "Debian: util-linux")
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces"
    agent = f"unshare --user --map-root-user bash -c '{forbid} && exec {bench.command}'"
    probe = await bench.host.run(["unshare", "--user", "true"], env=bench.environ, timeout_ms=60_000)
    if probe.exit_code != 0:
        pytest.skip("this machine has no user namespaces to take away")
    with pytest.raises(AgentError) as caught:
        await bench.backend(agent).preflight(bench.workspace.parent, run_id=uuid4().hex)
    failure = caught.value.failure
    assert failure.category is Category.AGENT_PREFLIGHT
    assert failure.hint is not None
    assert "user namespaces" in failure.hint


@pytest.mark.conformance("A-3")
async def test_an_explicit_sandbox_policy_is_passed_unchanged(real: Make) -> None:
    bench = real({"work": (shell("touch made; echo tried"), say("Done."))})
    async with bench.session(bench.command, turn_sandbox_policy={"type": "readOnly"}) as session:
        await bench.turn(session, "[[work]]")
    assert "tried" in "".join(tool_outputs(bench))
    assert not (bench.workspace / "made").exists()


async def test_the_workspace_may_be_named_through_a_link(real: Make) -> None:
    bench = real({"work": edit_and_commit("a.txt", "a", "add a")})
    link = bench.workspace.parent / "link"
    link.symlink_to(bench.workspace)
    request = replace(bench.request(), cwd=link)
    async with bench.backend(bench.command).open(request) as session:
        events = await bench.turn(session, "[[work]]")
    assert events[-1] == COMPLETED
    assert await git(bench, "log", "-1", "--format=%s") == "add a"


async def test_a_thread_is_gone_on_with_after_its_process_was_killed_in_mid_turn(real: Make) -> None:
    bench = real({"work": (shell("echo first"), Hang()), "on": (say("I went on."),)})
    bench.envelope = ENVELOPE
    async with bench.session(bench.command) as session:
        before = await _until_it_hangs(session)
        await bench.host.end(bench.living(), grace_ms=0)
    mark = [event for event in before if isinstance(event, UsageUpdate)][-1]
    started = next(event for event in before if isinstance(event, SessionStarted))
    thread = Thread(thread_id=started.thread_id, tokens=mark.tokens)
    bench.envelope = f"{ENVELOPE}\n- part — when parting"
    async with bench.backend(bench.command).open(bench.request(resume=thread)) as session:
        assert session.resume_refused is None
        after = await bench.turn(session, "[[on]] go on")
    assert after[-1] == COMPLETED
    assert next(event for event in after if isinstance(event, SessionStarted)).thread_id == thread.thread_id
    totals = [event.tokens.total_tokens for event in after if isinstance(event, UsageUpdate)]
    assert totals[0] == mark.tokens.total_tokens, "the old totals are told once more"
    assert totals[-1] == mark.tokens.total_tokens + 110, "and one answer of the model is added"
    progress = RunStats()
    progress.resume_from(mark.tokens)
    for event in after:
        progress.add(event)
    assert progress.facts.tokens.total_tokens == 110
    last = bench.server.requests[-1].body["input"]
    assert any("first" in text for text in texts(last)), "the model knows what it did before"
    assert sum(text.count("when parting") for text in texts(last)) == 1
    assert [item["role"] for item in last if any("when parting" in text for text in texts(item))] == [
        "developer"
    ]


async def _until_it_hangs(session: CodexSession) -> list[AgentEvent]:
    """What happened in a turn until the model was asked a second time and does not answer."""
    events: list[AgentEvent] = []
    async for event in session.run_turn(Turn(prompt="[[work]] please", title="MT-1: try")):
        events.append(event)
        if isinstance(event, UsageUpdate):
            return events
    raise AssertionError(events)


async def test_a_thread_that_nobody_knows_is_a_new_one(real: Make) -> None:
    bench = real({"work": (say("Done."),)})
    unknown = Thread(thread_id=str(uuid4()))
    async with bench.backend(bench.command).open(bench.request(resume=unknown)) as session:
        assert session.resume_refused is not None
        assert "no rollout found" in session.resume_refused.message
        events = await bench.turn(session, "[[work]]")
    assert events[-1] == COMPLETED
