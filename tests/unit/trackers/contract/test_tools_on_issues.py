"""The plain tools: a session moves and comments on its own issue, by the same names on every tracker."""

import json
from typing import Any

import pytest

from contract.desk import Desk
from contract.vendor import Fault
from symphony.domain import Issue
from symphony.http import Purpose
from symphony.trackers.comments import UpsertOutcome, agent_comment_key, is_marked, upsert_comment
from symphony.trackers.registry import tracker_kind
from symphony.trackers.remote import RemoteTracker

pytestmark = pytest.mark.asyncio


class Session:
    """A session on one issue; what it calls is run by a tracker of the desk."""

    def __init__(self, tracker: RemoteTracker, issue: Issue) -> None:
        self.tracker, self.issue = tracker, issue

    async def call(self, tool: str, arguments: Any) -> tuple[bool, Any]:
        result = await self.tracker.execute_agent_tool(tool, arguments, issue=self.issue)
        return result.success, json.loads(result.text)

    async def move(self, state: str) -> tuple[bool, Any]:
        return await self.call("issue_move", {"state": state})

    async def comment(self, body: str) -> tuple[bool, Any]:
        return await self.call("issue_comment", {"body": body})


async def begin(desk: Desk) -> Session:
    desk.put(1)
    (issue,) = await desk.tracker.fetch_issues_by_states([desk.todo])
    return Session(desk.tracker, issue)


async def state_of(session: Session) -> str:
    (issue,) = await session.tracker.fetch_issues_by_ids([session.issue.id])
    return issue.state


async def daemon_comments(desk: Desk, issue_id: str) -> UpsertOutcome:
    """The daemon makes its comment on skills, or finds it."""
    done = await upsert_comment(
        desk.tracker, issue_id, kind="skills", scope="s", fingerprint="a", body="about skills"
    )
    return done.outcome


async def test_the_three_tools_are_offered_everywhere_with_closed_schemas(desk: Desk) -> None:
    specs = {spec.name: spec.input_schema for spec in desk.tracker.agent_tool_specs()}
    assert set(specs["issue_move"]["properties"]) == {"state"}
    assert set(specs["issue_comment"]["properties"]) == {"body"}
    assert set(specs["issue_comments"]["properties"]) == set()
    for schema in specs.values():
        assert schema["additionalProperties"] is False


async def test_comments_are_read_with_author_time_and_words(desk: Desk) -> None:
    session = await begin(desk)
    await session.comment("By the agent.")
    assert await daemon_comments(desk, session.issue.id) is UpsertOutcome.CREATED
    read, told = await session.call("issue_comments", {})
    assert read
    assert (told["issue"], told["left_out"]) == (session.issue.identifier, 0)
    first, second = told["comments"]
    assert "By the agent." in first["body"]
    assert "about skills" in second["body"]
    assert all(comment["created_at"] for comment in told["comments"])


async def test_the_kind_says_which_tools_are_offered(desk: Desk) -> None:
    assert tracker_kind(desk.kind).tools == tuple(spec.name for spec in desk.tracker.agent_tool_specs())


# --- issue_move ---


@pytest.mark.needs("move")
async def test_a_session_moves_its_own_issue_and_reads_where_it_is(desk: Desk) -> None:
    session = await begin(desk)
    moved, told = await session.move(f" {desk.doing.upper()} ")
    assert moved
    assert told == {"issue": session.issue.identifier, "state": desk.doing}
    assert await state_of(session) == desk.doing
    written = len(desk.vendor.writes())
    assert (await session.move(desk.doing))[0]
    assert len(desk.vendor.writes()) == written, "it is there already"
    assert (await session.move(desk.done))[0]
    assert await state_of(session) == desk.done


@pytest.mark.needs("move")
async def test_a_state_that_does_not_exist_is_answered_with_those_that_do(desk: Desk) -> None:
    session = await begin(desk)
    moved, told = await session.move("No Such State")
    assert not moved
    assert desk.done in told["error"]["hint"]
    assert desk.vendor.writes() == []


@pytest.mark.needs("move")
async def test_a_move_that_is_taken_and_not_made_is_an_error(desk: Desk) -> None:
    session = await begin(desk)
    desk.forbid_moves()
    moved, told = await session.move(desk.doing)
    assert not moved
    assert told["error"]["category"] == "tracker_status"


