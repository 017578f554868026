"""The session against an agent in memory, where time and every byte are in our hands."""

import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from harness.sessions import briefed
from kit.virtual_time import in_virtual_time, sleep_as_a_machine
from symphony.agents.base import (
    AgentError,
    Briefing,
    Envelope,
    ListAgentSkills,
    SessionRequest,
    Turn,
    replacing_text,
)
from symphony.agents.codex.session import CodexSession
from symphony.agents.event_queue import MAX_QUEUED_EVENTS, EventQueue
from symphony.agents.events import (
    Activity,
    AgentEvent,
    ContextCompacted,
    LogNotice,
    Malformed,
    SessionStarted,
    Text,
    ToolCalled,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.agents.process import AgentProcess, Launch
from symphony.agents.run_stats import RunStats
from symphony.config import CodexSettings
from symphony.domain import Blame, Category, Failure, SymphonyError, Tokens, ToolResult, ToolSpec
from symphony.processes.base import Completed, HostProcess, Identity
from symphony.scheduler import Thread

pytestmark = pytest.mark.asyncio

ME = Identity(boot_id="b", pid=4242, started=1.0)
COMPLETED = TurnEnd(status=TurnStatus.COMPLETED)
IDS = {"threadId": "th", "turnId": "tu"}
Frame = dict[str, Any]
Reply = Iterable[Frame | bytes]
Agent = Callable[[Frame], Reply]


class MemoryChild:
    """A child whose stdout is what `agent` says to each line it is sent; closing stdin ends it."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.sent: list[Frame] = []
        self.signals: list[int] = []
        self.deaf = False
        self.exit_code: int | None = None
        self.stderr_start = 0
        self._waiting: deque[bytes] = deque()
        self._news = anyio.Event()
        self._ended = anyio.Event()

    @property
    def identity(self) -> Identity:
        return ME

    def say(self, *frames: Frame | bytes) -> None:
        self._waiting.extend(
            frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n" for frame in frames
        )
        self._news.set()

    def end(self, code: int) -> None:
        self.exit_code = code
        self._ended.set()
        self._news.set()

    async def receive(self, max_bytes: int = 262_144) -> bytes:
        del max_bytes
        while not self._waiting:
            if self.exit_code is not None:
                return b""
            self._news = anyio.Event()
            await self._news.wait()
        return self._waiting.popleft()

    async def send(self, data: bytes) -> None:
        if self.deaf:
            await anyio.sleep_forever()
        if self.exit_code is not None:
            raise BrokenPipeError
        for line in data.splitlines():
            frame = json.loads(line)
            self.sent.append(frame)
            self.say(*self.agent(frame))

    async def close_stdin(self) -> None:
        if self.exit_code is None:
            self.end(0)

    async def wait(self) -> int:
        await self._ended.wait()
        return self.exit_code or 0

    def descendants(self) -> tuple[Identity, ...]:
        return (ME,)

    def left_only_orphans(self) -> bool:
        return False

    def signal(self, number: int, targets: Sequence[Identity]) -> None:
        del targets
        self.signals.append(number)


class MemoryHost:
    """A host with one child."""

    name = "memory"

    def __init__(self, child: MemoryChild) -> None:
        self.child = child

    async def run(self, argv: Sequence[str], **_: Any) -> Completed:
        raise FileNotFoundError(argv[0])

    async def spawn(self, argv: Sequence[str], **_: Any) -> HostProcess:
        del argv
        return self.child

    def identify(self, pid: int) -> Identity | None:
        del pid
        return None

    def lineage(self, pid: int) -> tuple[Identity, ...]:
        del pid
        return ()

    def find_survivors(self) -> tuple[Identity, ...]:
        return ()

    def find_marked(self, run_ids: Sequence[str]) -> tuple[Identity, ...]:
        del run_ids
        return ()

    def is_alive(self, identity: Identity) -> bool:
        del identity
        return self.child.exit_code is None

    def find_running_daemon(self) -> Identity | None:
        return None

    async def end_orphans(self) -> int:
        return 0

    async def end(self, targets: Sequence[Identity], *, grace_ms: int) -> tuple[Identity, ...]:
        del targets, grace_ms
        return ()


def result(frame: Frame, **value: Any) -> Frame:
    return {"id": frame["id"], "result": value}


def told(method: str, **params: Any) -> Frame:
    return {"method": method, "params": params}


def ended(status: str = "completed", *, turn: str = "tu", thread: str = "th", **more: Any) -> Frame:
    return told("turn/completed", threadId=thread, turn={"id": turn, "status": status, **more})


def well_behaved(*turn: Frame | bytes) -> Agent:
    """An agent that starts as it should and says `turn` when a turn starts."""

    def agent(frame: Frame) -> Reply:
        match frame.get("method"):
            case "initialize":
                return [result(frame, userAgent="x/1")]
            case "thread/start":
                return [result(frame, thread={"id": "th"})]
            case "turn/start":
                return [result(frame, turn={"id": "tu", "status": "inProgress"}), *turn]
            case "turn/interrupt":
                return [result(frame), ended("interrupted")]
            case _:
                return []

    return agent


async def no_tool(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    return ToolResult.of({"name": name, **arguments})


async def open_session(
    agent: Agent,
    tmp_path: Path,
    *,
    run_tool: Any = no_tool,
    on_compacted: Callable[[], None] | None = None,
    envelope: str | None = None,
    resume: Thread | None = None,
    checked_version: str | None = None,
    events: EventQueue | None = None,
    tool_timeout_ms: int = 60_000,
    briefing: Callable[[ListAgentSkills], Awaitable[Briefing]] | None = None,
    **settings: Any,
) -> tuple[CodexSession, MemoryChild]:
    child = MemoryChild(agent)
    launch = Launch(
        command="agent", cwd=tmp_path, env={"SYMPHONY_RUN_ID": "r"}, stderr_path=tmp_path / "stderr"
    )
    request = SessionRequest(
        run_id="r",
        cwd=tmp_path,
        briefing=briefing
        or briefed(
            Briefing(envelope=envelope, tools=(ToolSpec(name="board", description="", input_schema={}),))
        ),
        run_tool=run_tool,
        stderr_path=tmp_path / "stderr",
        on_compacted=on_compacted,
        resume=resume,
    )
    session = CodexSession(
        await AgentProcess.start(MemoryHost(child), launch, grace_ms=200),
        settings=CodexSettings(**settings),
        request=request,
        cwd=tmp_path,
        events=EventQueue() if events is None else events,
        checked_version=checked_version,
        tool_timeout_ms=tool_timeout_ms,
    )
    return session, child


async def turn_of(session: CodexSession, prompt: str = "go") -> list[AgentEvent]:
    with anyio.fail_after(60):
        return [event async for event in session.run_turn(Turn(prompt=prompt))]


@pytest.mark.conformance("A-4")
async def test_a_turn_begins_with_its_ids_and_ends_with_its_end(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(ended()), tmp_path)
    await session.start()
    assert await turn_of(session) == [
        SessionStarted(session_id="th-tu", thread_id="th", turn_id="tu"),
        COMPLETED,
    ]
    assert [frame["method"] for frame in child.sent] == [
        "initialize",
        "initialized",
        "thread/start",
        "turn/start",
    ]


async def asked_for_its_skills(
    agent: Agent, tmp_path: Path, **settings: Any
) -> tuple[CodexSession, MemoryChild, frozenset[Path] | None]:
    """A session that is started, and what its agent said of the skills that it lists."""
    told: list[frozenset[Path] | None] = []

    async def briefing(ask: ListAgentSkills) -> Briefing:
        told.append(await ask())
        return Briefing()

    session, child = await open_session(agent, tmp_path, briefing=briefing, **settings)
    await session.start()
    return session, child, told[0]


def listing(answer: Frame | bytes | None) -> Agent:
    """An agent that gives this answer to `skills/list`."""
    usual = well_behaved(ended())

    def agent(frame: Frame) -> Reply:
        if frame.get("method") != "skills/list":
            return usual(frame)
        if answer is None or isinstance(answer, bytes):
            return [] if answer is None else [answer]
        return [{"id": frame["id"], **answer}]

    return agent


def skill_entry(path: object, *, enabled: object = True) -> Frame:
    return {"name": "n", "path": path, "enabled": enabled}


async def test_codex_is_asked_which_skills_it_lists_before_its_thread_begins(tmp_path: Path) -> None:
    skills = [skill_entry("/a/SKILL.md"), skill_entry("/off/SKILL.md", enabled=False), skill_entry(5), "x"]
    agent = listing({"result": {"data": [{"cwd": "/", "skills": skills, "errors": []}, {"skills": 1}, 2]}})
    session, child, told = await asked_for_its_skills(agent, tmp_path)
    assert told == frozenset({Path("/a/SKILL.md")})
    assert [frame["method"] for frame in child.sent][2:] == ["skills/list", "thread/start"]
    assert child.sent[2]["params"] == {"cwds": [str(tmp_path)]}
    assert (await turn_of(session))[-1] == COMPLETED


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32600, "message": "unknown variant `skills/list`"}},
        {"result": {"data": "none"}},
        {"result": []},
        b"{" + b"x" * 200 + b"\n",
        None,
    ],
    ids=["an older version", "another form", "no object", "no JSON", "silence"],
)
@in_virtual_time
async def test_a_codex_that_cannot_say_what_it_lists_is_worked_with_all_the_same(
    tmp_path: Path, answer: Frame | bytes | None
) -> None:
    session, _, told = await asked_for_its_skills(listing(answer), tmp_path, read_timeout_ms=200)
    assert told is None
    assert (await turn_of(session))[-1] == COMPLETED


async def test_a_codex_that_ends_while_it_is_asked_is_no_session(tmp_path: Path) -> None:
    usual = well_behaved()
    children: list[MemoryChild] = []

    def agent(frame: Frame) -> Reply:
        if frame.get("method") == "skills/list":
            children[0].end(3)
            return []
        return usual(frame)

    async def briefing(ask: ListAgentSkills) -> Briefing:
        await ask()
        return Briefing()

    session, child = await open_session(agent, tmp_path, briefing=briefing)
    children.append(child)
    with pytest.raises(AgentError) as raised:
        await session.start()
    assert raised.value.failure.category is Category.PORT_EXIT


def replaced(version: str) -> Agent:
    """An agent that says it is of this version."""
    usual = well_behaved(ended())
    agent = f"symphony/{version} (Debian)"
    return lambda frame: (
        [result(frame, userAgent=agent)] if frame.get("method") == "initialize" else usual(frame)
    )


@pytest.mark.parametrize(
    ("checked", "told"),
    [
        ("1.2.3", []),
        (None, []),
        ("1.2.2", ["the agent is now version 1.2.3; 1.2.2 was checked at the start"]),
    ],
)
async def test_an_agent_that_was_replaced_since_the_check_is_noticed(
    tmp_path: Path, checked: str | None, told: list[str]
) -> None:
    session, _ = await open_session(replaced("1.2.3"), tmp_path, checked_version=checked)
    await session.start()
    events = await turn_of(session)
    assert [event.message for event in events if isinstance(event, LogNotice)] == told
    assert events[-1] == COMPLETED


def forgetful(*turn: Frame | bytes, knows: str | None = "th") -> Agent:
    """An agent that resumes the thread it knows, replays its totals, and refuses any other."""
    usage = told("thread/tokenUsage/updated", threadId="th", tokenUsage={"total": {"totalTokens": 9}})

    def agent(frame: Frame) -> Reply:
        if frame.get("method") != "thread/resume":
            return well_behaved(*turn)(frame)
        if frame["params"]["threadId"] == knows:
            return [usage, result(frame, thread={"id": knows})]
        refusal = {"code": -32600, "message": "no rollout found for thread id gone"}
        return [{"id": frame["id"], "error": refusal}]

    return agent


async def test_a_thread_is_gone_on_with_and_told_the_envelope_of_now_once(tmp_path: Path) -> None:
    session, child = await open_session(
        forgetful(ended()), tmp_path, envelope="skills", resume=Thread(thread_id="th")
    )
    await session.start()
    assert session.resume_refused is None
    first = await turn_of(session)
    assert first[0] == SessionStarted(session_id="th-tu", thread_id="th", turn_id="tu")
    assert any(isinstance(event, UsageUpdate) and event.tokens.total_tokens == 9 for event in first), (
        "the replay is told"
    )
    await turn_of(session)
    sent = [frame for frame in child.sent if "params" in frame]
    assert [frame["method"] for frame in sent] == ["initialize", "thread/resume", "turn/start", "turn/start"]
    assert sent[1]["params"]["threadId"] == "th"
    assert sent[1]["params"]["excludeTurns"] is True
    told_again = {"symphony": {"value": "skills", "kind": "application"}}
    assert [frame["params"].get("additionalContext") for frame in sent[2:]] == [told_again, None]


async def test_another_envelope_goes_with_the_turn_that_brings_it_and_replaces_the_earlier_one(
    tmp_path: Path,
) -> None:
    session, child = await open_session(well_behaved(ended()), tmp_path, envelope="skills")
    await session.start()
    for skills in ("skills", "other", "other"):
        turn = Turn(prompt="go", envelope=Envelope(skills=skills))
        assert [event async for event in session.run_turn(turn)][-1] == COMPLETED
    sent = [frame["params"] for frame in child.sent if frame.get("method") == "turn/start"]
    contexts = [params.get("additionalContext") for params in sent]
    replaced = {"symphony": {"value": replacing_text("other"), "kind": "application"}}
    assert contexts == [None, replaced, None]


async def test_a_thread_that_is_refused_is_answered_by_a_new_one(tmp_path: Path) -> None:
    session, child = await open_session(
        forgetful(ended()), tmp_path, envelope="skills", resume=Thread(thread_id="gone")
    )
    await session.start()
    assert session.resume_refused is not None
    assert "no rollout found" in session.resume_refused.message
    assert (await turn_of(session))[-1] == COMPLETED
    sent = {frame["method"]: frame["params"] for frame in child.sent if "params" in frame}
    assert sent["thread/start"]["developerInstructions"] == "skills"
    assert "additionalContext" not in sent["turn/start"]


@pytest.mark.conformance("A-5")
@in_virtual_time
async def test_chatter_does_not_extend_the_deadline_of_a_request(tmp_path: Path) -> None:
    session, child = await open_session(lambda _: [], tmp_path, read_timeout_ms=150)

    async def chat() -> None:
        while True:
            child.say(told("warning", message="still here"))
            await anyio.sleep(0.01)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat)
            with pytest.raises(AgentError) as caught:
                await session.start()
            tasks.cancel_scope.cancel()
    assert caught.value.failure.category is Category.RESPONSE_TIMEOUT
    assert LogNotice(level="warning", message="still here") in await session.stop()


async def test_what_comes_before_an_answer_is_kept_for_the_turn(tmp_path: Path) -> None:
    def agent(frame: Frame) -> Reply:
        early = [told("warning", message="early")] if frame.get("method") == "turn/start" else []
        return [*early, *well_behaved(ended())(frame)]

    session, _ = await open_session(agent, tmp_path)
    await session.start()
    events = await turn_of(session)
    assert isinstance(events[0], SessionStarted)
    assert events[1:] == [LogNotice(level="warning", message="early"), COMPLETED]


async def test_an_end_that_comes_before_the_answer_still_ends_the_turn(tmp_path: Path) -> None:
    def agent(frame: Frame) -> Reply:
        answers = list(well_behaved()(frame))
        return [ended(), *answers] if frame.get("method") == "turn/start" else answers

    session, _ = await open_session(agent, tmp_path)
    await session.start()
    assert (await turn_of(session))[-1] == COMPLETED


async def test_the_end_of_another_thread_or_turn_is_not_our_end(tmp_path: Path) -> None:
    usage = {"tokenUsage": {"total": {"totalTokens": 9}}}
    others = [
        ended(thread="sub"),
        ended(turn="older"),
        told("thread/tokenUsage/updated", threadId="sub", **usage),
        told("thread/tokenUsage/updated", threadId="th", **usage),
    ]
    session, _ = await open_session(well_behaved(*others, ended()), tmp_path)
    await session.start()
    events = await turn_of(session)
    assert [event for event in events if isinstance(event, TurnEnd)] == [COMPLETED]
    assert len([event for event in events if isinstance(event, UsageUpdate)]) == 1


async def test_an_end_between_turns_does_not_end_the_next_one(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(), tmp_path)
    await session.start()
    child.say(ended(turn="older"))
    child.agent = well_behaved(told("warning", message="in the turn"), ended())
    assert LogNotice(level="warning", message="in the turn") in await turn_of(session)


@in_virtual_time
async def test_a_final_error_without_an_end_ends_the_turn_after_a_requests_time(tmp_path: Path) -> None:
    error = told("error", **IDS, error={"message": "no", "codexErrorInfo": "unauthorized"}, willRetry=False)
    session, _ = await open_session(well_behaved(error), tmp_path, read_timeout_ms=80)
    await session.start()
    last = (await turn_of(session))[-1]
    assert isinstance(last, TurnEnd)
    assert last.failure is not None
    assert last.failure.category is Category.AGENT_AUTH


async def test_an_end_without_words_is_explained_by_the_error_before(tmp_path: Path) -> None:
    error = told("error", **IDS, error={"message": "too long", "codexErrorInfo": "contextWindowExceeded"})
    session, _ = await open_session(well_behaved(error, ended("failed")), tmp_path)
    await session.start()
    last = (await turn_of(session))[-1]
    assert isinstance(last, TurnEnd)
    assert last.failure is not None
    assert last.failure.message == "too long"


@in_virtual_time
async def test_retries_do_not_count_as_progress_for_ever(tmp_path: Path) -> None:
    retry = told("error", **IDS, error={"message": "Reconnecting..."}, willRetry=True)
    session, child = await open_session(well_behaved(retry), tmp_path, stall_timeout_ms=150)
    await session.start()

    async def retry_on() -> None:
        while True:
            child.say(retry, told("thread/status/changed", threadId="th"))
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(retry_on)
        last = (await turn_of(session))[-1]
        tasks.cancel_scope.cancel()
    assert isinstance(last, TurnEnd)
    assert last.failure is not None
    assert (last.failure.category, last.failure.message) == (Category.TURN_FAILED, "Reconnecting...")


@in_virtual_time
async def test_work_after_a_retry_makes_it_forgotten(tmp_path: Path) -> None:
    retry = told("error", **IDS, error={"message": "Reconnecting..."}, willRetry=True)
    delta = told("item/agentMessage/delta", **IDS, delta="x")
    session, child = await open_session(
        well_behaved(retry, delta), tmp_path, stall_timeout_ms=50, turn_timeout_ms=5_000
    )
    await session.start()

    async def finish_later() -> None:
        await anyio.sleep(0.2)
        child.say(ended())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(finish_later)
        assert (await turn_of(session))[-1] == COMPLETED


@pytest.mark.conformance("A-6")
@in_virtual_time
async def test_silence_is_a_turn_timeout_and_part_of_a_line_is_not_silence(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(), tmp_path, turn_timeout_ms=300)
    await session.start()

    async def dribble() -> None:
        for _ in range(8):
            child.say(b" ")
            await anyio.sleep(0.1)
        child.say(b"\n", ended())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dribble)
        assert (await turn_of(session))[-1] == COMPLETED
    with pytest.raises(AgentError) as caught:
        await turn_of(session)
    assert caught.value.failure.category is Category.TURN_TIMEOUT


@in_virtual_time
async def test_a_silence_that_is_noticed_far_too_late_is_not_held_against_the_agent(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(), tmp_path, turn_timeout_ms=20)
    await session.start()

    async def wakes_up() -> None:
        await anyio.sleep(0.01)
        sleep_as_a_machine(30)
        await anyio.sleep(0.01)
        child.say(ended())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wakes_up)
        assert (await turn_of(session))[-1] == COMPLETED


def refusal(category: Category) -> SymphonyError:
    return SymphonyError(Failure(category=category, blame=Blame.TRACKER, message="no"))


def call(name: str = "board") -> Frame:
    return {"id": 0, "method": "item/tool/call", "params": {**IDS, "tool": name, "arguments": {"a": 1}}}


async def test_a_call_that_comes_with_the_answer_to_the_turn_is_answered(tmp_path: Path) -> None:
    """An agent whose first act is a call says nothing more until it has its answer."""

    def agent(frame: Frame) -> Reply:
        if frame.get("method") == "turn/start":
            together = [result(frame, turn={"id": "tu", "status": "inProgress"}), call()]
            return [b"".join(json.dumps(one).encode() + b"\n" for one in together)]
        return [ended()] if frame.get("id") == 0 and "result" in frame else well_behaved()(frame)

    session, _ = await open_session(agent, tmp_path)
    await session.start()
    events = await turn_of(session)
    assert ToolCalled(name="board", success=True) in events
    assert events[-1] == COMPLETED


@pytest.mark.conformance("A-13")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("odd token=abcdefgh"), "odd token=***"),
        (refusal(Category.MISSING_TRACKER_SECRET), "missing_tracker_secret: no"),
        (refusal(Category.TRACKER_REQUEST), "tracker_request: no"),
    ],
    ids=["a bug", "no rights", "no way through"],
)
async def test_a_tool_that_raises_is_a_failed_call_and_nothing_more(
    tmp_path: Path, error: Exception, said: str
) -> None:
    async def broken(name: str, arguments: Mapping[str, Any]) -> ToolResult:
        assert (name, arguments) == ("board", {"a": 1})
        raise error

    session, child = await open_session(well_behaved(call(), ended()), tmp_path, run_tool=broken)
    await session.start()
    events = await turn_of(session)
    assert ToolCalled(name="board", success=False) in events
    assert events[-1] == COMPLETED
    answer = child.sent[-1]["result"]
    assert answer["success"] is False
    assert json.loads(answer["output"]) == {"error": {"message": f"tool board failed: {said}"}}
    assert answer["contentItems"] == [{"type": "inputText", "text": answer["output"]}]


@in_virtual_time
async def test_a_tool_that_hangs_is_given_up(tmp_path: Path) -> None:
    async def hang(_: str, __: Mapping[str, Any]) -> ToolResult:
        await anyio.sleep_forever()
        raise AssertionError

    session, child = await open_session(
        well_behaved(call(), ended()), tmp_path, run_tool=hang, tool_timeout_ms=50
    )
    await session.start()
    assert (await turn_of(session))[-1] == COMPLETED
    assert "did not answer within 50 ms" in child.sent[-1]["result"]["output"]


async def test_the_wall_clock_is_told_in_whole_seconds(tmp_path: Path) -> None:
    before = int(time.time())
    question = {"id": 9, "method": "currentTime/read", "params": {"threadId": "th"}}
    session, child = await open_session(well_behaved(question, ended()), tmp_path)
    await session.start()
    await turn_of(session)
    told = child.sent[-1]["result"]["currentTimeAt"]
    assert isinstance(told, int)
    assert before <= told <= time.time()


@in_virtual_time
async def test_an_agent_that_does_not_read_its_input_is_a_response_timeout(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(call("other")), tmp_path, read_timeout_ms=80)
    await session.start()
    turn = session.run_turn(Turn(prompt="go"))
    assert isinstance(await anext(aiter(turn)), SessionStarted)
    child.deaf = True
    with pytest.raises(AgentError) as caught:
        await anext(aiter(turn))
    assert caught.value.failure.category is Category.RESPONSE_TIMEOUT


@pytest.mark.parametrize("answer", [{}, {"thread": {"id": 3}}, {"thread": "th"}, {"thread": {"id": ""}}])
async def test_a_thread_without_an_id_is_a_response_error(tmp_path: Path, answer: Frame) -> None:
    session, _ = await open_session(
        lambda frame: [result(frame, **answer)] if "id" in frame else [], tmp_path
    )
    with pytest.raises(AgentError) as caught:
        await session.start()
    assert caught.value.failure.category is Category.RESPONSE_ERROR


async def test_an_answer_that_cannot_be_read_is_a_response_error(tmp_path: Path) -> None:
    session, _ = await open_session(lambda _: [b'{"id": 1, "result": {"x": "\xff"}}\n'], tmp_path)
    with pytest.raises(AgentError) as caught:
        await session.start()
    assert caught.value.failure.category is Category.RESPONSE_ERROR


async def test_a_turn_before_the_start_is_a_programming_error(tmp_path: Path) -> None:
    session, _ = await open_session(well_behaved(), tmp_path)
    with pytest.raises(RuntimeError):
        await turn_of(session)


async def test_the_thread_is_named_once(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(ended()), tmp_path)
    await session.start()
    for _ in range(2):
        async for _event in session.run_turn(Turn(prompt="go", title="MT-1: try")):
            pass
    named = [frame["params"] for frame in child.sent if frame["method"] == "thread/name/set"]
    assert named == [{"threadId": "th", "name": "MT-1: try"}]


async def test_stop_interrupts_refuses_requests_and_returns_what_was_unseen(tmp_path: Path) -> None:
    def agent(frame: Frame) -> Reply:
        if frame.get("method") == "turn/interrupt":
            usage = told("thread/tokenUsage/updated", **IDS, tokenUsage={"total": {"totalTokens": 77}})
            return [call(), usage, b"not json\n", ended("interrupted")]
        return well_behaved()(frame)

    session, child = await open_session(agent, tmp_path)
    await session.start()
    turn = session.run_turn(Turn(prompt="go"))
    await anext(aiter(turn))
    left = await session.stop()
    assert UsageUpdate(absolute=True, tokens=Tokens(0, 0, 77)) in left
    assert LogNotice(level="info", message="not json") in left
    assert isinstance(left[-1], TurnEnd)
    assert child.sent[-1]["error"]["message"] == "the session is being stopped"
    assert await session.stop() == ()


async def test_stop_outlives_the_cancellation_of_its_caller(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(), tmp_path)
    await session.start()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await session.stop()
    assert child.exit_code == 0


@in_virtual_time
async def test_an_interrupt_that_is_ignored_costs_one_grace_period(tmp_path: Path) -> None:
    def agent(frame: Frame) -> Reply:
        return [] if frame.get("method") == "turn/interrupt" else well_behaved()(frame)

    session, child = await open_session(agent, tmp_path)
    await session.start()
    await anext(aiter(session.run_turn(Turn(prompt="go"))))
    with anyio.fail_after(0.21):
        await session.stop()
    assert child.exit_code == 0
    assert child.signals == []


async def test_last_words_after_stdin_closed_are_heard(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(), tmp_path)
    await session.start()
    child.say(
        b'{"half": ', told("warning", message="bye"), b'{"method": "warning", "params": {"message": "end"}}'
    )
    left = await session.stop()
    assert any(isinstance(event, Malformed) for event in left)
    assert LogNotice(level="warning", message="end") in left


async def test_a_flood_while_stopping_is_bounded_and_all_of_it_is_counted(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(), tmp_path, events=EventQueue(max_events=10))
    await session.start()
    child.say(*[told("warning", message=str(number)) for number in range(50)])
    left = await session.stop()
    assert len(left) <= 11
    assert sum(event.count if isinstance(event, Activity) else 1 for event in left) == 50


async def test_the_newest_totals_survive_a_flood(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(), tmp_path, events=EventQueue(max_events=10))
    await session.start()
    for number in range(1, 21):
        usage = {"tokenUsage": {"total": {"totalTokens": number}}}
        child.say(told("warning", message="x"), told("thread/tokenUsage/updated", threadId="th", **usage))
    progress = RunStats()
    for event in await session.stop():
        progress.add(event)
    assert progress.snapshot().event_count == 40
    assert progress.facts.tokens.total_tokens == 20


async def test_a_turn_may_be_over_in_the_read_that_brings_its_answer(tmp_path: Path) -> None:
    def frames_of(frame: Frame) -> list[Frame]:
        return [message for message in well_behaved(ended())(frame) if isinstance(message, dict)]

    def agent(frame: Frame) -> Reply:
        lines = [json.dumps(message).encode() + b"\n" for message in frames_of(frame)]
        return [b"".join(lines)] if lines else []

    session, _ = await open_session(agent, tmp_path)
    await session.start()
    assert (await turn_of(session))[-1] == COMPLETED
    assert (await turn_of(session))[-1] == COMPLETED


@in_virtual_time
async def test_work_that_is_only_counted_makes_a_retry_forgotten(tmp_path: Path) -> None:
    delta = told("item/agentMessage/delta", **IDS, delta="x")
    retry = told("error", **IDS, error={"message": "again"}, willRetry=True)
    session, child = await open_session(well_behaved(delta), tmp_path, stall_timeout_ms=150)
    await session.start()
    child.agent = well_behaved(delta, retry, delta)
    async with anyio.create_task_group() as tasks:

        async def end_later() -> None:
            await anyio.sleep(0.3)  # longer than the patience that the retry began
            child.say(ended())

        tasks.start_soon(end_later)
        events = await turn_of(session)
    assert events[-1] == COMPLETED


async def test_every_message_is_counted_in_events_or_activity(tmp_path: Path) -> None:
    delta = json.dumps(told("item/agentMessage/delta", **IDS, delta="x")).encode() + b"\n"
    said = (
        json.dumps(told("item/completed", **IDS, item={"type": "agentMessage", "text": "t"})).encode() + b"\n"
    )
    session, _ = await open_session(well_behaved((delta * 10 + said) * 20, ended()), tmp_path)
    await session.start()
    events = await turn_of(session)
    assert sum(event.count for event in events if isinstance(event, Activity)) == 200
    assert sum(isinstance(event, Text) for event in events) == 20


async def test_the_process_ends_without_a_word(tmp_path: Path) -> None:
    session, child = await open_session(well_behaved(), tmp_path)
    await session.start()
    child.end(9)
    with pytest.raises(AgentError) as caught:
        await turn_of(session)
    assert caught.value.failure.category is Category.PORT_EXIT
    assert caught.value.failure.message == "the agent ended with exit code 9"


async def test_a_flood_of_chatter_does_not_drown_the_end_of_the_turn(tmp_path: Path) -> None:
    flood = b"x\n" * (MAX_QUEUED_EVENTS + 10) + json.dumps(ended()).encode() + b"\n"
    session, _ = await open_session(well_behaved(flood), tmp_path)
    await session.start()

    events = await turn_of(session)

    assert len(events) <= MAX_QUEUED_EVENTS + 3  # the start, what is only counted, the end
    assert events[-1] == COMPLETED


def tool_call(number: int) -> Frame:
    return {"id": number, **told("item/tool/call", **IDS, callId=f"c{number}", tool="board", arguments={})}


def compacted(thread: str = "th") -> list[Frame]:
    """What the real agent says when it sums a conversation up."""
    ids = {"threadId": thread, "turnId": "tu"}
    item = {"type": "contextCompaction", "id": "item-1"}
    return [told(f"item/{when}", **ids, item=item) for when in ("started", "completed")]


async def test_a_compaction_is_told_in_its_place_among_the_calls_of_tools(tmp_path: Path) -> None:
    order: list[str] = []

    async def run_tool(name: str, arguments: Mapping[str, Any]) -> ToolResult:
        order.append(name)
        return ToolResult.of(arguments)

    frames = [tool_call(1), *compacted(), *compacted("sub"), tool_call(2), ended()]
    at_once = b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
    session, _ = await open_session(
        well_behaved(at_once), tmp_path, run_tool=run_tool, on_compacted=lambda: order.append("compacted")
    )
    await session.start()
    events = await turn_of(session)
    assert order == ["board", "compacted", "board"]
    assert events.count(ContextCompacted()) == 1


async def test_nobody_need_listen_for_compactions(tmp_path: Path) -> None:
    session, _ = await open_session(well_behaved(*compacted(), ended()), tmp_path)
    await session.start()
    assert ContextCompacted() in await turn_of(session)
