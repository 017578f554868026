"""Who has an issue, or would get it, and who is limited, as the documents tell it."""

from datetime import UTC, datetime
from typing import Any

from harness.chronicle import sent
from harness.scheduling import Story, make_failure, make_issue
from symphony.api.documents import issue_document, state_document
from symphony.api.history import History
from symphony.domain import Category
from symphony.scheduler import AgentInfo, AgentRule

AGENTS = {
    "codex": AgentInfo(kind="codex", section="codex", stall_timeout_ms=0, model="big"),
    "second": AgentInfo(kind="claude", section="agents.second", stall_timeout_ms=0),
}
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _story(**settings: Any) -> Story:
    values = {
        "agents": AGENTS,
        "poll_interval_ms": 10_000_000,
        "rules": (AgentRule(use="second", label="ui"),),
    }
    return Story(make_issue("1"), make_issue("2", labels=("ui",)), **values | settings).begin()


def _document(story: Story) -> dict[str, Any]:
    return sent(state_document(story.state, History(), now_ms=story.now, now=NOW))


def test_a_running_issue_tells_who_runs_it_although_the_rules_changed_since() -> None:
    story = _story()
    rows = {row["issue_identifier"]: row["agent"] for row in _document(story)["running"]}
    assert rows["SYM-1"] == {
        "name": "codex",
        "kind": "codex",
        "model": "big",
        "reason": "the default (agent.kind)",
        "instead_of": None,
    }
    assert (rows["SYM-2"]["name"], rows["SYM-2"]["kind"]) == ("second", "claude")
    one = issue_document(story.state, History(), "SYM-2", now_ms=story.now, now=NOW)
    assert one is not None
    assert sent(one)["agent"] == rows["SYM-2"]


def test_a_limited_agent_says_until_when_and_what_waits_tells_who_it_waits_for() -> None:
    story = _story(max_concurrent_agents=1)
    failure = make_failure("slow down", category=Category.AGENT_RATE_LIMITED, retry_after_ms=90_000)
    story.fails(failure=failure)
    document = _document(story)
    limited = {agent["name"]: agent["limited"] for agent in document["agents"]}
    assert limited["second"] is None
    assert limited["codex"] == {
        "until": "2026-03-01T12:01:30Z",
        "code": "agent_rate_limited",
        "message": "slow down",
        "times": 1,
    }
    (retrying,) = document["retrying"]
    assert retrying["agent"]["name"] == "codex"


def test_what_would_get_an_issue_is_told_before_it_starts() -> None:
    story = _story(max_concurrent_agents=0)
    assert [row["agent"]["name"] for row in _document(story)["waiting"]] == ["codex", "second"]
    assert {agent["limited"] for agent in _document(story)["agents"]} == {None}
