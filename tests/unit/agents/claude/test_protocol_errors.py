import time
from typing import Any

import pytest

from symphony.agents.claude.protocol import turn_failure
from symphony.domain import Blame, Category

RESULT = {"subtype": "success", "is_error": True, "api_error_status": None, "terminal_reason": "completed"}


@pytest.mark.parametrize(
    ("changes", "name", "category"),
    [
        (
            {"api_error_status": 401, "result": "Invalid API key"},
            "authentication_failed",
            Category.AGENT_AUTH,
        ),
        ({"api_error_status": 403, "result": "no"}, None, Category.AGENT_AUTH),
        ({"result": "Not logged in · Please run /login"}, None, Category.AGENT_AUTH),
        (
            {"api_error_status": 429, "result": "Request rejected (429)"},
            "rate_limit",
            Category.AGENT_RATE_LIMITED,
        ),
        ({"result": "slow down"}, "rate_limit", Category.AGENT_RATE_LIMITED),
        ({"api_error_status": 400, "result": "Credit balance is too low"}, None, Category.AGENT_USAGE_LIMIT),
        ({"result": "x"}, "billing_error", Category.AGENT_USAGE_LIMIT),
        (
            {"api_error_status": 429, "result": "You've hit your weekly limit"},
            "rate_limit",
            Category.AGENT_USAGE_LIMIT,
        ),
        ({"result": "5-hour limit reached"}, None, Category.AGENT_USAGE_LIMIT),
        ({"terminal_reason": "prompt_too_long", "result": "x"}, None, Category.AGENT_CONTEXT_FULL),
        ({"api_error_status": 400, "result": "Prompt is too long"}, None, Category.AGENT_CONTEXT_FULL),
        ({"api_error_status": 500, "result": "API Error: 500"}, "server_error", Category.AGENT_UNAVAILABLE),
        ({"api_error_status": 529, "result": "API Error: 529"}, None, Category.AGENT_UNAVAILABLE),
        (
            {"result": "Unable to connect (ConnectionRefused)"},
            "unknown",
            Category.AGENT_UNAVAILABLE,
        ),
        ({"api_error_status": 400, "result": "connection error in your text"}, None, Category.TURN_FAILED),
        ({"api_error_status": "401", "result": "odd"}, None, Category.TURN_FAILED),
    ],
)
def test_a_failed_turn_has_a_class(changes: dict[str, Any], name: str | None, category: Category) -> None:
    failure = turn_failure({**RESULT, **changes}, name)
    assert failure.category is category
    assert failure.retryable == (category is not Category.AGENT_AUTH)
    assert bool(failure.hint) == (category in {Category.AGENT_AUTH, Category.AGENT_USAGE_LIMIT})


@pytest.mark.parametrize("name", ["model_not_found", None])
def test_an_unknown_model_blames_the_configuration(name: str | None) -> None:
    failure = turn_failure({**RESULT, "api_error_status": 404, "result": "no model"}, name)
    assert (failure.category, failure.blame) == (Category.TURN_FAILED, Blame.CONFIG)
    assert not failure.retryable
    assert "claude.model" in str(failure.hint)
    assert failure.status == 404


@pytest.mark.parametrize(("now_s", "after_ms"), [(1_749_923_990, 10_000), (1_749_999_999, 0)])
def test_a_limit_that_says_when_it_ends_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, now_s: int, after_ms: int
) -> None:
    monkeypatch.setattr(time, "time", lambda: now_s)
    result = {**RESULT, "result": "Claude AI usage limit reached|1749924000"}
    assert turn_failure(result, None).retry_after_ms == after_ms


def test_words_are_taken_from_wherever_they_are_and_never_missing() -> None:
    both = {**RESULT, "result": "one", "errors": ["two", 3, " "]}
    assert turn_failure(both, None).message == "one; two"
    nothing = turn_failure({"subtype": "error_max_turns"}, None)
    assert nothing.message == "the turn failed without a message (error_max_turns)"
    assert turn_failure({}, None).message == "the turn failed without a message (no subtype)"


def test_no_credential_is_in_a_message() -> None:
    result = {**RESULT, "result": "refused: x-api-key: sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}
    assert "sk-ant-api03-aaaa" not in turn_failure(result, None).message
