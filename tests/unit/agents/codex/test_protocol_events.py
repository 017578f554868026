import json
from typing import Any

import msgspec
import pytest

from symphony.agents.codex.protocol import UNEXPLAINED, Translation, translate
from symphony.agents.events import (
    AgentEvent,
    ContextCompacted,
    InputRequired,
    ItemFinished,
    ItemStarted,
    LogNotice,
    Malformed,
    RateLimits,
    Text,
    TurnEnd,
    TurnStatus,
    UsageUpdate,
)
from symphony.agents.wire import ServerNotification
from symphony.domain import Category, Tokens

IDS = {"threadId": "th", "turnId": "tu"}


def told(method: str, params: Any) -> Translation:
    return translate(ServerNotification(method, msgspec.Raw(json.dumps(params).encode())))


def only(method: str, params: Any) -> AgentEvent:
    (event,) = told(method, params).events
    return event


def ended(status: str, **turn: Any) -> TurnEnd:
    event = told("turn/completed", {"threadId": "th", "turn": {"id": "tu", "status": status, **turn}}).events[
        -1
    ]
    assert isinstance(event, TurnEnd)
    return event


@pytest.mark.parametrize(
    ("item", "started", "finished"),
    [
        (
            {
                "type": "commandExecution",
                "command": "/bin/bash -lc 'git status'",
                "status": "failed",
                "exitCode": 1,
            },
            ItemStarted(
                kind="commandExecution", summary="git status", arguments="/bin/bash -lc 'git status'"
            ),
            ItemFinished(kind="commandExecution", summary="git status", status="failed", exit_code=1),
        ),
        (
            {"type": "commandExecution", "command": "make\n test", "status": "completed", "exitCode": 0},
            ItemStarted(kind="commandExecution", summary="make test", arguments="make\n test"),
            ItemFinished(kind="commandExecution", summary="make test", status="completed", exit_code=0),
        ),
        (
            {
                "type": "fileChange",
                "status": "completed",
                "changes": [{"path": f"/w/{n}.py"} for n in "abcde"],
            },
            ItemStarted(kind="fileChange", summary="a.py, b.py, c.py and 2 more"),
            ItemFinished(kind="fileChange", summary="a.py, b.py, c.py and 2 more", status="completed"),
        ),
        (
            {"type": "mcpToolCall", "server": "docs", "tool": "find", "status": "completed"},
            ItemStarted(kind="mcpToolCall", summary="docs.find"),
            ItemFinished(kind="mcpToolCall", summary="docs.find", status="completed"),
        ),
        (
            {"type": "webSearch", "query": "anyio"},
            ItemStarted(kind="webSearch", summary="anyio"),
            ItemFinished(kind="webSearch", summary="anyio", status="completed"),
        ),
        (
            {"type": "somethingNew", "exitCode": "x"},
            ItemStarted(kind="somethingNew", summary=""),
            ItemFinished(kind="somethingNew", summary="", status="completed"),
        ),
        (
            {"type": "fileChange", "changes": "none"},
            ItemStarted(kind="fileChange", summary=""),
            ItemFinished(kind="fileChange", summary="", status="completed"),
        ),
    ],
)
def test_work_is_reported_at_its_beginning_and_its_end(
    item: dict[str, Any], started: AgentEvent, finished: AgentEvent
) -> None:
    assert only("item/started", {**IDS, "item": item}) == started
    assert only("item/completed", {**IDS, "item": item}) == finished


@pytest.mark.parametrize(
    ("item", "arguments"),
    [
        (
            {"type": "commandExecution", "command": "cat x", "commandActions": [{"path": "/w/x"}, {}, 7]},
            "cat x\n/w/x\n",
        ),
        ({"type": "commandExecution", "command": "cat x", "commandActions": {"path": "/w/x"}}, "cat x"),
        ({"type": "mcpToolCall", "arguments": {"path": "/w/ü"}}, '{"path": "/w/ü"}'),
        ({"type": "dynamicToolCall", "arguments": {"name": "greet"}}, '{"name": "greet"}'),
        ({"type": "dynamicToolCall"}, ""),
        ({"type": "webSearch", "query": "/w/x"}, ""),
        ({"type": "commandExecution", "command": "x" * 9_000}, "x" * 8_000),
    ],
)
def test_what_a_tool_was_given_comes_along_and_is_never_shown(item: dict[str, Any], arguments: str) -> None:
    started = only("item/started", {**IDS, "item": item})
    assert isinstance(started, ItemStarted)
    assert started.arguments == arguments
    assert "arguments" not in repr(started)


