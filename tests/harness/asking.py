"""The web application asked in this process, and an operator that answers as a test likes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from msgspec import structs
from starlette.types import ASGIApp

from harness.chronicle import Chronicle, populated
from symphony.api.access import Access
from symphony.api.app import create_app
from symphony.api.documents import feedback_document, issue_document, outbox_document, state_document
from symphony.api.interface import (
    NEWEST_ENTRIES,
    ConflictError,
    DraftEdit,
    Exposition,
    LibraryInUse,
    Operator,
    RunQuery,
    TranscriptQuery,
    UnavailableError,
    UnknownError,
    WebhookReceiver,
    WorkingDiff,
)
from symphony.api.live import Changes
from symphony.api.models import (
    CreatedIssue,
    Diagnosis,
    DoctorCheck,
    Feedback,
    Issue,
    KnownSkill,
    NewIssue,
    Outbox,
    Prompt,
    Refresh,
    Rehearsal,
    Review,
    ReviewGiven,
    ReviewOutcome,
    Runs,
    Schedule,
    Schedules,
    Setting,
    Skills,
    SkillsOverview,
    SkillUses,
    Stars,
    State,
    System,
    Task,
    Transcript,
    Verb,
)
from symphony.api.runs import runs_document
from symphony.api.sign_in import BrowserKey, BrowserSignIn
from symphony.api.skill_outcomes import skill_outcomes
from symphony.api.typed import TypedTexts
from symphony.domain import ALL_ISSUES, AgentChoice, FileChange, Selection, SymphonyError
from symphony.journal.jobs import Job
from symphony.journal.model import RunRecord
from symphony.journal.skill_outcomes import VersionOutcomes
from symphony.journal.skill_usage import OutcomeCounts
from symphony.journal.transcripts import CommandEntry
from symphony.library.model import LearningState, Rating, StoredFeedback
from symphony.library.store import Library
from symphony.problem import Problem, Severity

__all__ = [
    "BEARER",
    "CONTROL",
    "HALF_PAST",
    "LOOPBACK",
    "REMOTE",
    "SIGN_IN",
    "TOKEN",
    "FakeOperator",
    "asking",
    "make_app",
    "no_checks",
    "signed_in",
]


HALF_PAST = "2026-03-01T12:30:00Z"
TOKEN = "a-token-of-the-operator"
BEARER = {"authorization": f"Bearer {TOKEN}"}
SIGN_IN = BrowserSignIn(BrowserKey(name="0" * 16, secret="5" * 64))
CONTROL = Access(sign_in=SIGN_IN)
LOOPBACK = Access.tcp("127.0.0.1", TOKEN, SIGN_IN)
REMOTE = Access.tcp("0.0.0.0", TOKEN, SIGN_IN)  # noqa: S104 - an address as data


async def no_checks(_: object) -> tuple[DoctorCheck, ...]:
    """A machine of which nothing is said."""
    return ()


_VERSIONS = (
    VersionOutcomes(
        name="api-style", sha256="0" * 64, library_version=None, agent="codex", model="gpt-5",
        counts=OutcomeCounts(31, 12, 26, 20, 2, 20, 4, 5),
        attempts=[1] * 31, turns=[3] * 31, tokens=[900] * 31,
        last_used_wall_ms=1_790_000_000_000, stars=[4, 5],
    ),
    VersionOutcomes(
        name="api-style", sha256="1" * 64, library_version=2, agent="codex", model="gpt-5",
        counts=OutcomeCounts(4, 1, 3, 0, 0, 2, 0, 0),
        attempts=[1] * 4, turns=[2] * 4, tokens=[700] * 4,
        last_used_wall_ms=1_790_000_100_000,
    ),
)  # fmt: skip


@dataclass
class FakeOperator:
    """Answers from a story; `fails` is raised instead of any answer."""

    story: Chronicle = field(default_factory=populated)
    fails: Exception | None = None
    unrenderable: SymphonyError | None = None
    asked: list[str] = field(default_factory=list)
    work: dict[str, tuple[FileChange, ...]] = field(default_factory=dict)
    working_diffs: dict[str, WorkingDiff] = field(default_factory=dict)
    parts: list[TranscriptQuery] = field(default_factory=list)
    phases: list[str | None] = field(default_factory=list)
    refreshes: int = 0
    unfit: ConflictError | None = None
    ratings: list[tuple[str, Stars, bool]] = field(default_factory=list)
    orders: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    records: tuple[RunRecord, ...] = ()
    artifacts: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    reviews: dict[str, Review] = field(default_factory=dict)
    patch_texts: dict[str, str] = field(default_factory=dict)
    looks: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    edits: list[tuple[str, str, DraftEdit]] = field(default_factory=list)
    decisions: list[tuple[str, str, ReviewGiven, bool]] = field(default_factory=list)
    typed: TypedTexts = field(default_factory=TypedTexts)
    settings: tuple[Setting, ...] = (
        Setting(key="tracker.kind", value="markdown", given=True),
        Setting(key="polling.interval_ms", value="30000", given=False),
    )
    queries: list[RunQuery] = field(default_factory=list)
    library_file: Path | None = None
    rehearsal: Rehearsal | None = None

    jobs: tuple[Job, ...] = ()
    known_schedules: tuple[Schedule, ...] = ()
    created: list[NewIssue] = field(default_factory=list)

    async def create_issue(self, given: NewIssue) -> CreatedIssue:
        self._try()
        self.created.append(given)
        return CreatedIssue(
            issue_id=f"{len(self.created)}",
            issue_identifier=f"SYM-{len(self.created)}",
            issue_url=None,
            title=given.title,
            state=given.state or "Todo",
        )

    async def schedules(self) -> Schedules:
        self._try()
        return Schedules(schedules=self.known_schedules)

    async def run_schedule(self, name: str) -> CreatedIssue:
        self._try()
        if name not in {each.name for each in self.known_schedules}:
            raise UnknownError("schedule_not_found", "there is no such schedule")
        return await self.create_issue(NewIssue(title=name))

    async def outbox(self) -> Outbox:
        self._try()
        return outbox_document(self.jobs)

    async def change_outbox(self, verb: str, key: str) -> Outbox:
        chosen = [job for job in self.jobs if key in {job.key, job.issue_identifier}]
        if not chosen:
            raise UnknownError("job_not_found", "there is no such job")
        self.orders.append((verb, key, None))
        return outbox_document(chosen)

    def library(self) -> LibraryInUse:
        self._try()
        if self.library_file is None:
            raise UnavailableError("library_unavailable", "this operator has no library")
        return LibraryInUse(store=Library(self.library_file), mask=lambda text: text)

    async def state(self, only: Selection = ALL_ISSUES) -> State:
        self._try()
        story = self.story
        return state_document(story.state, story.history, now_ms=story.now, now=story.wall(), only=only)

    async def issue(self, identifier: str) -> Issue | None:
        self._try()
        self.asked.append(identifier)
        story = self.story
        return issue_document(story.state, story.history, identifier, now_ms=story.now, now=story.wall())

    async def task(self, identifier: str) -> Task | None:
        self._try()
        found = await self.issue(identifier)
        if found is None:
            return None
        return Task(
            generated_at=found.generated_at,
            issue_id=found.issue_id,
            issue_identifier=identifier,
            title=found.title,
            state=found.state,
            gone=False,
            description="What to do.",
            description_cut=False,
            labels=("backend",),
            priority=2,
            blocked_by=(),
            created_at=None,
            updated_at=None,
            comments=(),
            comments_left_out=0,
            can_comment=True,
            failure=None,
        )

    async def rehearse(self, identifiers: Sequence[str] = ()) -> Rehearsal:
        self._try()
        self.asked.extend(identifiers)
        if self.rehearsal is None:
            raise ConflictError("nothing_ready", "no issue is ready for review with a branch")
        return self.rehearsal

    async def runs(self, query: RunQuery) -> Runs:
        self._try()
        self.queries.append(query)
        return runs_document(self.records, query, now=self.story.wall())

    async def skills(self) -> SkillsOverview:
        self._try()
        skill = KnownSkill(
            name="api-style",
            text="An endpoint is added or changed.",
            scope="project",
            path=".symphony/skills/api-style/SKILL.md",
            priority=100,
            phases=("IMPLEMENT",),
        )
        problem = Problem(
            path=".symphony/skills/mails/SKILL.md",
            scope="project",
            severity=Severity.ERROR,
            code="invalid_yaml",
            line=4,
            column=12,
            message="a colon is missing",
            hint="write key: value",
        )
        uses = SkillUses(
            name="api-style",
            listed=31,
            seen=12,
            outcomes={"succeeded": 26, "timed_out": 5},
            seen_outcomes={"succeeded": 12},
            versions=2,
            last_used_at=HALF_PAST,
        )
        return SkillsOverview(
            generated_at=HALF_PAST,
            enabled=True,
            source="workspace",
            complete=True,
            roots=("project: .symphony/skills",),
            skills=(skill,),
            problems=(problem,),
            since=HALF_PAST,
            uses=(uses,),
            outcomes=skill_outcomes(_VERSIONS),
        )

    async def system(self) -> System:
        self._try()
        return System(
            generated_at=HALF_PAST,
            version="0.1.0",
            commit="1a2b3c4",
            python="3.11.7",
            platform="Linux",
            pid=4711,
            workflow="/srv/web/WORKFLOW.md",
            state_directory="/srv/state",
            settings=self.settings,
            diagnosis=Diagnosis(
                checked_at=HALF_PAST,
                checks=(
                    DoctorCheck(name="git", status="ok", message="git version 2.39.5", hint=None),
                    DoctorCheck(
                        name="clock", status="warning", message="not <synchronised>", hint="use chrony"
                    ),
                    DoctorCheck(
                        name="disk", status="error", message="1 MiB are free", hint="free some space"
                    ),
                ),
            ),
        )

    async def prompt(self, identifier: str, phase: str | None = None) -> Prompt | None:
        self.phases.append(phase)
        document = await self.issue(identifier)
        if self.unrenderable is not None:
            raise self.unrenderable
        if document is None:
            return None
        return Prompt(
            issue_identifier=identifier,
            source="daemon",
            attempt=None,
            envelope=None,
            prompt="Do it.",
            skills=Skills(),
            note=None,
            agent=AgentChoice(name="codex", kind="codex", model=None, reason="r", instead_of=None),
        )

    async def working_files(self, identifier: str) -> tuple[FileChange, ...] | None:
        self._try()
        return self.work.get(identifier)

    async def working_diff(self, identifier: str) -> WorkingDiff | None:
        self._try()
        return self.working_diffs.get(identifier)

    async def review(
        self,
        identifier: str,
        reviewer: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Review | None:
        self._try()
        self.looks.append((identifier, reviewer, since))
        found = self.reviews.get(identifier)
        if found is None:
            return None
        return structs.replace(found, since=since or found.since, head=until or found.head)

    async def patches(self, review: Review, files: Sequence[int], *, context: int) -> Mapping[int, str]:
        self._try()
        self.contexts.append(context)
        paths = {place: review.files[place].path for place in files}
        return {place: self.patch_texts[path] for place, path in paths.items() if path in self.patch_texts}

    async def draft(self, identifier: str, reviewer: str, edit: DraftEdit) -> str | None:
        self._try()
        self.edits.append((identifier, reviewer, edit))
        return edit.message or "" if identifier in self.reviews else None

    async def decide(
        self, identifier: str, reviewer: str, given: ReviewGiven, *, with_draft: bool = False
    ) -> ReviewOutcome | None:
        self._try()
        if self.unfit is not None:
            raise self.unfit
        self.decisions.append((identifier, reviewer, given, with_draft))
        if identifier not in self.reviews:
            return None
        return ReviewOutcome(
            issue_identifier=identifier,
            decision=given.decision,
            done=True,
            way=None,
            base=None,
            commit=None,
            state="Todo",
            message="so it will be",
            requested_at=HALF_PAST,
        )

    async def artifact(self, identifier: str, file: str) -> tuple[str, bytes] | None:
        self._try()
        return self.artifacts.get((identifier, file))

    async def metrics(self) -> Exposition:
        self._try()
        return Exposition(content=b"symphony_slots 2\n", content_type="text/plain; version=0.0.4")

    async def transcript(self, identifier: str, part: TranscriptQuery = NEWEST_ENTRIES) -> Transcript | None:
        if await self.issue(identifier) is None:
            return None
        if part.run not in {None, "run-1"}:
            raise UnknownError("run_not_found", "no such run", hint="there is run-1")
        self.parts.append(part)
        entry = CommandEntry(
            seq=1,
            at="2026-03-01T12:30:00.000Z",
            turn=1,
            command="ls",
            status="started",
            exit_code=None,
            output="",
        )
        return Transcript(
            issue_identifier=identifier,
            run_id="run-1",
            entries=(entry,),
            next_after=1,
            more=False,
            earlier=False,
            ended=False,
            complete=True,
            missing=(),
        )

    def refresh(self) -> Refresh:
        self._try()
        self.refreshes += 1
        return Refresh(
            queued=True,
            coalesced=self.refreshes > 1,
            requested_at=HALF_PAST,
            operations=("poll", "reconcile"),
        )

    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> Verb | None:
        self._try()
        if self.unfit is not None:
            raise self.unfit
        if identifier is not None and await self.issue(identifier) is None:
            return None
        self.orders.append((verb, identifier, text))
        return Verb(
            verb=verb,
            issue_identifier=identifier,
            changed=True,
            message="so it will be",
            requested_at=HALF_PAST,
        )

    async def feedback(self, identifier: str, given: Stars, *, may_teach: bool) -> Feedback | None:
        self._try()
        if self.unfit is not None:
            raise self.unfit
        if await self.issue(identifier) is None:
            return None
        self.ratings.append((identifier, given, may_teach))
        rating = Rating(
            workflow="w",
            issue_id="1",
            issue_identifier=identifier,
            run_ids=("run-1",),
            stars=given.stars,
            comment=given.comment,
            author="operator" if may_teach else "visitor",
        )
        waits = LearningState.WAITING
        stored = StoredFeedback(
            id=1, rating=rating, learning=waits, attempts=0, reason=None, learned=None, at_ms=0
        )
        return feedback_document(stored)

    def _try(self) -> None:
        if self.fails is not None:
            raise self.fails


def asking(
    operator: Operator,
    access: Access = CONTROL,
    *,
    host: str = "localhost:8787",
    headers: Mapping[str, str] | None = None,
) -> httpx.AsyncClient:
    """A client of the application; one with a cookie is at the pages of a browser that is signed in.

    What the application raises is raised here.
    """
    root = access.sign_in.root if access.token is not None and "cookie" in (headers or {}) else ""
    return client_of(make_app(operator, access), host=f"{host}{root}", headers=headers)


def signed_in(sign_in: BrowserSignIn) -> dict[str, str]:
    """The header of a browser that has used a link."""
    return {"cookie": sign_in.use_link(sign_in.new_link()).partition(";")[0]}


def make_app(
    operator: Operator,
    access: Access = CONTROL,
    receiver: WebhookReceiver | None = None,
    *,
    changes: Changes | None = None,
) -> ASGIApp:
    """The application; it has a port already."""

    async def open_port() -> str:
        return f"http://{access.sign_in.host}:8787"

    return create_app(operator, access, receiver, changes=changes or Changes(), open_port=open_port)


def client_of(
    app: ASGIApp, *, host: str = "localhost", headers: Mapping[str, str] | None = None
) -> httpx.AsyncClient:
    """A client of any application."""
    transport: Any = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=dict(headers or {}))
