import json
from typing import Any

import pytest

from contract.desk import Desk
from contract.desks import DESKS
from contract.vendor import Fault, Given
from symphony.config import TrackerSettings
from symphony.domain import Category, Issue
from symphony.trackers.base import (
    AccountCapability,
    CommentCapability,
    MovingCapability,
    SkippingCapability,
    TrackerConfigError,
    TrackerError,
)
from symphony.trackers.registry import TRACKERS

pytestmark = pytest.mark.asyncio


async def first(desk: Desk) -> Issue:
    desk.put(1)
    (issue,) = await desk.tracker.fetch_issues_by_states([desk.todo])
    return issue


# --- the raw tool ---


@pytest.mark.conformance("A-12")
async def test_the_daemon_runs_the_tool_with_its_own_credential(desk: Desk) -> None:
    name, arguments = desk.raw_call(await first(desk))
    (spec,) = desk.tracker.flows.tools()
    assert spec.name == name
    assert spec.input_schema["additionalProperties"] is False
    result = await desk.tracker.execute_agent_tool(name, arguments, issue=await first(desk))
    assert result.success
    assert json.loads(result.text)["body"]
    assert desk.vendor.secret not in result.text


@pytest.mark.parametrize("arguments", [{}, {"query": 7}, [1], {"odd": 1}, {"path": "x"}, "", None])
async def test_nonsense_is_answered_without_a_request(desk: Desk, arguments: Any) -> None:
    issue = await first(desk)
    name, _ = desk.raw_call(issue)
    asked = len(desk.vendor.requests)
    for tool in (name, "no_such_tool"):
        result = await desk.tracker.execute_agent_tool(tool, arguments, issue=issue)
        assert not result.success
        assert json.loads(result.text)["error"]["message"]
    assert len(desk.vendor.requests) == asked


@pytest.mark.parametrize("fault", [Fault.UNAUTHORISED, Fault.SERVER_ERROR, Fault.HTML, Fault.SILENCE])
async def test_a_tool_that_fails_is_answered(desk: Desk, fault: Fault) -> None:
    issue = await first(desk)
    name, arguments = desk.raw_call(issue)
    desk.vendor.fail_next(fault, times=3)
    result = await desk.tracker.execute_agent_tool(name, arguments, issue=issue)
    assert not result.success
    assert desk.vendor.secret not in result.text


async def test_an_answer_without_end_is_cut(desk: Desk) -> None:
    issue = await first(desk)
    name, arguments = desk.raw_call(issue)
    desk.vendor.fail_next(Given(body={"data": "x" * 500_000}))
    result = await desk.tracker.execute_agent_tool(name, arguments, issue=issue)
    assert len(result.text) < 70_000
    assert json.loads(result.text)["cut_at"]


async def test_a_credential_that_the_service_shows_is_shown_to_nobody(desk: Desk) -> None:
    issue = await first(desk)
    name, arguments = desk.raw_call(issue)
    for secret in (desk.vendor.secret, desk.vendor.secret.replace("/", "\\/")):
        desk.vendor.fail_next(Given(raw=f'{{"data": "your key is {secret}"}}'.encode()))
        result = await desk.tracker.execute_agent_tool(name, arguments, issue=issue)
        assert result.success
        assert json.loads(result.text)["body"] == {"data": "your key is ***"}


async def test_the_raw_tool_can_be_switched_off(desk: Desk) -> None:
    specs = desk.another(scope="off").agent_tool_specs()
    assert [spec.name for spec in specs] == ["issue_move", "issue_comment", "issue_comments"]


# --- moves, and what there is ---


@pytest.mark.needs("move")
async def test_an_issue_is_moved_and_read_back(desk: Desk) -> None:
    issue_id = desk.put(1)
    assert await desk.tracker.move_issue(issue_id, desk.doing.upper()) == desk.doing
    (issue,) = await desk.tracker.fetch_issues_by_ids([issue_id])
    assert issue.state == desk.doing
    written = len(desk.vendor.writes())
    await desk.tracker.move_issue(issue_id, desk.doing)
    assert len(desk.vendor.writes()) == written, "it is there already"
    assert await desk.tracker.move_issue(issue_id, desk.done) == desk.done


@pytest.mark.needs("move")
async def test_a_move_that_the_service_takes_and_does_not_make_is_a_failure(desk: Desk) -> None:
    issue_id = desk.put(1)
    desk.forbid_moves()
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue(issue_id, desk.doing)
    assert caught.value.failure.category is Category.TRACKER_STATUS


@pytest.mark.needs("move")
async def test_a_state_that_is_not_there_is_refused(desk: Desk) -> None:
    issue_id = desk.put(1)
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue(issue_id, "No Such State")
    assert caught.value.failure.hint
    assert desk.vendor.writes() == []


@pytest.mark.needs("move")
async def test_an_issue_that_is_not_there_cannot_be_moved(desk: Desk) -> None:
    issue_id = desk.put(1)
    desk.remove(1)
    with pytest.raises(TrackerError):
        await desk.tracker.move_issue(issue_id, desk.doing)


async def test_a_look_tells_who_we_are_and_what_there_is(desk: Desk) -> None:
    desk.put(1)
    seen = await desk.tracker.account_info()
    assert seen.login
    assert seen.scope
    assert {state.lower() for state in seen.states} >= {desk.todo.lower(), desk.done.lower()}


async def test_every_capability_is_there(desk: Desk) -> None:
    for capability in (CommentCapability, MovingCapability, AccountCapability, SkippingCapability):
        assert isinstance(desk.tracker, capability)


# --- settings ---


@pytest.mark.conformance("C-2", "T-9")
async def test_a_missing_credential_is_a_missing_secret_with_its_key(desk: Desk) -> None:
    with pytest.raises(TrackerConfigError) as caught:
        desk.configure(environment={})
    assert caught.value.failure.category is Category.MISSING_TRACKER_SECRET
    (location,) = {problem.location for problem in caught.value.problems}
    assert location[:2] == ("tracker", "provider")


@pytest.mark.conformance("C-2", "T-9")
async def test_every_required_key_is_told_at_once(desk: Desk) -> None:
    with pytest.raises(TrackerConfigError) as caught:
        desk.configure(TrackerSettings(kind=desk.kind), environment=desk.environment())
    assert {problem.failure.category for problem in caught.value.problems} <= {
        Category.INVALID_TRACKER_CONFIG,
        Category.MISSING_TRACKER_SECRET,
    }
    assert all(problem.failure.hint for problem in caught.value.problems)


async def test_plain_http_to_another_machine_has_to_be_wanted(desk: Desk) -> None:
    (key,) = [key for key, value in desk.provider().items() if str(value).startswith("https://")]
    for address, wanted in (
        ("http://tracker.example.test/x", False),
        ("http://127.0.0.1:3000/x", True),
        ("http://localhost/x", True),
        ("https://user:pass@tracker.example.test", False),
        ("ftp://tracker.example.test", False),
        ("tracker.example.test", False),
    ):
        settings = desk.settings(**{key: address})
        if wanted:
            desk.configure(settings)
            continue
        with pytest.raises(TrackerConfigError):
            desk.configure(settings)
    desk.configure(desk.settings(**{key: "http://tracker.example.test/x", "insecure_http": True}))


async def test_the_registry_makes_it(desk: Desk) -> None:
    assert type(desk.by_registry()) is type(desk.tracker)
    assert desk.kind in TRACKERS.names
    assert type(desk) in DESKS.values()