def test_what_the_agent_says_counts_when_it_is_complete() -> None:
    item = {"type": "agentMessage", "id": "1", "text": "All done."}
    assert told("item/started", {"item": item}).events == ()
    assert only("item/completed", {"item": item}) == Text(message="All done.")
    assert told("item/completed", {"item": {**item, "text": " "}}).events == ()


@pytest.mark.parametrize("kind", ["userMessage", "hookPrompt", "functionCallOutput"])
def test_what_we_said_ourselves_is_no_event(kind: str) -> None:
    assert told("item/started", {"item": {"type": kind}}).events == ()
    assert told("item/completed", {"item": {"type": kind}}).events == ()


def test_an_item_that_is_no_object_is_tolerated() -> None:
    assert only("item/started", {"item": 3}) == ItemStarted(kind="unknown", summary="")


@pytest.mark.conformance("O-4")
def test_usage_is_the_threads_total_and_never_the_last_call() -> None:
    counts = {"totalTokens": 30, "inputTokens": 20, "outputTokens": 10, "cachedInputTokens": 5}
    counts |= {"cacheWriteInputTokens": 4, "reasoningOutputTokens": 3}
    last = {"totalTokens": 3, "inputTokens": 2, "outputTokens": 1}
    message = {**IDS, "tokenUsage": {"total": counts, "last": last, "modelContextWindow": 1}}
    total = UsageUpdate(absolute=True, tokens=Tokens(20, 10, 30, 5, 4, 3))
    assert only("thread/tokenUsage/updated", message) == total
    assert told("thread/tokenUsage/updated", {"tokenUsage": {"last": last}}).events == ()


@pytest.mark.conformance("O-4")
@pytest.mark.parametrize(
    "params",
    [
        {"msg": {"info": {"total_token_usage": {"input_tokens": "20", "output_tokens": 10}}}},
        {"msg": {"payload": {"info": {"total_token_usage": {"prompt_tokens": 20, "completion_tokens": 10}}}}},
    ],
)
def test_older_wrappers_of_totals_are_understood(params: Any) -> None:
    assert only("codex/event/token_count", params) == UsageUpdate(absolute=True, tokens=Tokens(20, 10, 30))


@pytest.mark.parametrize("wrong", [True, -1, "x", 1.5, None, "²", []])
def test_counts_that_are_none_are_no_usage(wrong: object) -> None:
    assert told("thread/tokenUsage/updated", {"tokenUsage": {"total": {"totalTokens": wrong}}}).events == ()


@pytest.mark.conformance("O-5")
@pytest.mark.parametrize("name", ["limitId", "limit_id", "limitName", "limit_name"])
@pytest.mark.parametrize("part", ["primary", "secondary", "credits"])
def test_rate_limits_are_found_in_both_spellings(name: str, part: str) -> None:
    limits = {name: "codex", part: {"usedPercent": 43}}
    assert only("account/rateLimits/updated", {"rateLimits": limits}) == RateLimits(payload=limits)
    assert only("something/else", {"deep": [{"er": limits}]}) == RateLimits(payload=limits)


def test_rate_limits_that_say_nothing_do_not_replace_older_ones() -> None:
    empty = {"limitId": "codex", "primary": None, "secondary": None, "credits": None}
    assert told("account/rateLimits/updated", {"rateLimits": empty}).events == ()
    assert told("account/rateLimits/updated", {"rateLimits": None}).events == ()


def test_limits_without_a_name_count_where_they_belong() -> None:
    limits = {"limitId": None, "primary": {"usedPercent": 1}}
    assert only("account/rateLimits/updated", {"rateLimits": limits}) == RateLimits(payload=limits)
    assert told("something/else", {"limitId": None, "x": limits}).events == ()


def test_limits_that_a_model_wrote_into_an_item_are_not_believed() -> None:
    limits = {"limitId": "codex", "primary": {"usedPercent": 99}}
    assert told("item/custom/progress", {"arguments": limits}).events == ()


@pytest.mark.conformance("A-8")
def test_a_turn_that_completed_is_a_success() -> None:
    assert ended("completed") == TurnEnd(status=TurnStatus.COMPLETED)


@pytest.mark.conformance("A-8")
def test_a_turn_completed_with_status_failed_is_a_failure() -> None:
    event = ended("failed", error={"message": "no", "codexErrorInfo": "contextWindowExceeded"})
    assert event.status is TurnStatus.FAILED
    assert event.failure is not None
    assert event.failure.category is Category.AGENT_CONTEXT_FULL