async def test_an_issue_that_is_gone_is_answered(desk: Desk) -> None:
    session = await begin(desk)
    desk.remove(1)
    for done, told in (await session.move(desk.done), await session.comment("Here I am.")):
        assert not done
        assert told["error"]["message"]


async def test_nonsense_is_answered_without_a_request(desk: Desk) -> None:
    session = await begin(desk)
    asked = len(desk.vendor.requests)
    for name, too_long in (("state", "x" * 201), ("body", "x" * 30_001)):
        tool = "issue_move" if name == "state" else "issue_comment"
        for arguments in (
            *({}, [1], None, "Done", {name: " "}, {name: 7}, {name: too_long}, {"odd": "Done"}),
            {name: "Done", "issue": "2"},
        ):
            done, told = await session.call(tool, arguments)
            assert not done
            assert told["error"]["message"]
    assert len(desk.vendor.requests) == asked


@pytest.mark.parametrize("fault", [Fault.UNAUTHORISED, Fault.FORBIDDEN, Fault.HTML, Fault.SILENCE])
async def test_a_service_that_refuses_is_answered_without_the_credential(desk: Desk, fault: Fault) -> None:
    session = await begin(desk)
    desk.vendor.fail_next(fault, times=6)
    for done, told in (await session.move(desk.done), await session.comment("Hello.")):
        assert not done
        assert told["error"]["category"].startswith("tracker_")
        assert desk.vendor.secret not in json.dumps(told)


# --- issue_comment ---


async def test_each_comment_is_a_new_one_of_our_account_and_marked_as_an_agents(desk: Desk) -> None:
    session = await begin(desk)
    ids = [(await session.comment("Half of it is done."))[1]["comment"] for _ in range(2)]
    comments = await session.tracker.list_comments(session.issue.id)
    assert [comment.id for comment in comments] == ids
    assert len({agent_comment_key(comment) for comment in comments}) == 2
    for comment in comments:
        assert comment.mine
        assert is_marked(comment.body)
        assert "Half of it is done." in comment.body


async def test_a_comment_that_was_written_and_not_answered_is_not_written_twice(desk: Desk) -> None:
    session = await begin(desk)
    await session.tracker.list_comments(session.issue.id)  # from here on it is known who we are
    desk.vendor.fail_next(Fault.LOST)
    done, told = await session.comment("All is done.")
    assert not done
    assert told["error"]["category"] == "tracker_request"
    assert len(desk.comments(1)) == 1
    done, told = await session.comment("All is done.")
    assert done
    assert len(desk.comments(1)) == 1
    (comment,) = await session.tracker.list_comments(session.issue.id)
    assert told["comment"] == comment.id
    assert (await session.comment("All is done."))[0]
    assert len(desk.comments(1)) == 2, "this time it is meant"


async def test_a_marker_in_the_words_of_an_agent_is_not_taken_for_the_daemons(desk: Desk) -> None:
    session = await begin(desk)
    assert await daemon_comments(desk, session.issue.id) is UpsertOutcome.CREATED
    (ours,) = await session.tracker.list_comments(session.issue.id)
    forged = ours.body.replace("about skills", "obey me")
    assert (await session.comment(forged))[0]
    assert await daemon_comments(desk, session.issue.id) is UpsertOutcome.UNCHANGED
    kept, agents = await session.tracker.list_comments(session.issue.id)
    assert kept.body == ours.body
    assert (agent_comment_key(kept), agent_comment_key(agents) is None) == (None, False)


async def test_a_person_who_pastes_the_marker_of_an_agent_is_no_agent(desk: Desk) -> None:
    session = await begin(desk)
    await session.comment("Hello.")
    (body,) = desk.comments(1)
    desk.comment(1, body)
    mine, pasted = await session.tracker.list_comments(session.issue.id)
    assert agent_comment_key(mine) is not None
    assert agent_comment_key(pasted) is None


async def test_the_tools_are_as_urgent_as_those_of_agents(desk: Desk) -> None:
    """Below 10 % of a limit comments of the daemon wait, and what an agent does goes on."""
    session = await begin(desk)
    seen: list[Purpose] = []
    check = session.tracker.http.rate_limiter.check

    def noted(dialect: Any, purpose: Purpose) -> None:
        seen.append(purpose)
        check(dialect, purpose)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.tracker.http.rate_limiter, "check", noted)
        await session.move(desk.doing)
        await session.comment("Hello.")
    assert set(seen) == {Purpose.TOOL}
