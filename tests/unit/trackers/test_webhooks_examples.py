"""GitHub's own examples of its deliveries, where npm's `@octokit/webhooks-examples` is installed."""

import hashlib
import hmac
import json
import os
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest

from harness.real import absent
from symphony.trackers.webhooks import GITHUB, WebhookDelivery

SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def examples() -> dict[str, list[dict[str, Any]]]:
    """The bodies by the name of their event."""
    place = os.environ.get("SYMPHONY_GITHUB_HOOKS")
    if not place:
        absent("example deliveries of GitHub", "npm: @octokit/webhooks-examples, in SYMPHONY_GITHUB_HOOKS")
    kinds = json.loads(Path(place).read_text(encoding="utf-8"))
    return {kind["name"]: kind["examples"] for kind in kinds}


def taken(event: str, content: Any) -> WebhookDelivery:
    body = json.dumps(content, ensure_ascii=False, indent=2).encode()
    mac = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "x-github-event": event,
        "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "x-hub-signature-256": f"sha256={mac}",
    }
    return GITHUB.verify(headers, body, secret=SECRET, now_ms=0)


def test_every_example_is_read(examples: dict[str, list[dict[str, Any]]]) -> None:
    for event, contents in examples.items():
        for content in contents:
            news = taken(event, content).is_news(lambda _: False)
            assert news == (event != "ping"), event


def test_comments_are_known_by_the_id_that_the_api_gives_them(
    examples: dict[str, list[dict[str, Any]]],
) -> None:
    assert examples["issue_comment"]
    for content in examples["issue_comment"]:
        own = str(content["comment"]["id"])
        assert not taken("issue_comment", content).is_news(partial(eq, own))


def test_comments_on_a_pull_request_are_known_as_ours_by_their_marker(
    examples: dict[str, list[dict[str, Any]]],
) -> None:
    """The daemon is not told the id of an answer in a thread before GitHub tells of it."""
    for content in examples["pull_request_review_comment"]:
        marked = {**content["comment"], "body": f"<!-- symphony:reply v1 key={'0' * 32} -->\nDone."}
        delivery = taken("pull_request_review_comment", {**content, "comment": marked})
        assert not delivery.is_news(lambda _: False)


def test_a_comment_with_our_marker_is_no_news(examples: dict[str, list[dict[str, Any]]]) -> None:
    content = examples["issue_comment"][0]
    marker = f"<!-- symphony:blocked v1 key={'0' * 32} fp={'1' * 32} -->\nIt waits."
    marked = {**content, "comment": {**content["comment"], "body": marker}}
    assert not taken("issue_comment", marked).is_news(lambda _: False)
