"""Who may answer by a comment, on every tracker: people with write access, and the author of the issue."""

from typing import Any

import pytest

from contract.desk import Desk
from symphony.trackers.base import Comment
from symphony.trackers.comments import (
    AGENT_MARK,
    ON_BEHALF,
    OPERATOR,
    PERSON,
    Replies,
    WrittenBy,
    attributed,
    is_marked,
    replies_since,
    upsert_comment,
)

pytestmark = pytest.mark.asyncio
QUESTION: dict[str, str] = {"kind": "blocked", "scope": "s", "occasion": "d1-7"}
HEARD = frozenset({"writer", "author"})


async def asked(desk: Desk) -> str:
    """An issue on which the daemon asks, after people talked there."""
    issue_id = desk.put(1)
    desk.say(1, "said before", "writer")
    await upsert_comment(desk.tracker, issue_id, fingerprint="f", body="Red or blue?", **QUESTION)
    return issue_id


async def written(desk: Desk, issue_id: str) -> Replies:
    found = await replies_since(desk.another(), issue_id, **QUESTION)
    assert found is not None
    return found


def told(comments: tuple[Comment, ...]) -> list[str]:
    return [comment.body.strip() for comment in comments]


async def test_who_may_answer(desk: Desk) -> None:
    issue_id = await asked(desk)
    for voice in sorted(desk.voices):
        desk.say(1, f"said by {voice}", voice)
    found = await written(desk, issue_id)
    assert told(found.answers) == [f"said by {voice}" for voice in sorted(desk.voices & HEARD)]
    assert told(found.others) == [f"said by {voice}" for voice in sorted(desk.voices & {"stranger"})]
    assert all(comment.author for comment in (*found.answers, *found.others))


async def test_a_person_with_the_account_of_the_daemon_may_answer(desk: Desk) -> None:
    issue_id = await asked(desk)
    desk.comment(1, "Blue", mine=True)
    assert told((await written(desk, issue_id)).answers) == ["Blue"]


async def test_what_a_person_writes_by_symphony_is_a_persons(desk: Desk) -> None:
    issue_id = await asked(desk)
    for _ in range(2):  # the second try finds the first
        await upsert_comment(
            desk.tracker,
            issue_id,
            kind=PERSON,
            scope="s",
            occasion="1",
            fingerprint="f",
            body=f"{ON_BEHALF}\n\nBlue\n\nand small",
        )
    (answer,) = (await written(desk, issue_id)).answers
    assert (answer.body.strip(), answer.author) == ("Blue\n\nand small", OPERATOR)
    comments = await desk.another().list_comments(issue_id)
    assert ON_BEHALF in comments[-1].body, "people in the tracker see whose it is"
    assert [attributed(each)[0] for each in comments[-2:]] == [WrittenBy.DAEMON, WrittenBy.PERSON]


async def test_no_comment_of_the_daemon_answers(desk: Desk) -> None:
    issue_id = await asked(desk)
    await upsert_comment(desk.tracker, issue_id, kind="skills", scope="s", fingerprint="f", body="no answer")
    other = {**QUESTION, "occasion": "d1-9"}
    await upsert_comment(desk.tracker, issue_id, fingerprint="f", body="And the size?", **other)
    assert await written(desk, issue_id) == Replies()


async def test_a_question_that_is_not_on_the_issue_has_no_answers(desk: Desk) -> None:
    issue_id = desk.put(1)
    desk.say(1, "Blue", "writer")
    assert await replies_since(desk.tracker, issue_id, **QUESTION) is None


async def test_while_nobody_wrote_one_look_costs_one_list(desk: Desk) -> None:
    issue_id = await asked(desk)
    await desk.tracker.list_comments(issue_id)
    before = len(desk.vendor.requests)
    assert await replies_since(desk.tracker, issue_id, **QUESTION) == Replies()
    since = [asked.path for asked in desk.vendor.requests[before:]]
    assert len([path for path in since if "/properties/" not in path]) == 1, "but for a site that hides marks"


async def test_what_an_agent_writes_by_the_raw_tool_is_marked_and_no_answer(desk: Desk) -> None:
    """With a credential that is wide enough, an agent of another issue may comment on this one."""
    issue_id = await asked(desk)
    (issue,) = await desk.tracker.fetch_issues_by_ids([issue_id])
    name, arguments = desk.comment_call(1, "I am sure it is red")
    result = await desk.tracker.execute_agent_tool(name, arguments, issue=issue)
    assert result.success, result.text
    newest: Any = (await desk.tracker.list_comments(issue_id))[-1]
    assert newest.mine
    assert newest.body.startswith(AGENT_MARK)
    assert is_marked(newest.body)
    assert "I am sure it is red" in newest.body
    assert await written(desk, issue_id) == Replies()
