"""What a journal means, without a file: the newest record of a key wins."""

from collections.abc import Iterable
from typing import assert_never

from msgspec import structs

from symphony.domain import Spent
from symphony.journal.jobs import Job, JobDone
from symphony.journal.model import (
    ClaimRecord,
    ClaimReleased,
    CommentRecord,
    DayRecord,
    EventRecord,
    InstructionsRecord,
    IssueSpent,
    Milestone,
    MilestoneRecord,
    PullRequestRecord,
    Record,
    RecoveredState,
    ResultRecord,
    ResultReleased,
    RunRecord,
    SettingRecord,
    SkillsComment,
    SkillsRecord,
    ToldComments,
)
from symphony.journal.recorder import StepRecorder

__all__ = ["Ledger", "check_present"]


class Ledger:
    """Takes records and answers as a journal would."""

    def __init__(self) -> None:
        self.claims: dict[str, ClaimRecord] = {}
        self.runs: dict[str, RunRecord] = {}
        self.events: list[EventRecord] = []
        self.results: dict[str, ResultRecord] = {}
        self.comments: dict[tuple[str, str], CommentRecord] = {}
        self.told_comments: dict[str, ToldComments] = {}
        self.skills_notes: dict[str, SkillsComment] = {}
        self.pull_requests: dict[str, PullRequestRecord] = {}
        self.jobs: dict[str, Job] = {}
        self.skills: dict[str, SkillsRecord] = {}
        self.instructions = dict[tuple[str, str], InstructionsRecord]()
        self.milestones = set[tuple[str, Milestone]]()
        self.spent = dict[str, Spent]()
        self.days: dict[str, int] = {}
        self.settings: dict[str, str] = {}

    def take(self, records: Iterable[Record]) -> None:
        """Remember these."""
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:  # noqa: C901, PLR0912 - one line per kind of record
        match record:
            case ClaimRecord():
                self.claims[record.claim.issue.id] = record
            case ClaimReleased():
                self.claims.pop(record.issue_id, None)
            case ResultRecord():
                self.results[record.result.issue.id] = record
            case ResultReleased():
                self.results.pop(record.issue_id, None)
            case RunRecord():
                self.runs[record.run_id] = record
            case MilestoneRecord():
                self.milestones.add((record.issue_id, record.milestone))
            case EventRecord():
                self.events.append(record)
            case CommentRecord():
                self.comments[record.issue_id, record.kind] = record
            case ToldComments():
                self.told_comments[record.issue_id] = record
            case SkillsComment():
                self.skills_notes[record.issue_id] = record
            case Job():
                self.jobs[record.key] = record
            case JobDone():
                self.jobs.pop(record.key, None)
            case PullRequestRecord():
                self.pull_requests[record.issue.id] = record
            case SkillsRecord():
                self.skills[record.run_id] = record
            case InstructionsRecord():
                self.instructions[record.run_id, record.phase] = record
            case IssueSpent():
                self.spent[record.issue_id] = record.spent
            case DayRecord():
                self.days[record.day] = record.tokens
            case SettingRecord():
                self._set(record)
            case _:
                assert_never(record)

    def _set(self, record: SettingRecord) -> None:
        if record.value is None:
            self.settings.pop(record.name, None)
        else:
            self.settings[record.name] = record.value

    @property
    def live(self) -> tuple[RunRecord, ...]:
        """The runs without an end."""
        return tuple(run for run in self.runs.values() if run.ended_wall_ms is None)

    def remembered(self) -> RecoveredState:
        """What a start would be told."""
        return RecoveredState(
            claims=tuple(self.claims.values()),
            live_runs=self.live,
            spent=dict(self.spent),
            days=dict(self.days),
            settings=dict(self.settings),
            results=tuple(self.results.values()),
            worked_on=frozenset(run.issue_id for run in self.runs.values() if run.ended_wall_ms is not None),
            comments=tuple(self.comments.values()),
            skills_comments=tuple(self.skills_notes.values()),
            pull_requests=tuple(self.pull_requests.values()),
            jobs=tuple(self.jobs.values()),
        )


def check_present(keeper: StepRecorder, ledger: Ledger, *, now_ms: int, wall_ms: int) -> None:
    """A file that is begun anew now is told what the former one would have told a start."""
    anew = Ledger()
    anew.take(keeper.snapshot(now_ms=now_ms, wall_ms=wall_ms) or ())
    assert _timeless(anew.remembered()) == _timeless(ledger.remembered())


def _timeless(remembered: RecoveredState) -> object:
    claims = {claim.claim.issue.id: structs.replace(claim, since_wall_ms=0) for claim in remembered.claims}
    days = dict(list(remembered.days.items())[-1:])
    spent = {issue_id: spent for issue_id, spent in remembered.spent.items() if spent != Spent()}
    runs = {run.run_id: run for run in remembered.live_runs}
    return claims, runs, spent, days, remembered.settings
