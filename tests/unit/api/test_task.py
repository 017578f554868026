"""The document of an issue as the tracker has it: bounded, and told apart by who wrote what."""

from datetime import UTC, datetime

import pytest

from harness.chronicle import conforms
from harness.outbox import make_state
from harness.scheduling import make_issue
from symphony.api import models
from symphony.api.task import (
    MAX_ALL_COMMENTS_CHARS,
    MAX_COMMENT_CHARS,
    MAX_COMMENTS,
    MAX_DESCRIPTION_CHARS,
    TrackerAnswer,
    UnsentComment,
    task_document,
)
from symphony.domain import Blocker, Issue
from symphony.trackers.base import Comment
from symphony.trackers.comments import AGENT_MARK, ON_BEHALF, SUPERSEDED, agent_comment

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
KEY = "0" * 32
PERSONS = f"<!-- symphony:person v1 key={KEY} fp={KEY} -->\n{ON_BEHALF}\n\n"
DAEMONS = f"<!-- symphony:blocked v1 key={KEY} fp={KEY} -->\n"


def document(
    answer: TrackerAnswer,
    *,
    known: Issue | None = None,
    unsent: tuple[UnsentComment, ...] = (),
) -> models.Task:
    found = task_document(
        make_state(),
        issue_id="1",
        identifier="SYM-1",
        known=known,
        answer=answer,
        unsent=unsent,
        can_comment=True,
        now=NOW,
    )
    conforms(found, "Task")
    return found


def of_comments(*comments: Comment) -> models.Task:
    return document(TrackerAnswer(issue=make_issue(), comments=comments, answered=True))


@pytest.mark.parametrize(
    ("body", "fields", "shown"),
    [
        ("Blue", {"mine": False, "may_answer": True, "author": "ann"}, ("person", "ann", "Blue")),
        ("Blue", {"mine": False, "may_answer": None, "author": "eve"}, ("person", "eve", "Blue")),
        ("Blue", {"mine": True, "may_answer": None, "author": "me"}, ("person", "me", "Blue")),
        ("Blue", {"mine": False, "may_answer": False, "author": "ci[bot]"}, ("bot", "ci[bot]", "Blue")),
        (f"{DAEMONS}Red?", {"mine": True, "author": "me"}, ("daemon", "me", "Red?")),
        (SUPERSEDED, {"mine": True, "author": "me"}, ("daemon", "me", SUPERSEDED)),
        (f"{AGENT_MARK}\nDone", {"mine": True, "author": "me"}, ("agent", "me", "Done")),
        (agent_comment("Done", key=KEY), {"mine": True, "author": "me"}, ("agent", "me", "Done")),
        ("Done", {"mine": False, "may_answer": False, "author": "agent"}, ("agent", "agent", "Done")),
        (f"{PERSONS}Blue", {"mine": True, "author": "a-bot"}, ("person", "operator", "Blue")),
        (f"{PERSONS}Blue", {"mine": False, "may_answer": True, "author": "ann"}, ("person", "ann", "Blue")),
        (f"{PERSONS}Blue", {"mine": False, "author": "b"}, ("daemon", "b", f"{ON_BEHALF}\n\nBlue")),
        (f"{AGENT_MARK}\n{PERSONS}yes", {"mine": True, "author": "me"}, ("agent", "me", f"{PERSONS}yes")),
    ],
)
def test_comments_are_told_apart(body: str, fields: dict[str, object], shown: tuple[str, str, str]) -> None:
    (found,) = of_comments(Comment(id="c1", body=body, **fields)).comments  # type: ignore[arg-type]
    assert (found.by, found.author, found.body) == shown


def test_the_newest_comments_that_fit_are_shown_and_what_is_on_its_way_comes_last() -> None:
    many = [Comment(id=f"c{number}", body=f"{number}", mine=True) for number in range(MAX_COMMENTS + 9)]
    found = of_comments(*many)
    assert (len(found.comments), found.comments_left_out) == (MAX_COMMENTS, 9)
    assert found.comments[-1].id == many[-1].id

    long = [Comment(id=f"c{number}", body="x" * 2 * MAX_COMMENT_CHARS, mine=True) for number in range(20)]
    found = of_comments(*long)
    assert len(found.comments) == MAX_ALL_COMMENTS_CHARS // MAX_COMMENT_CHARS
    assert {(len(one.body), one.cut) for one in found.comments} == {(MAX_COMMENT_CHARS, True)}

    unsent = UnsentComment(text="Blue", since_wall_ms=0, given_up=False, failure="it is down")
    found = document(TrackerAnswer(failure="it is down"), unsent=(unsent,))
    (waiting,) = found.comments
    assert (waiting.id, waiting.by, waiting.sent, waiting.failure) == (
        None,
        "person",
        "waiting",
        "it is down",
    )


def test_a_description_is_bounded_and_known_also_without_the_tracker() -> None:
    issue = make_issue(description="x" * (MAX_DESCRIPTION_CHARS + 1), labels=("a",), priority=2)
    found = document(TrackerAnswer(failure="it is down"), known=issue)
    assert (len(found.description or ""), found.description_cut) == (MAX_DESCRIPTION_CHARS, True)
    assert (found.labels, found.priority, found.gone) == (("a",), 2, False)
    assert document(TrackerAnswer(answered=True), known=issue).gone
    blank = document(TrackerAnswer(issue=make_issue(description=" \n"), answered=True))
    assert (blank.description, blank.gone) == (None, False)


def test_what_blocks_has_its_state_and_a_page_where_it_has_a_name() -> None:
    blockers = (
        Blocker(id="2", identifier="SYM-2", state="Done"),
        Blocker(id="7", identifier=None, state="Todo"),
        Blocker(id=None, identifier="OPS-1", state=None),
    )
    found = document(TrackerAnswer(issue=make_issue(blocked_by=blockers), answered=True)).blocked_by
    assert [(one.issue_identifier, one.state, one.over, one.known) for one in found] == [
        ("SYM-2", "Done", True, True),
        ("7", "Todo", False, False),
        ("OPS-1", None, False, True),
    ]
