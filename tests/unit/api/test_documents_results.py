"""Work that is ready for review, in the documents and on the terminal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from harness.chronicle import START, Chronicle, conforms, sent
from harness.pictures import DAEMON, drawn, known, status_of
from harness.scheduling import make_issue
from kit.facts import changed
from symphony.api.documents import issue_document, review_commands, state_document
from symphony.cli.render.explain import explain_issue, explain_view
from symphony.cli.render.status import status_view
from symphony.config import WorkspaceSettings
from symphony.domain import (
    Author,
    Blame,
    Category,
    CheckRun,
    DeliveredBranch,
    Failure,
    KeptFile,
    PullRequest,
    PullState,
    Verification,
    WorkSize,
)
from symphony.journal.model import PullRequestRecord, RunRecord
from symphony.scheduler import Outcome, OutcomeKind, RunEnded

REFUSED = Failure(category=Category.PUSH_FAILED, blame=Blame.WORKSPACE, message="no route", hint="mend it")
DELIVERED = DeliveredBranch(
    work=WorkSize(commits=2, files_changed=1, insertions=5, deletions=3), branch="symphony/SYM-1", head="abc"
)
RUN = changed(RunRecord(
    run_id="r-1", issue_id="1", issue_identifier="SYM-9", started_wall_ms=0, ended_wall_ms=1_000,
    outcome="succeeded"), turn_count=1, total_tokens=70, commits=2, branch="symphony/SYM-9",
)  # fmt: skip


def told(
    *, state: str = "Human Review", verification: Verification | None = None, **delivered: Any
) -> Chronicle:
    """A story in which SYM-1 was worked on and has left the active states."""
    story = Chronicle(make_issue()).begin()
    story.streams(turn_count=1, total_tokens=700, cost_usd=0.5, unpriced_tokens=9, tool_calls=1)
    story.put("1", state=state)
    outcome = Outcome(
        kind=OutcomeKind.SUCCEEDED,
        progress=True,
        delivered=structs.replace(DELIVERED, **delivered),
        summary="It works.",
        verification=verification,
    )
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
    return story.advance(2_000)


def test_the_result_of_the_head_that_is_shown_is_shown_and_no_other() -> None:
    check, kept = (
        CheckRun(name="tests", exit_code=1),
        (KeptFile(name="a/j.xml", size=3), KeptFile(name="big")),
    )
    story = told(verification=Verification(head="abc", checks=(check,), artifacts=kept))
    (row,) = story.document()["ready"]
    conforms(row, "ReadyRow")
    assert (row["verified"]["passed"], row["verified"]["head"]) == (False, "abc")
    paths = [(one["name"], one["bytes"], one["path"]) for one in row["verified"]["artifacts"]]
    assert paths == [("a/j.xml", 3, "/issues/SYM-1/artifacts/a%2Fj.xml"), ("big", None, None)]
    found = known(story.issue("SYM-1"))
    text = drawn(explain_view(found, explain_issue(found), state_dir=Path("/state")), width=160)
    assert "no, at abc: tests failed with exit code 1; it left a/j.xml, big" in text
    assert "not verified: tests failed" in drawn(
        status_view(
            status_of(story.document() | {"source": "daemon", "daemon": DAEMON}), workflow="W", width=160
        ),
        width=160,
    )
    stale = told(verification=Verification(head="abd"))
    assert stale.document()["ready"][0]["verified"] is None


def test_a_ready_row_is_what_the_stored_schema_says() -> None:
    document = told().document()
    conforms(document, "State")
    assert document["counts"]["ready"] == 1
    (row,) = document["ready"]
    conforms(row, "ReadyRow")
    assert row["delivered"] == {
        "branch": "symphony/SYM-1",
        "head": "abc",
        "work": {"commits": 2, "files_changed": 1, "insertions": 5, "deletions": 3},
        "push": None,
        "push_failure": None,
        "branch_failure": None,
    }
    assert (row["turns"], row["tokens"]["total_tokens"], row["summary"]) == (1, 700, "It works.")
    assert (row["cost_usd"], row["unpriced_tokens"]) == (0.5, 9)
    assert row["pull_request_url"] is None
    assert (row["state"], row["ended_at"]) == ("Human Review", "2026-03-01T12:00:00Z")


@pytest.mark.parametrize(("state", "status"), [("Human Review", "ready"), ("Done", "ended")])
def test_the_document_of_an_issue_after_its_work(state: str, status: str) -> None:
    document = told(state=state).issue("SYM-1")
    conforms(document, "Issue")
    assert (document["status"], document["state"]) == (status, state)
    assert document["workspace"]["branch"] == document["result"]["delivered"]["branch"] == "symphony/SYM-1"
    explanation = explain_issue(known(document))
    assert explanation.code == status
    assert "symphony/SYM-1" in explanation.answer
    assert "symphony diff SYM-1" in (explanation.advice or "")


def test_an_issue_that_only_the_journal_knows_has_ended_and_its_history_is_told() -> None:
    story = Chronicle()
    moment = {"now_ms": story.now, "now": START}
    document = issue_document(story.state, story.history, "SYM-9", runs=(RUN,), **moment)  # type: ignore[arg-type]
    assert document is not None
    conforms(document, "Issue")
    assert (document.status, document.title, document.state, document.result) == ("ended", "", "", None)
    assert [(run.run_id, run.outcome, run.turn_count) for run in document.runs] == [("r-1", "succeeded", 1)]
    assert explain_issue(known(sent(document))).code == "ended"
    assert issue_document(story.state, story.history, "SYM-9", **moment) is None  # type: ignore[arg-type]


def test_an_issue_costs_what_all_its_runs_cost_and_the_live_one_once() -> None:
    story = Chronicle(make_issue()).begin()
    story.streams(turn_count=1, total_tokens=70, cost_usd=0.5, unpriced_tokens=3)
    live = changed(RUN, run_id=story.run_id(), ended_wall_ms=None, cost_usd=0.25)
    cut_off = changed(RUN, run_id="r-0", ended_wall_ms=None, cost_usd=1.0)
    runs = (live, changed(RUN, unpriced_tokens=4), cut_off)
    moment: Any = {"now_ms": story.now, "now": story.wall(), "runs": runs}
    document = issue_document(story.state, story.history, "SYM-1", **moment)
    assert document is not None
    assert (document.cost_usd, document.unpriced_tokens) == (1.5, 7)


def test_a_failed_push_is_a_condition() -> None:
    story = told(push_failure=REFUSED)
    document = story.document()
    conforms(document, "State")
    (failed,) = document["failed_pushes"]
    assert (failed["issue_identifier"], failed["branch"]) == ("SYM-1", "symphony/SYM-1")
    assert failed["failure"]["message"] == "no route"
    assert document["ready"][0]["delivered"]["push"] == "failed"
    status = status_of({**document, "source": "daemon", "daemon": DAEMON})
    shown = drawn(status_view(status, workflow="W", width=160), width=160)
    assert "SYM-1 is not pushed: no route." in shown
    assert "mend it" in shown
    assert "no route" in explain_issue(known(story.issue("SYM-1"))).answer


def test_status_has_a_section_for_it() -> None:
    document = {**told(pushed=True).document(), "source": "daemon", "daemon": DAEMON}
    shown = drawn(status_view(status_of(document), workflow="W", width=240), width=240)
    assert "1 ready for review" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("SYM-1")]
    for fact in ("Title 1", "Human Review", "symphony/SYM-1 (pushed): It works.", "+5 -3"):
        assert fact in line


@pytest.mark.parametrize(
    ("repo", "pushed", "then"),
    [
        (None, False, ()),
        ("/srv/repo", False, ("git diff main...symphony/SYM-1",)),
        ("https://host/x.git", True, ("git fetch origin symphony/SYM-1",)),
    ],
)
def test_the_ways_to_look_depend_on_where_the_branch_lies(
    repo: str | None, *, pushed: bool, then: tuple[str, ...]
) -> None:
    settings = WorkspaceSettings(root=Path("/ws"), repo=repo, base_branch="main")
    assert review_commands("SYM-1", "symphony/SYM-1", settings, pushed=pushed) == (
        "symphony diff SYM-1",
        *then,
    )
    assert review_commands("SYM-1", "symphony/SYM-1", None, pushed=pushed) == ("symphony diff SYM-1",)


def test_a_pull_request_is_shown_with_what_it_waits_for() -> None:
    story = told(pushed=True)
    pull = PullRequest(
        id="7",
        number=7,
        url="https://forge.example/7",
        title="t",
        body="",
        state=PullState.OPEN,
        draft=True,
        author=Author(login="me", is_me=True),
        head_branch="symphony/SYM-1",
        head_repo="a/b",
        head_sha="abc",
        base_branch="main",
    )
    record = PullRequestRecord(
        issue=make_issue(), forge="github a/b", branch="symphony/SYM-1", head="abc", number=7, pull=pull,
        code="turns_used", message="the agent had 3 turns",
    )  # fmt: skip
    late = replace(record, pull=None, number=None, failure=REFUSED, code="opening")

    def shown(one: PullRequestRecord) -> tuple[dict[str, Any], str, str]:
        moment: Any = {"now_ms": story.now, "now": story.wall(), "pull_requests": {"1": one}}
        document = sent(state_document(story.state, story.history, **moment))
        conforms(document, "State")
        status = status_of({**document, "source": "daemon", "daemon": DAEMON})
        issue = issue_document(story.state, story.history, "SYM-1", **moment)
        assert issue is not None
        explained = explain_issue(known(sent(issue))).answer
        return document["ready"][0], drawn(status_view(status, workflow="W", width=160), width=160), explained

    row, picture, explained = shown(record)
    assert row["pull_request_url"] == row["pull_request"]["url"] == "https://forge.example/7"
    facts = [row["pull_request"][name] for name in ("number", "state", "draft", "code", "needs_you")]
    assert facts == [7, "open", True, "turns_used", True]
    assert "#7: the agent had 3 turns" in picture
    assert "turns_used" in explained
    row, picture, explained = shown(late)
    assert (row["pull_request_url"], row["pull_request"]["state"]) == (None, "wanted")
    assert "no route" in picture
    assert "no route" in explained
