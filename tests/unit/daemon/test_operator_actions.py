"""Orders to a scheduler: judged, taken, answered; the state in which one is taken has the last word."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio import to_thread
from msgspec import structs
from structlog.testing import capture_logs
from typing_extensions import override

from harness.asking import FakeOperator, no_checks
from harness.binding import SECRET, CommentingTracker, FakeTracker, MovingTracker, StoryCore, make_context
from harness.chronicle import Chronicle, populated
from harness.journalling import event, run, written
from harness.outbox import Outbox
from harness.scheduling import make_failure, make_issue
from symphony.api.interface import ConflictError, UnavailableError, UnknownError
from symphony.api.models import NewIssue, Stars, utc_text
from symphony.daemon.core import ActionRequest
from symphony.daemon.operator import Limits, Parts, ServiceOperator
from symphony.domain import Category, Issue, SymphonyError
from symphony.library.model import LibraryError
from symphony.library.store import Library
from symphony.scheduler import Event, OperatorAction, OperatorAsked, OutcomeKind, WakeAsked
from symphony.trackers.base import AccountInfo, TrackerError
from symphony.trackers.base import IssueToCreate as TrackerIssue
from symphony.trackers.memory import MemoryTracker

pytestmark = pytest.mark.asyncio


class Desk:
    """An operator over a story that takes each order at once, unless `held` says otherwise."""

    meanwhile: Callable[[], None] | None = None

    def __init__(self, tmp_path: Path, story: Chronicle | None = None, **options: Any) -> None:
        self.story = story or populated()
        library = Library(tmp_path / "shared" / "library.db")
        self.context = replace(make_context(tmp_path, FakeTracker()), library=library)
        self.started = True
        self.parts = Parts()
        self.held: list[Event | ActionRequest] = []
        self.holds = False
        self.operator = ServiceOperator(
            StoryCore(
                tmp_path,
                state=lambda: self.story.state if self.started else None,
                context=lambda: self.context,
                post=self.post,
                now_ms=lambda: self.story.now,
                wall_ms=lambda: round(self.story.wall().timestamp() * 1000),
            ),
            history=self.story.history,
            parts=self.parts,
            metrics=FakeOperator().metrics,
            diagnose=no_checks,
            **options,
        )

    def post(self, item: Event | ActionRequest) -> None:
        if self.holds:
            self.held.append(item)
        else:
            self.take(item)

    def take(self, item: Event | ActionRequest) -> None:
        if self.meanwhile is not None:
            self.meanwhile()
        before = self.story.state
        self.story.tell(item.event if isinstance(item, ActionRequest) else item)
        if isinstance(item, ActionRequest):
            item.resolve(before)

    async def act(self, verb: str, identifier: str | None = None, text: str | None = None) -> str:
        done = await self.operator.act(verb, identifier, text)
        assert done is not None
        asked_at = utc_text(self.story.wall())
        assert (done.verb, done.issue_identifier, done.requested_at) == (verb, identifier, asked_at)
        return done.message

    async def refused(
        self, verb: str, identifier: str | None = None, text: str | None = None
    ) -> ConflictError:
        with pytest.raises(ConflictError) as refused:
            await self.operator.act(verb, identifier, text)
        return refused.value


# --- what is told ---


async def test_an_order_is_carried_out_before_it_is_answered(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert (
        await desk.act("pause") == "nothing new is started until `symphony resume`; 1 running agent may go on"
    )
    assert desk.story.state.paused
    document = await desk.operator.state()
    assert document.paused is True
    assert await desk.act("retry", "SYM-2") == "it is tried once the daemon is resumed"
    assert await desk.act("resume") == "issues are started again"
    assert not desk.story.state.paused


async def test_a_pause_of_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Chronicle().begin())
    assert await desk.act("pause") == "nothing new is started until `symphony resume`; none is running"


async def test_a_run_is_stopped_and_a_retry_given_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert (await desk.act("stop", "SYM-1")).startswith("the run is being stopped; the issue stays blocked")
    assert desk.story.state.running["1"].stopping is not None
    assert (await desk.act("stop", "SYM-2")).startswith("it is not tried again by itself;")
    assert "2" in desk.story.state.blocked


async def test_a_retry_comes_due_and_a_block_ends(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert await desk.act("retry", "SYM-2") == "it is tried now, or as soon as a slot is free"
    assert await desk.act("unblock", "SYM-3") == (
        "it has a new budget, and it is tried now, or as soon as a slot is free"
    )
    assert "3" not in desk.story.state.blocked


async def test_an_answer_says_whether_the_conversation_goes_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert await desk.act("answer", "SYM-3", "Blue") == (
        "the next attempt gets the answer; it is tried now, or as soon as a slot is free"
    )
    story = Chronicle(make_issue("1")).begin()
    story.streams("1", thread_id="t-1", session_id="t-1", turn_count=1)
    needs = make_failure("which colour?", category=Category.TURN_INPUT_REQUIRED)
    story.ends("1", OutcomeKind.INPUT_REQUIRED, needs)
    desk = Desk(tmp_path, story)
    assert (await desk.act("answer", "SYM-1", "Blue")).startswith(
        "the agent gets the answer in the same conversation; "
    )


async def test_a_drain_says_what_it_waits_for(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert await desk.act("drain") == (
        "nothing new is started; the daemon ends after the present turns (1 running)"
    )
    desk = Desk(tmp_path, Chronicle().begin())
    assert await desk.act("drain") == "nothing is running, so the daemon ends now"


# --- what is refused ---


@pytest.mark.parametrize(
    ("verb", "identifier", "text", "code", "hint"),
    [
        ("stop", "SYM-3", None, "not_running", "`symphony explain SYM-3` shows why"),
        ("stop", "a/b ü", None, "not_running", "move it to a state that is not active"),
        ("retry", "SYM-1", None, "running", "`symphony stop SYM-1` ends its run"),
        ("retry", "SYM-4", None, "not_waiting", "`symphony explain`"),
        ("unblock", "a/b ü", None, "not_blocked", "`symphony explain 'a/b ü'` shows why"),
        ("answer", "SYM-1", "Blue", "no_question", "`symphony explain SYM-1` shows why"),
        ("answer", "SYM-3", " \n", "empty_answer", 'say something: symphony answer SYM-3 "…"'),
        ("answer", "SYM-3", None, "empty_answer", "say something"),
    ],
)
async def test_what_does_not_fit_is_refused_with_what_to_do(
    tmp_path: Path, verb: str, identifier: str | None, text: str | None, code: str, hint: str
) -> None:
    desk = Desk(tmp_path)
    before = desk.story.state
    refused = await desk.refused(verb, identifier, text)
    assert refused.code == code
    assert refused.message
    assert (refused.hint or "").startswith(hint)
    assert desk.story.state is before, "nothing was asked of the scheduler"


async def test_twice_the_same_of_the_daemon_succeeds_and_says_that_it_is_so_already(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for verb in ("pause", "resume", "drain"):
        first = await desk.operator.act(verb, None)
        before = desk.story.state
        second = await desk.operator.act(verb, None)
        assert first is not None
        assert second is not None
        assert (first.changed, second.changed) == (True, False), verb
        assert desk.story.state is before, "nothing was asked of the scheduler"
        assert await desk.act(verb) in {
            "the daemon is paused already",
            "the daemon is not paused",
            "the daemon is shutting down already",
        }


async def test_who_pauses_when_somebody_else_just_did_hears_that_it_was_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def somebody_else() -> None:
        desk.story.tell(OperatorAsked(action=OperatorAction.PAUSE))

    desk.meanwhile = somebody_else
    done = await desk.operator.act("pause", None)
    assert done is not None
    assert not done.changed


async def test_an_issue_that_nobody_knows(tmp_path: Path) -> None:
    assert await Desk(tmp_path).operator.act("stop", "SYM-9") is None


async def test_the_state_in_which_an_order_is_taken_has_the_last_word(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def somebody_else() -> None:
        desk.meanwhile = None
        desk.story.tell(OperatorAsked(action=OperatorAction.ANSWER, issue_id="3", text="Red"))

    desk.meanwhile = somebody_else
    assert (await desk.refused("answer", "SYM-3", "Blue")).code == "no_question"
    resume = desk.story.state.retrying["3"].resume
    assert resume is not None
    assert resume.answer == "Red"


async def test_an_order_is_answered_when_it_is_taken_and_not_before(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.holds = True
    told: list[str] = []

    async def ask() -> None:
        told.append(await desk.act("pause"))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        while not desk.held:
            await anyio.lowlevel.checkpoint()
        assert told == []
        ActionRequest(OperatorAsked(action=OperatorAction.PAUSE)).resolve(desk.story.state)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        assert told == [], "the order of somebody else is not this one, however equal"
        desk.take(desk.held.pop())
    assert len(told) == 1


async def test_an_order_that_is_not_taken_for_long_counts_as_given(tmp_path: Path) -> None:
    desk = Desk(tmp_path, limits=Limits(action_s=0))
    desk.holds = True
    assert "nothing new" in await desk.act("pause")
    (order,) = desk.held
    assert isinstance(order, ActionRequest)
    assert order.event == OperatorAsked(action=OperatorAction.PAUSE)
    order.resolve(desk.story.state)  # late


# --- moves ---


async def test_an_issue_is_created_at_the_tracker_and_asks_for_a_poll(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.holds = True
    tracker = MemoryTracker()
    desk.context = make_context(tmp_path, cast("FakeTracker", tracker))
    given = NewIssue(title=f"Fix {SECRET}", body="b", labels=("bug",), skill="web")
    created = await desk.operator.create_issue(given)
    (issue,) = await tracker.fetch_issues_by_ids([created.issue_id])
    assert (issue.state, issue.labels, created.state) == ("Todo", ("bug", "skill:web"), "Todo")
    assert SECRET not in f"{issue.title} {created.title}"
    assert desk.held == [WakeAsked(reason="operator", by_operator=True)]
    desk.context = make_context(tmp_path, FakeTracker())
    with pytest.raises(SymphonyError) as refused:
        await desk.operator.create_issue(given)
    assert refused.value.failure.category is Category.INVALID_TRACKER_CONFIG
    assert (await desk.operator.schedules()).schedules == ()
    with pytest.raises(UnknownError):
        await desk.operator.run_schedule("nightly")


async def test_an_issue_whose_answer_is_lost_is_tried_again_with_the_same_key(tmp_path: Path) -> None:
    class LosingTracker(MemoryTracker):
        answers = 0

        @override
        async def create_issue(self, new: TrackerIssue, *, key: str, since: datetime) -> Issue:
            issue = await super().create_issue(new, key=key, since=since)
            self.answers += 1
            if self.answers == 1:
                raise TrackerError(make_failure("the answer is lost"))
            return issue

    desk, tracker = Desk(tmp_path), LosingTracker()
    desk.context = make_context(tmp_path, cast("FakeTracker", tracker))
    await desk.operator.create_issue(NewIssue(title="a"))
    assert len(await tracker.fetch_issues_by_states(["Todo"])) == 1


async def test_a_move_is_made_in_the_tracker_and_asks_for_a_poll(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.holds = True
    issue = desk.story.state.running["1"].issue
    tracker = MovingTracker(issues=(issue,))
    desk.context = make_context(tmp_path, tracker)
    document = await desk.operator.issue("SYM-1")
    assert document is not None
    assert document.moves_to == ("Todo", "In Progress", "Done")
    with capture_logs() as lines:
        assert await desk.act("move", "SYM-1", "Done") == f"moved from {issue.state} to Done"
    assert tracker.moved == [("1", "Done")]
    assert desk.held == [WakeAsked(reason="operator", by_operator=True)]
    (line,) = lines
    assert (line["event"], line["before"], line["reason"]) == ("issue_moved", issue.state, "operator")
    again = await desk.operator.act("move", "SYM-1", "done")
    assert again is not None
    assert not again.changed
    assert len(tracker.moved) == 1


async def test_a_move_can_be_to_every_state_that_the_tracker_and_the_settings_name(tmp_path: Path) -> None:
    class Naming(MovingTracker):
        async def account_info(self) -> AccountInfo:
            await anyio.lowlevel.checkpoint()
            return AccountInfo(login="me", scope="s", states=("Backlog", "todo", "Human Review"))

    desk = Desk(tmp_path)
    issue = desk.story.state.running["1"].issue
    more = '{"tracker": {"kind": "markdown", "on_block": "Stuck"}}'
    desk.context = make_context(tmp_path, Naming(issues=(issue,)), more=more)
    document = await desk.operator.issue("SYM-1")
    assert document is not None
    assert document.moves_to == ("Todo", "In Progress", "Stuck", "Done")
    await desk.operator.task("SYM-1")
    document = await desk.operator.issue("SYM-1")
    assert document is not None
    assert [one.casefold() for one in document.moves_to] == [
        *("backlog", "todo", "human review", "in progress", "stuck", "done"),
    ]


async def test_a_move_that_the_tracker_does_not_make_is_refused_with_what_to_do(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.holds = True
    issue = desk.story.state.running["1"].issue
    unknown = TrackerError(make_failure(f"there is no state {SECRET}", hint="states: Todo, Done"))
    for tracker, hint in (
        (FakeTracker(issues=(issue,)), "move it in the tracker"),
        (MovingTracker(issues=(issue,), failure=unknown), "states: Todo, Done"),
        (MovingTracker(issues=(issue,), goes_to="Backlog"), "rules of the tracker"),
        (MovingTracker(issues=(issue,), failure=RuntimeError(SECRET)), "by hand"),
    ):
        desk.context = make_context(tmp_path, tracker)
        with pytest.raises(SymphonyError) as refused:
            await desk.operator.act("move", "SYM-1", "Dnoe")
        assert hint in (refused.value.failure.hint or "")
        assert SECRET not in refused.value.failure.message
    assert (await desk.refused("move", "SYM-1", " ")).code == "empty_state"
    desk.context = make_context(tmp_path, FakeTracker())
    assert (await desk.refused("move", "SYM-1", "Done")).code == "gone"
    assert await desk.operator.act("move", "SYM-9", "Done") is None
    document = await desk.operator.issue("SYM-1")
    assert document is not None
    assert document.moves_to == (), "this tracker moves none"
    assert desk.held == [], "nothing to poll for"


# --- comments ---


async def test_a_comment_is_queued_for_the_tracker_and_shown_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    tracker = CommentingTracker(issues=(desk.story.state.running["1"].issue,))
    desk.context = make_context(tmp_path, tracker)
    outbox = Outbox(desk.context)
    desk.parts.jobs = outbox.jobs
    assert (await desk.refused("comment", "SYM-1", " \n")).code == "empty_comment"
    assert await desk.operator.act("comment", "SYM-99", "Blue") is None
    assert "the next session" in await desk.act("comment", "SYM-1", f"Blue {SECRET}")
    task = await desk.operator.task("SYM-1")
    assert task is not None
    assert [(one.by, one.sent, SECRET in one.body) for one in task.comments] == [("person", "waiting", False)]
    await outbox.once()
    desk.operator.comment_written("1", "person", "c1", "f")  # as the service reports it
    task = await desk.operator.task("SYM-1")
    assert task is not None
    assert [(one.author, one.sent) for one in task.comments] == [("operator", "sent")], "it is read anew"
    assert await desk.operator.task("SYM-99") is None
    desk.context = make_context(tmp_path, FakeTracker())
    assert (await desk.refused("comment", "SYM-1", "Blue")).code == "no_comments"


# --- issues that only the tracker knows ---


@dataclass
class Board(MovingTracker, CommentingTracker):
    """With moves and comments, and identifiers that are no ids."""

    async def find_issue(self, identifier: str) -> Issue | None:
        self.asked.append(identifier)
        await self.before_answer()
        return next((issue for issue in self.issues if issue.identifier == identifier), None)


async def test_an_issue_that_only_the_tracker_knows_is_shown_commented_on_and_moved(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.holds = True
    found = make_issue("77", identifier="SYM-77", state="Backlog", title="Later", description="Some day")
    tracker = Board(issues=(found,), comments={"c1": "said"})
    desk.context = make_context(tmp_path, tracker)
    outbox = Outbox(desk.context)
    desk.parts.jobs = outbox.jobs
    document, task = await desk.operator.issue("SYM-77"), await desk.operator.task("SYM-77")
    assert document is not None
    assert task is not None
    assert (document.issue_id, document.title, document.state) == ("77", "Later", "Backlog")
    assert (document.status, document.runs) == ("inactive", ())
    assert "Todo" in document.moves_to
    assert (task.description, [one.body for one in task.comments]) == ("Some day", ["said"])
    assert tracker.asked.count("SYM-77") == 1, "once for both"

    assert "the next session" in await desk.act("comment", "SYM-77", "Blue")
    task = await desk.operator.task("SYM-77")
    assert task is not None
    assert [one.sent for one in task.comments] == ["sent", "waiting"]
    assert await desk.act("move", "SYM-77", "Todo") == "moved from Backlog to Todo"
    document = await desk.operator.issue("SYM-77")
    assert document is not None
    assert (document.state, document.status) == ("Todo", "waiting"), "it is read anew"
    assert await desk.operator.act("retry", "SYM-77") is None, "nothing of it can be tried again"

    assert await desk.operator.issue("SYM-78") is None
    assert await desk.operator.task("SYM-78") is None
    assert await desk.operator.act("move", "SYM-78", "Todo") is None


async def test_a_tracker_that_does_not_answer_has_no_issue_missing(tmp_path: Path) -> None:
    async def refuse() -> None:
        raise TrackerError(make_failure(f"no, {SECRET} is wrong"))

    desk = Desk(tmp_path)
    desk.context = make_context(tmp_path, Board(before_answer=refuse))
    for ask in (
        desk.operator.issue("SYM-77"),
        desk.operator.task("SYM-77"),
        desk.operator.act("move", "SYM-77", "Todo"),
    ):
        with pytest.raises(UnavailableError) as refused:
            await ask
        assert refused.value.code == "tracker_unavailable"
        assert SECRET not in refused.value.message
    assert (await desk.operator.issue("SYM-1")) is not None, "what the daemon knows needs no tracker"


# --- feedback ---


async def test_feedback_is_kept_with_the_runs_and_shown_and_what_teaches_waits(tmp_path: Path) -> None:
    desk = Desk(tmp_path, journal=tmp_path / "state" / "journal.db")
    run = desk.story.state.running["1"].run_id
    give = desk.operator.feedback
    assert await give("SYM-99", Stars(stars=1), may_teach=True) is None
    first = await give("SYM-1", Stars(stars=2, comment=f"no {SECRET}"), may_teach=True)
    assert first is not None
    assert (first.run_ids, first.learning.state, first.author) == ((run,), "waiting", "operator")
    assert SECRET not in first.comment
    for given, may_teach in ((Stars(stars=5, learn=False), True), (Stars(stars=1), False)):
        stored = await give("SYM-1", given, may_teach=may_teach)
        assert stored is not None
        assert (stored.learning.state, bool(stored.learning.reason)) == ("off", True)
    document = await desk.operator.issue("SYM-1")
    assert document is not None
    assert [one.stars for one in document.feedback] == [1, 5, 2]
    for _ in range(19):
        await give("SYM-1", Stars(stars=1), may_teach=False)
    with pytest.raises(ConflictError):
        await give("SYM-1", Stars(stars=1), may_teach=False)


async def test_a_library_that_cannot_be_read_costs_no_answer_but_that_to_the_feedback(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "library.db").write_bytes(b"no database" * 100)
    desk = Desk(tmp_path, journal=tmp_path / "state" / "journal.db")
    document = await desk.operator.issue("SYM-1")
    assert document is not None
    assert document.feedback == ()
    with pytest.raises(LibraryError):
        await desk.operator.feedback("SYM-1", Stars(stars=1), may_teach=True)


async def test_an_issue_is_answered_for_under_a_former_identifier(tmp_path: Path) -> None:
    journal = await to_thread.run_sync(
        written,
        tmp_path / "state" / "journal.db",
        replace(run(7), issue_id="1", issue_identifier="OLD-1"),
        structs.replace(event(8, run_id=None), issue_id="2", issue_identifier="OLD-2"),
    )
    desk = Desk(tmp_path, journal=journal)
    for former, present, runs in (
        ("OLD-1", "SYM-1", ["r-7"]),
        ("SYM-1", "SYM-1", ["r-7"]),
        ("OLD-2", "SYM-2", []),
    ):
        document = await desk.operator.issue(former)
        assert document is not None
        assert document.issue_identifier == present
        assert [one.run_id for one in document.runs] == runs
    assert await desk.operator.issue("OLD-3") is None
    given = await desk.operator.feedback("OLD-1", Stars(stars=2), may_teach=False)
    assert given is not None
    assert "r-7" in given.run_ids
    second = replace(run(9), issue_id="another", issue_identifier="SYM-1")
    await to_thread.run_sync(written, journal, second)
    document = await desk.operator.issue("SYM-1")
    assert document is not None
    assert [one.run_id for one in document.runs] == ["r-7"], "the history of the issue that has it now"


# --- when there is nobody to order ---


async def test_a_daemon_that_starts_or_has_ended_takes_no_orders(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Chronicle().begin())
    desk.started = False
    with pytest.raises(UnavailableError, match="starting") as refused:
        await desk.operator.act("pause", None)
    assert refused.value.code == "orchestrator_unavailable"
    desk.started = True
    await desk.act("drain")
    with pytest.raises(UnavailableError, match="ended"):
        await desk.operator.act("pause", None)


async def test_a_refusal_masks_secrets(tmp_path: Path) -> None:
    story = Chronicle(make_issue("1", identifier=SECRET)).begin()
    story.streams("1", turn_count=1, total_tokens=10)
    desk = Desk(tmp_path, story)
    refused = await desk.refused("unblock", SECRET)
    assert SECRET not in f"{refused.message} {refused.hint}"
