from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from harness.scheduling import make_failure
from symphony.domain import DeliveredBranch, Issue, Verification, WorkSize
from symphony.scheduler import (
    ApprovalWay,
    IssueResult,
    LineComment,
    ResultStatus,
    ReviewDecision,
    ReviewFacts,
    approval_way,
    hindrance_of,
    judge_review,
    review_comment,
)
from symphony.scheduler.review import MAX_REVIEW_CHARS

HEAD, OTHER = "a" * 40, "b" * 40
ISSUE = Issue(id="1", identifier="SYM-1", title="T", state="In Review", dispatchable=True)
DELIVERED = DeliveredBranch(work=WorkSize(commits=1), branch="symphony/SYM-1", head=HEAD)
RESULT = IssueResult(issue=ISSUE, status=ResultStatus.READY, delivered=DELIVERED)
PUSHED = replace(RESULT, delivered=structs.replace(DELIVERED, pushed=True))
FORMER = replace(RESULT, verification=Verification(head=OTHER))
PASSED = replace(RESULT, verification=Verification(head=HEAD))
FACTS = ReviewFacts(result=RESULT, shown=HEAD, comment="Please", merged=True, command="git merge it")
BACK, APPROVE = ReviewDecision.SEND_BACK, ReviewDecision.APPROVE


@pytest.mark.parametrize(
    ("decision", "changes", "code"),
    [
        (BACK, {}, None),
        (APPROVE, {}, None),
        (BACK, {"result": None}, "not_ready"),
        (APPROVE, {"result": replace(RESULT, delivered=None)}, "not_ready"),
        (APPROVE, {"result": replace(RESULT, status=ResultStatus.OPEN)}, "not_ready"),
        (APPROVE, {"result": replace(RESULT, status=ResultStatus.ENDED)}, "not_ready"),
        (BACK, {"decided": APPROVE}, "decided"),
        (APPROVE, {"decided": BACK}, "decided"),
        (BACK, {"shown": None}, "not_shown"),
        (APPROVE, {"shown": OTHER}, "head_moved"),
        (APPROVE, {"shown": OTHER, "decided": BACK}, "decided"),
        (BACK, {"comment": ""}, "nothing_said"),
        (APPROVE, {"comment": ""}, None),
        (BACK, {"comment": "x" * (MAX_REVIEW_CHARS + 1)}, "too_long"),
        (BACK, {"has_comments": False}, "no_comments"),
        (APPROVE, {"has_comments": False}, "no_comments"),
        (APPROVE, {"has_comments": False, "comment": ""}, None),
        (APPROVE, {"verifies": True}, "unverified"),
        (BACK, {"verifies": True}, None),
        (APPROVE, {"verifies": True, "accepts_unverified": True}, None),
        (APPROVE, {"verifies": True, "result": PASSED}, None),
        (APPROVE, {"verifies": True, "result": FORMER}, "unverified"),
        (APPROVE, {"merged": False}, "not_merged"),
        (BACK, {"merged": False}, None),
        (APPROVE, {"merged": False, "way": ApprovalWay.MERGE}, None),
        *(
            (APPROVE, {"way": way, "verifies": True, "accepts_unverified": True}, "unverified")
            for way in (ApprovalWay.LAND, ApprovalWay.OPEN)
        ),
        (APPROVE, {"way": ApprovalWay.OPEN}, "not_pushed"),
        (APPROVE, {"way": ApprovalWay.LAND, "result": PUSHED}, None),
        (APPROVE, {"way": ApprovalWay.LAND, "result": PUSHED, "hindrance": "checks failed"}, "not_landed"),
        (BACK, {"way": ApprovalWay.LAND, "result": PUSHED, "hindrance": "checks failed"}, None),
    ],
)  # fmt: skip
def test_what_may_be_decided(decision: ReviewDecision, changes: dict[str, Any], code: str | None) -> None:
    found = judge_review(replace(FACTS, **changes), decision)
    assert (found and found.code) == code


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"result": None}, "no run"),
        ({"result": replace(RESULT, status=ResultStatus.OPEN)}, "In Review"),
        ({"result": replace(RESULT, status=ResultStatus.ENDED)}, "In Review"),
        ({"result": replace(RESULT, status=ResultStatus.GONE)}, "the tracker does not have the issue"),
        ({"result": replace(RESULT, status=ResultStatus.ENDED), "last": APPROVE}, "approved already"),
        ({"result": replace(RESULT, status=ResultStatus.OPEN), "last": BACK}, "sent back already"),
    ],
)
def test_work_that_waits_for_no_review_says_what_has_happened(changes: dict[str, Any], says: str) -> None:
    found = judge_review(replace(FACTS, **changes), APPROVE)
    assert found is not None
    assert says in found.message


@pytest.mark.parametrize("hint", ["reopen it", None])
def test_a_block_says_why_work_waits_for_no_review_and_what_to_do(hint: str | None) -> None:
    closed = make_failure("its pull request 7 was closed", hint=hint)
    opened = replace(RESULT, status=ResultStatus.OPEN)
    found = judge_review(replace(FACTS, result=opened, block=closed), APPROVE)
    assert found is not None
    assert found.message == closed.message
    assert found.hint == (hint or "`symphony explain` shows the state of the issue")


@pytest.mark.parametrize(
    ("facts", "way"),
    [("wpm", "land"), ("wp", "land"), ("wm", "open"), ("w", "open"), ("pm", "merge"), ("", "by_hand")],
)
def test_a_forge_comes_before_the_setting_and_without_both_a_person_merges(facts: str, way: str) -> None:
    assert approval_way(watches="w" in facts, pull_is_open="p" in facts, merges="m" in facts) == way


@pytest.mark.parametrize(
    ("code", "is_open", "lands", "hinders"),
    [
        *((code, True, True, False) for code in ("open", "landing", "checks_pending", "push_not_seen")),
        *((code, True, True, True) for code in ("checks_failed", "foreign_head", "approval_missing")),
        ("checks_pending", True, False, True),
        ("settled", True, False, True),
        ("closed", False, True, True),
        ("open", False, True, True),
    ],
)
def test_an_approval_that_changes_nothing_at_the_forge_is_hindered(
    code: str, *, is_open: bool, lands: bool, hinders: bool
) -> None:
    assert (hindrance_of(code, "why", is_open=is_open, lands=lands) is not None) is hinders


def test_the_comment_quotes_each_line_as_data() -> None:
    hostile = LineComment(
        file="a\n``` b.py", line=3, old=False, quote="``` @all\x1b[31m", text=" Why? ", head=HEAD
    )
    gone = LineComment(file="c.py", line=9, old=True, quote="x = 1", text="Keep it", head=OTHER)
    text = review_comment(HEAD, "Almost\x1b[2J", (hostile, gone))
    assert text.splitlines() == [
        f"Review of `{HEAD[:12]}`: please change this.",
        "",
        "Almost",
        "",
        "````text",
        "a ``` b.py:3",
        "``` @all",
        "````",
        "",
        "Why?",
        "",
        "```text",
        f"c.py:9 (before the change) at {OTHER[:12]}",
        "x = 1",
        "```",
        "",
        "Keep it",
    ]
    assert review_comment(HEAD, " ", ()) == ""
    assert review_comment(HEAD, "", (gone,)).count("\n\n") == 2
    assert "approved" in review_comment(HEAD, "Good", (), sends_back=False)
