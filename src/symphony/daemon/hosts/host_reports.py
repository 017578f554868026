"""Checks the reports of a worker on a host, because a host is not trusted.

Facts that the daemon knows itself are not taken from a frame: ids, host, branch, workspace, turns, phase, and
the given skills. The rest passes the same checks as reports of agents (`EventBounds`), and is cut and masked.
An honest worker has already made these checks, so a report that fails them ends the run.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from symphony.agents.event_queue import MAX_FIELD_CHARS, EventBounds
from symphony.agents.events import SHORT_MESSAGE_CHARS, RateLimits, TurnEnd, TurnStatus, UsageUpdate
from symphony.agents.json_fields import MAX_DEPTH, MAX_ID_CHARS
from symphony.api.models import Instructions, Skills
from symphony.daemon import frames
from symphony.daemon.frames import CarriedSkills, FrameError, FrameProblem
from symphony.daemon.runs.artifacts import MAX_FILE_BYTES, MAX_FILES
from symphony.daemon.runs.transcript import MAX_TEXT_CHARS
from symphony.domain import (
    MAX_CHECK_OUTPUT_CHARS,
    MAX_COUNT,
    MAX_NAMED_CHANGES,
    MAX_REMARK_CHARS,
    MAX_REMARK_PATH_CHARS,
    MAX_REVIEWER_REMARKS,
    NO_TOKENS,
    NO_WORK,
    Blame,
    Category,
    DeliveredBranch,
    Failure,
    Redaction,
    ReviewerVerdict,
    SkillChanges,
    Verification,
    plain_text,
)
from symphony.journal.transcripts import MAX_LINE_BYTES, MessageEntry, TranscriptEntry
from symphony.library.sync import CollectedSkills
from symphony.library.workspace import WrittenSkills
from symphony.scheduler import (
    MAX_AGENT_LIMIT_MS,
    WAITING_FOR_SLOT,
    ContinueRun,
    FinishRun,
    Outcome,
    OutcomeKind,
    RunReport,
    RunStage,
    StartRun,
)
from symphony.workspaces import MAX_CHANGED

MAX_NODES: Final = 100_000
"""How many values one frame has at most."""
MAX_LISTED: Final = 300
"""How many skills of a session are shown at most."""
_MAX_ITEMS: Final = 100
_MAX_NAME_CHARS: Final = 200
_MAX_LOG_FIELDS: Final = 50
_MOMENT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_MAX_SEQ_STEP: Final = 100_000
_HEAD: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,59}")
# Names in a log event that belong to the daemon or to structlog.
_OWN_FIELDS: Final = frozenset(
    {"event", "level", "logger", "timestamp", "self", "exc_info", "stack_info", "trace_id", "span_id"}
)
_QUESTIONS: Final = frozenset({Category.TURN_INPUT_REQUIRED, Category.APPROVAL_REQUIRED})
_OF_THE_DAEMON: Final = frozenset(
    {
        Category.BUDGET_ISSUE,
        Category.BUDGET_DAY,
        Category.NO_PROGRESS,
        Category.STALLED,
        Category.STOPPED_BY_OPERATOR,
        Category.PULL_REQUEST_CLOSED,
        Category.PULL_REQUEST_NEEDS_YOU,
        Category.VERIFY_FAILED,
    }
)
MAX_FRAMES: Final = {
    frames.ArtifactFound: MAX_FILES,
    frames.CommentsAsked: 10,
    frames.ConversationOpened: 10,
    frames.SkillsCollected: 10,
    frames.SkillsLoaded: 20,
    frames.TranscriptIncomplete: 20,
    frames.InstructionsComposed: 1_000,
    frames.SkillsChanged: 2_000,
}
"""How many frames of a kind one run may send, because each uses memory or disk of the daemon."""
T = TypeVar("T")


def refused(reason: str) -> FrameError:
    """The error for a frame that no honest worker sends."""
    return FrameError(FrameProblem.MALFORMED, f"the worker reports something impossible: {reason}")


def checked(value: T, text: Callable[[str], str]) -> T:
    """The value with `text` applied to all texts in it.

    Raises:
        FrameError: a number is not finite or not from -2**53 to 2**53, or there are too many values or
            levels.
    """
    return cast("T", _Walk(text).value(value, MAX_DEPTH))


@dataclass(slots=True)
class _Walk:
    text: Callable[[str], str]
    nodes: int = 0

    def value(self, value: Any, levels: int) -> Any:  # noqa: C901, PLR0911 - one case per type
        self.nodes += 1
        if self.nodes > MAX_NODES or levels < 0:
            raise refused("too many values, or too deep")
        match value:
            case None | bool() | Enum():
                return value
            case int() | float():
                if not math.isfinite(value) or abs(value) > MAX_COUNT:
                    raise refused(f"a number that is not within {MAX_COUNT}")
                return value
            case str():
                return self.text(value)
            case Path():
                return Path(self.text(str(value)))
            case Mapping():
                return {
                    self.value(key, levels - 1): self.value(each, levels - 1) for key, each in value.items()
                }
            case list() | tuple() | frozenset():
                return type(value)(self.value(each, levels - 1) for each in value)
            case Struct():
                return type(value)(**self._fields(value, value.__struct_fields__, levels))
            case _ if is_dataclass(value) and not isinstance(value, type):
                return replace(value, **self._fields(value, (each.name for each in fields(value)), levels))
            case _:
                raise refused(f"a {type(value).__name__}")

    def _fields(self, value: object, names: Iterable[str], levels: int) -> dict[str, Any]:
        return {name: self.value(getattr(value, name), levels - 1) for name in names}


class HostReports:
    """Checks the frames of one run, in any thread, one call at a time.

    Args:
        command: the command that began the run.
        host: the machine, for the log.
        branch: the branch of the issue; `None` if the daemon delivers none.
        workspace: its directory on the host.
        carried: the skills of the library that the run got.
        directory: where they are in the workspace, from the settings.
        redaction: masks secrets.
    """

    def __init__(
        self,
        command: StartRun,
        *,
        host: str,
        branch: str | None,
        workspace: str,
        carried: CarriedSkills | None,
        directory: str,
        redaction: Redaction,
    ) -> None:
        self._branch = branch
        self._workspace = workspace
        self._given = {} if carried is None else {name: one for name, (one, _) in carried.data.items()}
        self._directory = directory
        self._redaction = redaction
        self._own_fields = {
            "issue_id": command.issue.id,
            "issue_identifier": command.issue.identifier,
            "run_id": command.run_id,
            "host": host,
            "reported_by": "worker",
        }
        self._phase = None if command.phase is None else command.phase.name
        self._turn = 1
        self._turn_begun = False
        self._finish: Failure | None = None
        self._synced: SkillChanges | None = None
        self._bounds = EventBounds()
        self._counts = dict.fromkeys(MAX_FRAMES, 0)
        self._seq = 0
        self.latest = RunReport(stage=RunStage.PREPARING_WORKSPACE)
        """The last report, with the daemon's number of turns."""

    def on_directive(self, frame: frames.DaemonFrame) -> None:
        """Note a frame that the daemon sends to the worker."""
        match frame:
            case frames.Continue(command=ContinueRun(turn=turn, phase=phase)):
                self._turn, self._turn_begun = turn, False
                self._phase = None if phase is None else phase.name
                self._bounds.new_turn()
            case frames.Finish(command=FinishRun(failure=failure)):
                self._finish = failure
            case frames.RequestAnswered(synced=synced) if synced is not None:
                self._synced = synced.changes
            case _:
                pass

    def check(self, frame: frames.WorkerFrame) -> frames.WorkerFrame:  # noqa: C901, PLR0911, PLR0912 - one case per frame
        """The trustworthy part of the frame. Raises `FrameError`: the run ends."""
        if type(frame) in MAX_FRAMES:
            self._counts[type(frame)] += 1
            if self._counts[type(frame)] > MAX_FRAMES[type(frame)]:
                raise refused(f"more than {MAX_FRAMES[type(frame)]} frames {type(frame).__name__}")
        match frame:
            case frames.Report():
                return frames.Report(report=self._report(frame.report))
            case frames.TurnFinished():
                if frame.turn == self._turn:
                    self._turn_begun = True
                    facts = structs.replace(self.latest.facts, turn_count=self._turn)
                    self.latest = replace(self.latest, facts=facts)
                changed = tuple(map(self._line, frame.changed[:MAX_CHANGED]))
                return structs.replace(frame, changed=changed)
            case frames.RunOutcome():
                return frames.RunOutcome(outcome=self._outcome(frame.outcome))
            case frames.InstructionsComposed():
                return frames.InstructionsComposed(instructions=self._instructions(frame.instructions))
            case frames.SkillsChanged():
                return frames.SkillsChanged(skills=self._skills(frame.skills))
            case frames.TranscriptIncomplete():
                return frames.TranscriptIncomplete(reason=self._line(frame.reason))
            case frames.TranscriptEntries():
                return frames.TranscriptEntries(entries=tuple(map(self._entry, frame.entries)))
            case frames.Logged():
                return self._logged(frame)
            case frames.ToolCallAsked():
                arguments = checked(frame.arguments, str)  # they belong to the agent
                return structs.replace(frame, arguments=arguments, session_id=self._line(frame.session_id))
            case frames.ConversationOpened():
                thread_id = self._id(frame.thread_id)
                if thread_id is None:
                    raise refused("a conversation without a usable id")
                return structs.replace(frame, thread_id=thread_id)
            case frames.SkillsLoaded():
                return structs.replace(frame, found=checked(frame.found, self._text))
            case frames.ArtifactFound():
                if len(frame.data) > MAX_FILE_BYTES or not frame.name:
                    raise refused("a file of a check that is too large, or has no name")
                text = self._redaction.verbatim(frame.data.decode("utf-8", "surrogateescape"))
                data = text.encode("utf-8", "surrogateescape")
                return structs.replace(frame, name=self._name(frame.name), data=data)
            case frames.SkillsCollected():
                return structs.replace(frame, collected=self._collected(frame.collected))
            case _:
                return checked(frame, self._line)

    # --- texts -------------------------------------------------------------------------------------------

    def _line(self, text: str) -> str:
        return self._redaction.line(text)

    def _name(self, text: str) -> str:
        return self._redaction.line(text, _MAX_NAME_CHARS)

    def _text(self, text: str, limit: int = MAX_FIELD_CHARS) -> str:
        """The text, masked and then cut; the margin is as long as the known secrets."""
        return self._redaction.text(text[: 2 * limit])[:limit]

    def _is_word(self, text: str) -> bool:
        """Whether it may name an event or a field: some tokens look like a word."""
        return _WORD.fullmatch(text) is not None and self._redaction.text(text) == text

    def _id(self, text: str | None, limit: int = MAX_ID_CHARS) -> str | None:
        """An id of the agent.

        It is passed back on the command line, so it must be no option and no secret.
        """
        usable = text and text.isprintable() and len(text) <= limit and not text.startswith("-")
        return text if usable and self._redaction.text(text or "") == text else None

    # --- reports -----------------------------------------------------------------------------------------

    def _report(self, report: RunReport) -> RunReport:
        report = checked(report, str)
        facts = report.facts
        counts = (report.event_count, report.tool_calls, *structs.astuple(facts))
        if any(isinstance(count, int) and count < 0 for count in counts):
            raise refused("a negative number")
        if self._bounds.check(UsageUpdate(absolute=True, tokens=facts.tokens)) is None:
            raise refused("more tokens than a turn can use")
        used = facts.reviewer_tokens
        if min(structs.astuple(used)) < 0 or used.above(facts.tokens) != NO_TOKENS:
            raise refused("a reviewer with more tokens than the run")
        cost = self._bounds.check(TurnEnd(status=TurnStatus.COMPLETED, cost_usd=facts.cost_usd))
        self._turn_begun = self._turn_begun or facts.turn_count >= self._turn
        facts = structs.replace(
            facts,
            work=NO_WORK,  # the daemon measures it once the branch is fetched
            workspace_path=None if facts.workspace_path is None else self._workspace,
            branch=None if facts.workspace_path is None else self._branch,
            session_id=self._id(facts.session_id, 2 * MAX_ID_CHARS),
            thread_id=self._id(facts.thread_id),
            turn_count=self._turn if self._turn_begun else self._turn - 1,
            model=None if facts.model is None else self._name(facts.model),
            cost_usd=cost.cost_usd if isinstance(cost, TurnEnd) else None,
        )
        self.latest = replace(
            report,
            facts=facts,
            last_event=self._event(report.last_event),
            last_message=self._short(report.last_message),
            last_words=self._short(report.last_words),
            rate_limits=None,
        )
        return replace(self.latest, rate_limits=self._limits(report.rate_limits))

    def _short(self, text: str | None) -> str | None:
        return None if text is None else self._redaction.line(text, SHORT_MESSAGE_CHARS)

    def _event(self, name: str | None) -> str | None:
        return name if name is not None and self._is_word(name) and name != WAITING_FOR_SLOT else None

    def _limits(self, payload: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if payload is None:
            return None
        found = self._bounds.check(RateLimits(payload=dict(payload)))
        return checked(found.payload, self._line) if isinstance(found, RateLimits) else None

    def _logged(self, frame: frames.Logged) -> frames.Logged:
        names = [name for name in frame.fields if _WORD.fullmatch(name) and name not in _OWN_FIELDS]
        few = filter(self._is_word, names[:_MAX_LOG_FIELDS])
        kept = {name: checked(frame.fields[name], self._text) for name in few}
        if len(msgspec.json.encode(kept, enc_hook=str)) > 2 * MAX_FIELD_CHARS:
            kept = {}
        event = frame.event if self._is_word(frame.event) else self._name(frame.event)
        return frames.Logged(level=frame.level, event=event, fields={**kept, **self._own_fields})

    def _entry(self, entry: TranscriptEntry) -> TranscriptEntry:
        if not self._seq < entry.seq <= self._seq + _MAX_SEQ_STEP or (entry.replaces or 0) >= entry.seq:
            raise refused(f"entry {entry.seq} of the transcript after {self._seq}")
        try:
            datetime.strptime(entry.at, _MOMENT)  # noqa: DTZ007 - it ends with Z
        except ValueError as error:
            raise refused("a moment that is none") from error
        self._seq = entry.seq
        made = checked(entry, lambda text: self._text(text, MAX_TEXT_CHARS))
        if isinstance(made, MessageEntry) and isinstance(entry, MessageEntry):
            made = structs.replace(made, status=entry.status)  # one of three words, whatever is a secret
        if len(msgspec.json.encode(made)) >= MAX_LINE_BYTES:
            raise refused("an entry of the transcript that fits on no line")
        return made

    # --- instructions and skills -------------------------------------------------------------------------

    def _instructions(self, found: Instructions) -> Instructions:
        return structs.replace(
            checked(found, self._line),
            phase=None if found.phase is None else self._phase,
            modules=_few(found.modules, self._name),
            dropped=_few(found.dropped, self._name),
            problems=_few(found.problems, self._line),
        )

    def _skills(self, skills: Skills) -> Skills:
        def own_version(one: Any) -> Any:
            known = self._given.get(one.name) == one.library_version
            return structs.replace(one, library_version=one.library_version if known else None)

        return Skills(
            commit=None if skills.commit is None else self._name(skills.commit),
            listed=tuple(map(own_version, _few(skills.listed, self._name, MAX_LISTED))),
            native=tuple(map(own_version, _few(skills.native, self._name, MAX_LISTED))),
            dropped=_few(skills.dropped, self._name),
            problems=_few(skills.problems, self._name),
            synced=None if skills.synced is None else self._synced,
        )

    def _collected(self, collected: CollectedSkills) -> CollectedSkills:
        """A change must be based on a skill and version that the run got."""
        written = {
            name: one
            for name, one in collected.written.skills.items()
            if 1 <= one.version <= self._given.get(name, 0)
        }
        return CollectedSkills(
            written=WrittenSkills(
                directory=self._directory,
                skills=checked(written, plain_text),
                others=tuple(map(plain_text, collected.written.others)),
            ),
            files={plain_text(name): data for name, data in collected.files.items()},
            problems=_few(collected.problems, self._line),
        )

    # --- the end -----------------------------------------------------------------------------------------

    def _outcome(self, outcome: Outcome) -> Outcome:
        outcome = checked(outcome, str)
        failure = None if outcome.failure is None else self.failure(outcome.failure)
        asks = outcome.kind is OutcomeKind.INPUT_REQUIRED
        if asks and failure is not None and failure.category not in _QUESTIONS:
            failure = replace(failure, category=Category.TURN_INPUT_REQUIRED)
        return Outcome(
            kind=outcome.kind,
            failure=failure,
            progress=outcome.progress,
            question=None if outcome.question is None else self._text(outcome.question),
            request=self._id(outcome.request),
            delivered=self._delivered(outcome.delivered),
            summary=None if outcome.summary is None else self._redaction.line(outcome.summary, 500),
            left=None if outcome.left is None else self._redaction.line(outcome.left, 1_000),
            verification=self._verification(outcome),
        )

    def _delivered(self, delivered: DeliveredBranch | None) -> DeliveredBranch | None:
        """The reported commit of a delivery, which is compared with the fetched one."""
        if delivered is None or self._branch is None:
            return None
        if not _HEAD.fullmatch(delivered.head) or self._id(delivered.head) is None:
            raise refused("a commit that is none")
        return DeliveredBranch(branch=self._branch, head=delivered.head)

    def _verification(self, outcome: Outcome) -> Verification | None:
        """The verification, if it is about the commit that the host says it delivered."""
        made, delivered = outcome.verification, outcome.delivered
        if made is None or (delivered is not None and made.head != delivered.head):
            return None
        for commit in filter(None, (made.head, made.base)):
            if not _HEAD.fullmatch(commit) or self._id(commit) is None:
                raise refused("a verification of a commit that is none")
        if len(made.checks) > _MAX_ITEMS or any(check.duration_ms < 0 for check in made.checks):
            raise refused("checks that cannot be")
        return replace(
            made,
            checks=tuple(
                replace(
                    check,
                    name=self._name(check.name),
                    output_tail=self._text(check.output_tail, MAX_CHECK_OUTPUT_CHARS),
                    problem=None if check.problem is None else self._line(check.problem),
                )
                for check in made.checks
            ),
            problem=None if made.problem is None else self._line(made.problem),
            protected_changes=_few(made.protected_changes, self._line, MAX_NAMED_CHANGES),
            weakened=_few(made.weakened, self._line, MAX_NAMED_CHANGES),
            artifacts=tuple(
                replace(each, name=self._name(each.name)) for each in made.artifacts[:MAX_FILES] if each.name
            ),
            run_id=None,
            passed_after_failure=False,
            reviewer=None if made.reviewer is None else self._reviewer(made.reviewer),
        )

    def _reviewer(self, verdict: ReviewerVerdict) -> ReviewerVerdict:
        """The verdict, within the limits of a local worker."""
        if any(remark.line is not None and remark.line < 1 for remark in verdict.remarks):
            raise refused("a remark on a line that cannot be")
        return replace(
            verdict,
            reviewer=self._name(verdict.reviewer),
            remarks=tuple(
                structs.replace(
                    remark,
                    file=self._redaction.line(remark.file, MAX_REMARK_PATH_CHARS),
                    text=self._text(remark.text, MAX_REMARK_CHARS),
                )
                for remark in verdict.remarks[:MAX_REVIEWER_REMARKS]
            ),
        )

    def failure(self, failure: Failure) -> Failure:
        """A failure that a host reports, masked and limited."""
        if self._finish is not None and failure.category is self._finish.category:
            return self._finish
        if failure.category in _OF_THE_DAEMON:
            failure = replace(failure, category=Category.WORKER_LOST, blame=Blame.HOST, retryable=True)
        wait_ms, status = failure.retry_after_ms, failure.status
        return replace(
            self._redaction.failure(failure),
            retry_after_ms=None if wait_ms is None else min(max(wait_ms, 0), MAX_AGENT_LIMIT_MS),
            status=status if status is not None and 100 <= status < 600 else None,  # noqa: PLR2004 - those of HTTP
        )


def _few(values: Sequence[T], text: Callable[[str], str], most: int = _MAX_ITEMS) -> tuple[T, ...]:
    return tuple(checked(each, text) for each in values[:most])