@pytest.mark.conformance("A-8")
def test_a_turn_completed_with_status_interrupted_is_cancelled() -> None:
    event = ended("interrupted")
    assert event.status is TurnStatus.INTERRUPTED
    assert event.failure is not None
    assert event.failure.category is Category.TURN_CANCELLED
    assert ended("interrupted", error={"message": "by policy"}).failure is not None


def test_a_failure_without_words_is_unexplained() -> None:
    assert ended("failed").failure == UNEXPLAINED


def test_an_unknown_status_is_no_success() -> None:
    event = ended("exploded")
    assert event.status is TurnStatus.FAILED
    assert event.failure is not None
    assert "exploded" in event.failure.message


def test_the_older_names_of_a_turns_end_are_accepted() -> None:
    failed = only("turn/failed", {**IDS, "error": {"message": "no"}})
    assert isinstance(failed, TurnEnd)
    assert failed.failure is not None
    assert failed.failure.message == "no"
    cancelled = only("turn/cancelled", IDS)
    assert isinstance(cancelled, TurnEnd)
    assert cancelled.status is TurnStatus.INTERRUPTED


@pytest.mark.conformance("O-4")
def test_a_bare_usage_counts_at_the_end_of_a_turn_only() -> None:
    usage = {"usage": {"input_tokens": 5, "output_tokens": 1}}
    first, last = told("turn/completed", {**IDS, **usage}).events
    assert first == UsageUpdate(absolute=True, tokens=Tokens(5, 1, 6))
    assert last == TurnEnd(status=TurnStatus.COMPLETED)
    assert told("turn/other", usage).events == ()


def test_a_message_knows_whose_it_is() -> None:
    translation = told("turn/completed", {"threadId": "th", "turn": {"id": "tu", "status": "completed"}})
    assert (translation.thread_id, translation.turn_id) == ("th", "tu")
    assert told("turn/started", {"threadId": "th", "turn": {"id": "tu"}}).turn_started


def test_an_error_that_is_retried_is_progress_and_a_final_one_is_not() -> None:
    error = {
        "message": "Reconnecting... 1/1",
        "codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 401}},
    }
    retried = told("error", {**IDS, "error": error, "willRetry": True})
    final = told("error", {**IDS, "error": error, "willRetry": False})
    assert retried.events == (LogNotice(level="warning", message="Reconnecting... 1/1"),)
    assert final.events == (LogNotice(level="error", message="Reconnecting... 1/1"),)
    assert (retried.fatal, final.fatal) == (False, True)
    assert final.error is not None
    assert final.error.category is Category.AGENT_AUTH


@pytest.mark.parametrize(
    ("method", "params", "notice"),
    [
        ("warning", {"message": "careful"}, LogNotice(level="warning", message="careful")),
        ("configWarning", {"summary": "a", "details": "b"}, LogNotice(level="warning", message="a: b")),
        ("configWarning", {"summary": "a", "details": None}, LogNotice(level="warning", message="a")),
        ("deprecationNotice", {"summary": "old"}, LogNotice(level="info", message="old")),
        (
            "model/rerouted",
            {"fromModel": "a", "toModel": "b"},
            LogNotice(level="warning", message="model rerouted from a to b"),
        ),
        ("thread/compacted", {}, ContextCompacted()),
    ],
)
def test_warnings_become_notices(method: str, params: Any, notice: LogNotice) -> None:
    assert only(method, params) == notice


def test_a_warning_without_words_is_nothing() -> None:
    assert told("warning", {}).events == ()


@pytest.mark.conformance("A-11")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("turn/input_required", {}),
        ("turn/approval_required", {}),
        ("turn/other", {"requiresInput": True}),
        ("turn/other", {"turn": {"type": "needs_input"}}),
        ("turn/completed", {"inputRequired": True}),
    ],
)
def test_a_turn_that_waits_for_a_person_is_input_required(method: str, params: Any) -> None:
    assert only(method, params) == InputRequired(reason="the agent waits for a person")
    assert only(method, {**params, "message": "Who?"}) == InputRequired(reason="Who?")


@pytest.mark.parametrize(
    "method", ["item/agentMessage/delta", "skills/changed", "turn/diff/updated", "never/heard/of", ""]
)
def test_what_means_nothing_is_no_event(method: str) -> None:
    assert told(method, {**IDS, "delta": "x"}).events == ()
    assert told(method, None).events == ()


def test_params_that_cannot_be_read_are_malformed() -> None:
    (event,) = translate(ServerNotification("item/started", msgspec.Raw(b'{"item": "\xff"}'))).events
    assert isinstance(event, Malformed)
    assert event.excerpt.startswith("item/started: ")
