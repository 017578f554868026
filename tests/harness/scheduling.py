"""A story told to the scheduler in virtual time: facts go in, a small board answers its questions."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from kit.facts import changed
from kit.simulator import Referee
from kit.simulator.scenario import ACTIVE, TERMINAL, make_settings
from symphony.domain import Blame, Category, DeliveredBranch, Failure, Issue, WorkSize
from symphony.scheduler import (
    AgentReported,
    AnswersRead,
    Command,
    Event,
    Exit,
    FetchCandidates,
    IssueComment,
    Notify,
    Outcome,
    OutcomeKind,
    Polled,
    PollFailed,
    ReadAnswers,
    Recovered,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    ResultStatus,
    RunEnded,
    RunStage,
    SetTimer,
    StartRun,
    State,
    Timer,
    TimerFired,
    TurnEnded,
    WakeAsked,
    WorkspaceRef,
    initial_state,
)

__all__ = ["ACTIVE", "TERMINAL", "Story", "handed_off", "make_failure", "make_issue", "make_settings"]


C = TypeVar("C")


def make_issue(issue_id: str = "1", **changes: Any) -> Issue:
    """An issue that may start, `SYM-<id>`, unless `changes` say otherwise."""
    issue = Issue(
        id=issue_id,
        identifier=f"SYM-{issue_id}",
        title=f"Title {issue_id}",
        state="Todo",
        dispatchable=True,
        priority=2,
        created_at=datetime(2025, 1, 1, tzinfo=UTC),
    )
    return replace(issue, **changes)


def make_failure(message: str = "it broke", **changes: Any) -> Failure:
    """A failure the agent is to blame for, unless `changes` say otherwise."""
    failure = Failure(category=Category.TURN_FAILED, blame=Blame.AGENT, message=message)
    return replace(failure, **changes)


class Story:
    """A daemon's life in virtual milliseconds, in which the simulator's referee judges every step.

    `board` is what the tracker would say. Questions are answered from it at once, unless `slow` is set:
    then they wait in `polls`, `refreshes` and `reads` until `answer` is called. `answers` and `others` are
    the comments that people wrote since a question, by issue. `told` holds the commands since
    the last `forget`; `inputs` everything that was fed, for a replay.
    """

    def __init__(self, *issues: Issue, **settings: Any) -> None:
        self.referee = Referee()
        self.referee.begin(initial_state(make_settings(**settings), epoch="e"))
        self.now = 0
        self.board: dict[str, Issue] = {issue.id: issue for issue in issues}
        self.slow = False
        self.told: list[Command] = []
        self.inputs: list[tuple[int, Event]] = []
        self.polls: list[FetchCandidates] = []
        self.refreshes: list[RefreshIssues] = []
        self.reads: list[ReadAnswers] = []
        self.answers: dict[str, tuple[IssueComment, ...]] = {}
        self.others: dict[str, tuple[IssueComment, ...]] = {}
        self.timers: dict[Timer, SetTimer] = {}
        self._exits = 0

    @property
    def state(self) -> State:
        """The scheduler's; a test may put it into another one."""
        return self.referee.state

    @state.setter
    def state(self, state: State) -> None:
        self.referee.lives[-1].state = state

    # --- telling -----------------------------------------------------------------------------------------

    def tell(self, fact: Event) -> tuple[Command, ...]:
        """Feed one fact; returns what the scheduler said to this one."""
        commands = self._step(fact)
        if not self.slow:
            self.answer()
        return commands

    def _step(self, fact: Event) -> tuple[Command, ...]:
        self.inputs.append((self.now, fact))
        commands = self.referee.tell(fact, self.now)
        for command in commands:
            self._note(command)
        return commands

    def _note(self, command: Command) -> None:
        self.told.append(command)
        match command:
            case FetchCandidates():
                self.polls.append(command)
            case RefreshIssues():
                self.refreshes.append(command)
            case ReadAnswers():
                self.reads.append(command)
            case SetTimer():
                self.timers[command.timer] = command
            case Exit():
                self._exits += 1
            case _:
                pass

    def answer(self) -> None:
        """Answer every open question from the board, and those that the answers raise."""
        for _ in range(1000):
            if self.reads:
                self.answer_read()
            elif self.refreshes:
                self.answer_refresh()
            elif self.polls:
                self.answer_poll()
            else:
                return
        raise AssertionError("the scheduler keeps asking")

    def answer_read(self) -> None:
        """Answer the oldest open reading of comments by what stands in `answers` and `others`."""
        asked = self.reads.pop(0)
        key = asked.comment.issue.id
        answers, others = self.answers.get(key, ()), self.others.get(key, ())
        self.tell(AnswersRead(issue_id=key, question=asked.question, answers=answers, unauthorized=others))

    def answer_poll(self) -> None:
        """Answer the oldest open poll from the board as it is now."""
        asked = self.polls.pop(0)
        states = self.state.settings.active_states
        issues = tuple(issue for issue in self.board.values() if issue.state.strip().lower() in states)
        self.tell(Polled(request=asked.request, issues=issues))

    def answer_refresh(self) -> None:
        """Answer the oldest open refresh from the board as it is now."""
        asked = self.refreshes.pop(0)
        issues = tuple(self.board[key] for key in sorted(asked.ids) if key in self.board)
        self.tell(Refreshed(request=asked.request, issues=issues))

    def fail_poll(self, failure: Failure | None = None) -> None:
        """Answer the oldest open poll with a failure."""
        asked = self.polls.pop(0)
        self.tell(PollFailed(request=asked.request, failure=failure or tracker_down()))

    def fail_refresh(self, *culprits: str, failure: Failure | None = None) -> None:
        """Answer the oldest open refresh with a failure."""
        asked = self.refreshes.pop(0)
        self.tell(
            RefreshFailed(
                request=asked.request, failure=failure or tracker_down(), culprits=frozenset(culprits)
            )
        )

    # --- time --------------------------------------------------------------------------------------------

    def advance(self, duration_ms: int) -> Self:
        """Let time pass, firing every timer that comes due, in order."""
        end = self.now + duration_ms
        while due := [timer for timer in self.timers.values() if timer.due_ms <= end]:
            timer = min(due, key=lambda one: (one.due_ms, one.token))
            del self.timers[timer.timer]
            self.now = max(self.now, timer.due_ms)
            self.tell(TimerFired(timer=timer.timer, token=timer.token))
        self.now = end
        return self

    # --- what happens ------------------------------------------------------------------------------------

    def begin(self, *workspaces: WorkspaceRef) -> Self:
        """The daemon starts and the first cycle goes through."""
        self.tell(Recovered(workspaces=workspaces))
        return self

    def put(self, issue_id: str, **changes: Any) -> Issue:
        """Change an issue on the board; nobody is told."""
        self.board[issue_id] = replace(self.board[issue_id], **changes)
        return self.board[issue_id]

    def run_id(self, issue_id: str = "1") -> str:
        """The live run of an issue."""
        return self.state.running[issue_id].run_id

    def report(self, issue_id: str = "1", **changes: Any) -> Self:
        """The pump reports, on top of what it reported before."""
        before = self.state.running[issue_id].report
        self.tell(AgentReported(run_id=self.run_id(issue_id), report=changed(before, **changes)))
        return self

    def streams(self, issue_id: str = "1", **changes: Any) -> Self:
        """The agent is at work in a turn and gives a sign of life."""
        event_count = self.state.running[issue_id].report.event_count + 1
        values = {
            "stage": RunStage.STREAMING_TURN,
            "event_count": event_count,
            "workspace_path": f"/ws/{issue_id}",
        }
        return self.report(issue_id, **values | changes)

    def turn_ends(self, issue_id: str = "1", *, trace: bool | None = True) -> Self:
        """The turn that runs comes to its end."""
        run = self.state.running[issue_id]
        self.tell(TurnEnded(run_id=run.run_id, turn=run.turn, trace=trace))
        return self

    def ends(
        self,
        issue_id: str = "1",
        kind: OutcomeKind = OutcomeKind.SUCCEEDED,
        failure: Failure | None = None,
        *,
        progress: bool | None = True,
        question: str | None = None,
    ) -> Self:
        """The worker is gone."""
        outcome = Outcome(kind=kind, failure=failure, progress=progress, question=question)
        self.tell(RunEnded(run_id=self.run_id(issue_id), outcome=outcome))
        return self

    def fails(
        self, issue_id: str = "1", failure: Failure | None = None, *, progress: bool | None = True
    ) -> Self:
        """The worker is gone and failed."""
        return self.ends(issue_id, OutcomeKind.FAILED, failure or make_failure(), progress=progress)

    def delivers(self, issue_id: str = "1", *, head: str = "abc") -> Self:
        """The worker is gone, and a pushed branch has its work."""
        delivered = DeliveredBranch(
            work=WorkSize(commits=1), branch=f"symphony/SYM-{issue_id}", head=head, pushed=True
        )
        outcome = Outcome(kind=OutcomeKind.SUCCEEDED, progress=True, delivered=delivered)
        self.tell(RunEnded(run_id=self.run_id(issue_id), outcome=outcome))
        return self

    def look(self) -> Self:
        """Somebody wakes the daemon, and it refreshes and polls."""
        self.tell(WakeAsked(reason="t"))
        return self.advance(200)

    # --- what was said -----------------------------------------------------------------------------------

    def forget(self) -> Self:
        """Look only at what is said from now on."""
        self.told.clear()
        return self

    def said(self, kind: Callable[..., C]) -> list[C]:
        """The commands of one kind since the last `forget`."""
        return [command for command in self.told if command.__class__ is kind]  # type: ignore[misc]

    def exits(self) -> int:
        """How often the daemon was told to end, in its whole life."""
        return self._exits

    def notices(self, event: str) -> list[Notify]:
        """The log lines of one event since the last `forget`."""
        return [notice for notice in self.said(Notify) if notice.event == event]

    def started(self) -> list[str]:
        """Identifiers of the issues for which a run was started since the last `forget`, in order."""
        return [command.issue.identifier for command in self.said(StartRun)]


def handed_off(**settings: Any) -> Story:
    """The agent finished issue 1 and moved it to Human Review; nothing is claimed."""
    story = Story(make_issue(), poll_interval_ms=60_000, **settings).begin()
    story.streams(thread_id="t-1", turn_count=1, total_tokens=70, session_id="t-1-1")
    story.put("1", state="Human Review")
    story.turn_ends().delivers().advance(2_000)
    assert story.state.results["1"].status is ResultStatus.READY
    assert story.state.entry("1") is None
    return story.forget()


def tracker_down() -> Failure:
    """The tracker does not answer."""
    return Failure(category=Category.TRACKER_REQUEST, blame=Blame.TRACKER, message="no answer")
