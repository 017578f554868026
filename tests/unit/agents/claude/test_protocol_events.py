import json
from typing import Any

import msgspec
import pytest

from symphony.agents.claude.protocol import ClaudeEvent, Translator
from symphony.agents.events import (
    AgentEvent,
    ContextCompacted,
    ItemFinished,
    ItemStarted,
    LogNotice,
    Malformed,
    RateLimits,
    Reasoning,
    Text,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
    describe_event,
)
from symphony.domain import Category, Tokens

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 5,
    "cache_creation_input_tokens": 1,
    "output_tokens": 2,
}
RESULT = {"type": "result", "subtype": "success", "is_error": False, "terminal_reason": "completed"}


@pytest.fixture
def translator() -> Translator:
    return Translator()


def say(translator: Translator, body: dict[str, Any]) -> list[AgentEvent]:
    raw = msgspec.Raw(json.dumps(body).encode())
    return list(translator.translate(ClaudeEvent(body["type"], body.get("subtype", ""), raw)))


def assistant(*blocks: dict[str, Any], name: str = "m1", **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": name, "content": list(blocks), "usage": {}}, **more}


def use(name: str, given: Any, call: str = "t1") -> dict[str, Any]:
    return assistant({"type": "tool_use", "id": call, "name": name, "input": given})


def answer(content: Any, call: str = "t1", **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content, **more}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def test_the_agents_words_are_texts_and_those_of_its_helpers_are_not(translator: Translator) -> None:
    text = {"type": "text", "text": "Hello."}
    assert say(translator, assistant(text)) == [Text(message="Hello.")]
    assert say(translator, assistant(text, name="m2", parent_tool_use_id="t9")) == []
    assert say(translator, assistant({"type": "text", "text": " \n"}, name="m3")) == []
    thought = assistant({"type": "thinking", "thinking": "Hm."}, "no block", name="m4")  # type: ignore[arg-type]
    assert say(translator, thought) == [Reasoning(text="Hm.")]


@pytest.mark.parametrize(
    ("name", "given", "kind", "summary"),
    [
        ("Bash", {"command": "make test", "description": "d"}, "commandExecution", "make test"),
        ("Write", {"file_path": "/w/a/b.txt", "content": "x"}, "fileChange", "b.txt"),
        ("NotebookEdit", {"notebook_path": "/w/n.ipynb"}, "fileChange", "n.ipynb"),
        ("Read", {"file_path": "/w/SKILL.md"}, "fileRead", "SKILL.md"),
        ("Grep", {"pattern": "x"}, "Grep", "x"),
        ("WebFetch", {"url": "https://example.invalid/a"}, "webSearch", "https://example.invalid/a"),
        ("Task", {"description": "look", "prompt": "p"}, "subAgentActivity", "look"),
        ("mcp__symphony__board_move", {"state": "Done"}, "mcpToolCall", "symphony.board_move"),
        ("TodoWrite", {"todos": []}, "TodoWrite", ""),
        ("Odd", "no object", "Odd", ""),
    ],
)
def test_a_tool_has_a_kind_and_a_summary(
    translator: Translator, name: str, given: Any, kind: str, summary: str
) -> None:
    *_, item = say(translator, use(name, given))
    assert item == ItemStarted(kind=kind, summary=summary, arguments=item.arguments)  # type: ignore[union-attr]


def test_what_a_tool_was_given_can_be_recognised(translator: Translator) -> None:
    (command,) = say(translator, use("Bash", {"command": "cat a/SKILL.md"}))
    (read,) = say(translator, use("Read", {"file_path": "/w/a/SKILL.md"}, "t2"))
    assert isinstance(command, ItemStarted)
    assert command.arguments == "cat a/SKILL.md"
    assert isinstance(read, ItemStarted)
    assert read.arguments == '{"file_path": "/w/a/SKILL.md"}'


@pytest.mark.parametrize(
    ("content", "more", "status", "code"),
    [
        ("hello", {}, "completed", 0),
        ("Exit code 2\nls: no", {"is_error": True}, "failed", 2),
        ("no person can approve", {"is_error": True}, "failed", None),
        ([{"type": "text", "text": "Exit code 3"}], {"is_error": True}, "failed", 3),
        ([], {}, "completed", 0),
        (None, {}, "completed", 0),
    ],
)
def test_a_command_ends_with_its_exit_code(
    translator: Translator, content: Any, more: dict[str, Any], status: str, code: int | None
) -> None:
    say(translator, use("Bash", {"command": "x"}))
    assert say(translator, answer(content, **more)) == [
        ItemFinished(kind="commandExecution", summary="x", status=status, exit_code=code)
    ]


def test_other_tools_have_no_exit_code_and_unknown_results_mean_nothing(translator: Translator) -> None:
    say(translator, use("Write", {"file_path": "a"}))
    assert say(translator, answer("ok", "t7")) == []
    assert say(translator, answer("Exit code 1", is_error=True)) == [
        ItemFinished(kind="fileChange", summary="a", status="failed")
    ]
    assert say(translator, answer("again")) == []
    assert say(translator, {"type": "user", "message": {"content": "text"}}) == []


def test_messages_count_at_once_and_a_result_adds_what_is_missing(translator: Translator) -> None:
    message = {"type": "assistant", "message": {"id": "m1", "model": "opus", "content": [], "usage": USAGE}}
    first = UsageUpdate(absolute=False, tokens=Tokens(16, 2, 18, 5, 1), model="opus")
    assert say(translator, message) == [first]
    assert say(translator, message) == [], "one message has an event for each block"
    model = {"inputTokens": 20, "cacheReadInputTokens": 5, "outputTokens": 9}
    result = {**RESULT, "modelUsage": {"a": model, "b": {"outputTokens": 1}}, "total_cost_usd": 0.5}
    rest, ended = say(translator, result)
    assert rest == UsageUpdate(absolute=False, tokens=Tokens(9, 8, 17))
    assert ended == TurnEnd(status=TurnStatus.COMPLETED)
    assert isinstance(ended, TurnEnd)
    assert ended.cost_usd == 0.5
    second = {**RESULT, "modelUsage": {"a": {**model, "outputTokens": 12}}, "total_cost_usd": 0.75}
    more, ended = say(translator, second)
    assert more == UsageUpdate(absolute=False, tokens=Tokens(0, 2, 2))
    assert isinstance(ended, TurnEnd)
    assert ended.cost_usd == 0.25
    assert describe_event(ended) == "turn completed for 0.2500 USD"
    (ended,) = say(translator, second)
    assert isinstance(ended, TurnEnd)
    assert ended.cost_usd is None, "a turn without a price of its own is not free"


def streamed(kind: str, caller: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": {"type": kind, **fields}, "parent_tool_use_id": caller}


def test_the_end_of_a_stream_corrects_the_estimate_of_each_message(translator: Translator) -> None:
    def begun(name: str, caller: str | None = None) -> dict[str, Any]:
        return streamed("message_start", caller, message={"id": name, "model": "opus", "usage": USAGE})

    def shown(name: str) -> dict[str, Any]:
        message = {"id": name, "model": "opus", "content": [], "usage": USAGE}
        return {"type": "assistant", "message": message}

    def over(taken: int, caller: str | None = None) -> dict[str, Any]:
        return streamed("message_delta", caller, usage={**USAGE, "output_tokens": taken})

    first = UsageUpdate(absolute=False, tokens=Tokens(16, 2, 18, 5, 1), model="opus")
    assert say(translator, begun("m1")) == []
    assert say(translator, shown("m1")) == [first]
    assert say(translator, begun("h1", "t1")) == []
    assert say(translator, shown("h1")) == [first]
    assert say(translator, over(70)) == [UsageUpdate(absolute=False, tokens=Tokens(0, 68, 68), model="opus")]
    assert say(translator, over(70)) == []
    assert say(translator, over(9, "t1")) == [
        UsageUpdate(absolute=False, tokens=Tokens(0, 7, 7), model="opus")
    ]
    assert say(translator, streamed("message_stop")) == []
    assert say(translator, over(500)) == [], "the end of no message"
    assert say(translator, shown("m1")) == [], "a late block of a counted message"
    assert say(translator, streamed("message_delta", "t1", usage={"output_tokens": None})) == []
    total = {"inputTokens": 20, "cacheReadInputTokens": 10, "cacheCreationInputTokens": 2, "outputTokens": 79}
    assert say(translator, {**RESULT, "modelUsage": {"a": total}}) == [TurnEnd(status=TurnStatus.COMPLETED)]


def test_a_total_is_the_sum_of_both_counts_although_an_estimate_was_too_high(translator: Translator) -> None:
    say(translator, {"type": "assistant", "message": {"id": "m1", "content": [], "usage": USAGE}})
    rest, _ = say(translator, {**RESULT, "modelUsage": {"a": {"inputTokens": 13, "outputTokens": 6}}})
    assert rest == UsageUpdate(absolute=False, tokens=Tokens(0, 4, 4))


def test_without_totals_the_usage_of_the_turn_counts(translator: Translator) -> None:
    for _ in range(2):
        say(translator, {"type": "assistant", "message": {"id": "m1", "usage": {"output_tokens": 1}}})
        usage, _ = say(translator, {**RESULT, "usage": USAGE})
        assert usage == UsageUpdate(absolute=False, tokens=Tokens(16, 1, 17, 5, 1))


@pytest.mark.parametrize("value", [None, "seven", True, -3, 1.5])
def test_counts_that_are_none_count_nothing(translator: Translator, value: Any) -> None:
    body = {**RESULT, "modelUsage": {"a": {"inputTokens": value}, "b": 7}, "usage": {"output_tokens": value}}
    assert say(translator, {**body, "total_cost_usd": "x"}) == [TurnEnd(status=TurnStatus.COMPLETED)]


@pytest.mark.parametrize("reason", ["aborted_tools", "aborted_streaming"])
def test_an_aborted_turn_is_interrupted(translator: Translator, reason: str) -> None:
    body = {**RESULT, "subtype": "error_during_execution", "is_error": True, "terminal_reason": reason}
    (ended,) = say(translator, body)
    assert isinstance(ended, TurnEnd)
    assert ended.status is TurnStatus.INTERRUPTED
    assert ended.failure is not None
    assert ended.failure.category is Category.TURN_CANCELLED


def test_an_error_is_no_word_of_the_agent_and_names_the_failure(translator: Translator) -> None:
    text = {"type": "text", "text": "Credit balance is too low"}
    assert say(translator, assistant(text, error="billing_error")) == []
    (ended,) = say(translator, {**RESULT, "is_error": True, "result": "Something else"})
    assert isinstance(ended, TurnEnd)
    assert ended.failure is not None
    assert ended.failure.category is Category.AGENT_USAGE_LIMIT
    (again,) = say(translator, {**RESULT, "is_error": True, "result": "Something else"})
    assert isinstance(again, TurnEnd)
    assert again.failure is not None
    assert again.failure.category is Category.TURN_FAILED, "the name belongs to one turn"


def test_retries_limits_and_compaction_are_told(translator: Translator) -> None:
    retry = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 4, "error": "rate_limit"}
    assert say(translator, {**retry, "error_status": 429}) == [
        LogNotice(level="warning", message="the model could not be asked: rate_limit (429); retry 1 of 4")
    ]
    assert say(translator, {**retry, "error": None, "error_status": None}) == [
        LogNotice(level="warning", message="the model could not be asked: unknown; retry 1 of 4")
    ]
    assert say(translator, {"type": "system", "subtype": "compact_boundary"}) == [ContextCompacted()]
    info = {"status": "allowed_warning", "utilization": 0.9}
    assert say(translator, {"type": "rate_limit_event", "rate_limit_info": info}) == [
        RateLimits(payload=info)
    ]
    assert say(translator, {"type": "rate_limit_event"}) == []


def test_tools_of_ours_that_did_not_start_are_told_once(translator: Translator) -> None:
    servers: list[Any] = [
        "x",
        {"name": "other", "status": "failed"},
        {"name": "symphony", "status": "connected"},
    ]
    init = {"type": "system", "subtype": "init"}
    assert say(translator, {**init, "mcp_servers": servers}) == []
    assert say(translator, init) == []
    failed = {**init, "mcp_servers": [{"name": "symphony", "status": "failed"}]}
    assert say(translator, failed) == [
        LogNotice(level="warning", message="the agent has no tools of Symphony: failed")
    ]
    assert say(translator, failed) == []


def test_what_is_not_known_means_nothing_and_what_is_unreadable_is_malformed(translator: Translator) -> None:
    assert say(translator, {"type": "system", "subtype": "status"}) == []
    assert say(translator, {"type": "tool_progress"}) == []
    (told,) = translator.translate(ClaudeEvent("assistant", "", msgspec.Raw(b'{"message": "\xff"}')))
    assert isinstance(told, Malformed)
    assert told.excerpt.startswith("assistant: ")


def test_no_more_calls_than_a_turn_can_have_are_remembered(translator: Translator) -> None:
    for number in range(1_001):
        say(translator, use("Bash", {"command": "x"}, f"t{number}"))
    assert say(translator, answer("ok", "t999")) != []
    assert say(translator, answer("ok", "t1000")) == []
    say(translator, RESULT)
    assert say(translator, answer("ok", "t5")) == []
