"""Questions over a snapshot: of a daemon, and of the files where none runs."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.binding import FakeTracker, make_context
from harness.chronicle import Chronicle, populated, sent
from harness.pages import READY, demo_state
from harness.scheduling import make_issue
from symphony.api import answers
from symphony.domain import DeliveredBranch
from symphony.library.model import Rating
from symphony.library.store import Library
from symphony.scheduler import IssueResult, ResultStatus

SECRET = "a-secret-of-the-daemon"


def snapshot(tmp_path: Path, story: Chronicle, **options: Any) -> answers.Snapshot:
    context = make_context(tmp_path, FakeTracker())
    given: dict[str, Any] = {
        "state": story.state,
        "settings": context.settings,
        "history": story.history,
        "now_ms": story.now,
        "now": story.wall(),
        "mask": lambda text: text.replace(SECRET, "***"),
        "workspaces": context.workspaces,
        "journal": None,
        "library": None,
        "key": "here",
    }
    return answers.Snapshot(**given | options)


def test_both_makers_of_a_snapshot_get_the_same_answer_but_for_what_a_daemon_does(
    tmp_path: Path,
) -> None:
    story = populated()
    live, files = (sent(answers.state(snapshot(tmp_path, story, live=live))) for live in (True, False))
    assert files["health"]["status"] == "stopped"
    assert (files["polling"]["checking"], files["polling"]["next_poll_in_ms"]) == (False, None)
    assert files["tracker"]["asks_next_at"] is None
    for part in ("health", "polling", "tracker"):
        del live[part], files[part]
    for document in (live, files):  # where nothing starts by itself, its reason says so
        document["waiting"] = [row for row in document["waiting"] if row["reason"]["code"] != "starting"]
    assert files == live


def test_without_a_daemon_no_issue_is_about_to_start(tmp_path: Path) -> None:
    said = {}
    for live in (True, False):
        issue = answers.issue(snapshot(tmp_path, populated(), live=live), "a/b ü")
        assert issue is not None
        assert issue.waiting is not None
        said[live] = issue.waiting.reason
    assert said[True].code == said[False].code == "starting"
    assert said[True].message != said[False].message
    assert "no daemon is running" in said[False].message


def test_work_can_be_verified_where_the_order_would_be_taken(tmp_path: Path) -> None:
    story, name = populated(), "SYM-50"
    result = IssueResult(
        issue=make_issue("50", identifier=name, state="Human Review"),
        status=ResultStatus.READY,
        delivered=DeliveredBranch(branch="symphony/SYM-50", head="abc"),
    )
    done = story.state.changed(results={"50": result})
    checked = done.changed(settings=replace(done.settings, verify_rounds=1))
    codes = []
    for state in (done, checked, checked.changed(paused=True)):
        issue = answers.issue(snapshot(tmp_path, story, state=state), name)
        assert issue is not None
        assert issue.verify is not None
        codes.append(issue.verify.code)
    assert codes == ["no_checks", None, "nothing_starts"]
    for live, other in ((True, "SYM-1"), (False, name)):
        issue = answers.issue(snapshot(tmp_path, story, state=done, live=live), other)
        assert issue is not None
        assert issue.verify is None


def test_an_issue_of_which_nobody_knows(tmp_path: Path) -> None:
    assert answers.issue(snapshot(tmp_path, populated()), "SYM-99") is None


def test_no_secret_is_in_an_answer(tmp_path: Path) -> None:
    story = Chronicle(make_issue("1", title=f"see {SECRET}")).begin()
    of = snapshot(tmp_path, story)
    assert SECRET not in repr((answers.state(of), answers.issue(of, "SYM-1")))


def test_the_state_has_its_stars_while_others_open_and_close_the_library(tmp_path: Path) -> None:
    """Each who is the last to close the file locks it for a moment."""
    library, identifier = Library(tmp_path / "library.db"), READY.issue_identifier
    given: dict[str, Any] = {
        "issue_id": READY.issue_id,
        "issue_identifier": identifier,
        "run_ids": ("run-1",),
    }
    of = snapshot(tmp_path, populated(), library=library)
    library.rate(Rating(workflow=of.key, stars=4, author="operator", **given))
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            library.feedback(of.key, identifier)

    other = threading.Thread(target=look)
    other.start()
    try:
        documents = [answers.with_stars(demo_state(), of) for _ in range(300)]
    finally:
        done.set()
        other.join()
    stars = [row.stars for one in documents for row in one.ready if row.issue_identifier == identifier]
    assert stars == [4] * 300
