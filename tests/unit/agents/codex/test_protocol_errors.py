from typing import Any

import pytest

from symphony.agents.codex.protocol import describe_error, turn_failure
from symphony.domain import Blame, Category


@pytest.mark.parametrize(
    ("info", "category"),
    [
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, Category.AGENT_AUTH),
        ({"httpConnectionFailed": {"httpStatusCode": 403}}, Category.AGENT_AUTH),
        ("unauthorized", Category.AGENT_AUTH),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, Category.AGENT_RATE_LIMITED),
        ("rateLimitExceeded", Category.AGENT_RATE_LIMITED),
        ("usageLimitExceeded", Category.AGENT_USAGE_LIMIT),
        ("sessionBudgetExceeded", Category.AGENT_USAGE_LIMIT),
        ("contextWindowExceeded", Category.AGENT_CONTEXT_FULL),
        ("internalServerError", Category.AGENT_UNAVAILABLE),
        ("serverOverloaded", Category.AGENT_UNAVAILABLE),
        ("other", Category.TURN_FAILED),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, Category.AGENT_UNAVAILABLE),
        ({"responseStreamDisconnected": None}, Category.AGENT_UNAVAILABLE),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 503}}, Category.AGENT_UNAVAILABLE),
        ({"httpConnectionFailed": {"httpStatusCode": 400}}, Category.TURN_FAILED),
        ({"activeTurnNotSteerable": {"turnKind": "review"}}, Category.TURN_FAILED),
        ("whatComesNext", Category.TURN_FAILED),
        (None, Category.TURN_FAILED),
        (7, Category.TURN_FAILED),
    ],
)
def test_each_name_of_an_error_has_a_category(info: Any, category: Category) -> None:
    failure = turn_failure({"message": "m", "codexErrorInfo": info})
    assert failure.category is category
    assert failure.retryable is (category is not Category.AGENT_AUTH)


def test_a_missing_key_is_a_matter_of_login() -> None:
    error = {"message": "Missing environment variable: `LOCAL_KEY`.", "codexErrorInfo": "other"}
    failure = turn_failure(error)
    assert failure.category is Category.AGENT_AUTH
    assert failure.hint is not None


def test_a_model_that_does_not_exist_blames_the_configuration() -> None:
    failure = turn_failure({"message": "m", "codexErrorInfo": "modelNotFound"})
    assert (failure.blame, failure.retryable) == (Blame.CONFIG, False)


def test_a_sandbox_error_blames_the_host() -> None:
    assert turn_failure({"message": "m", "codexErrorInfo": "sandboxError"}).blame is Blame.HOST


def test_message_and_details_are_one_redacted_line() -> None:
    error = {"message": "failed:\nhttps://me:pw@h/v1?key=abc", "additionalDetails": "Bearer abcdefgh"}
    assert describe_error(error) == "failed: https://***@h/v1?*** Bearer ***"


def test_an_error_without_a_message_still_says_something() -> None:
    assert describe_error({"message": 3}) == "the turn failed without a message"
