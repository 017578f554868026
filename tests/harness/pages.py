"""A day at a project as documents, an operator that answers with them, and a server for a real browser."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from msgspec import structs
from msgspec.structs import replace
from starlette.types import ASGIApp
from typing_extensions import override

from harness.asking import FakeOperator
from symphony import to_thread
from symphony.api import models
from symphony.api.interface import NEWEST_ENTRIES, RunQuery, TranscriptQuery
from symphony.api.models import utc_text
from symphony.domain import ALL_ISSUES, AgentChoice, Phase, Selection, Spent, Tokens, WorkSize
from symphony.journal.transcripts import (
    CommandEntry,
    EditedFile,
    EditEntry,
    MessageEntry,
    PlanEntry,
    ReasoningEntry,
    ToolEntry,
    TranscriptPlanStep,
    TurnEntry,
    read_transcript,
)
from symphony.library.evaluation import Comparison, Evaluation, Trial
from symphony.library.model import Authorship, Evidence, Origin, SkillText, TargetKind
from symphony.library.store import Library
from symphony.problem import Problem, Severity
from symphony.scheduler import LineComment

__all__ = ["NOW", "DemoOperator", "demo_state", "fill_library", "serve_app"]

NOW = datetime(2026, 3, 4, 9, 41, tzinfo=UTC)
CODEX = AgentChoice(
    name="codex", kind="codex", model="gpt-5.2-codex", reason="the default (agent.kind)", instead_of=None
)
CLAUDE = AgentChoice(
    name="claude", kind="claude", model="opus", reason="the label docs (agent.rules)", instead_of=None
)


PATCHES = {
    "app/audit/cursor.py": """\
app/audit/cursor.py app/audit/cursor.py
index 3b18e51..a0423896 100644
--- app/audit/cursor.py
+++ app/audit/cursor.py
@@ -12,6 +12,9 @@ class AuditLog:
     def page(self, after: str | None) -> Page:
         \"\"\"Entries after a cursor, the oldest first.\"\"\"
--        # an old remark
-        return self._query(after, limit=50)
+        # Two events may share a timestamp, so the id decides.
+        return self._query(after, limit=self.limit)
 def cursor(event: Event) -> str:
-    return event.at
+    \"\"\"Where the next page begins.\"\"\"
+    if event.id is None:
+        raise ValueError("the event is not stored yet")
+    return f"{event.at}/{event.id}"
@@ -46,3 +50,3 @@ def cursor(event: Event) -> str:
 LIMITS = {
-    "page": 50,
+    "page": 100,
     "export": 10_000,
""",
    "web/pager.ts": """\
web/pager.ts web/pager.ts
index 1111111..2222222 100644
--- web/pager.ts
+++ web/pager.ts
@@ -1,3 +1,4 @@
 export function next(page: Page): string {
-  return page.events[page.events.length - 1].at;
+  const last = page.events[page.events.length - 1];
+  return `${last.at}/${last.id}`; // as the server makes it
 }
\\ No newline at end of file
""",
    "docs/new name.md": "docs/old name.md docs/new name.md\nsimilarity index 100%\n",
}


def ago(**units: float) -> str:
    """The moment that long before NOW."""
    return utc_text(NOW - timedelta(**units))


def running_row(
    number: int,
    title: str,
    last_message: str,
    *,
    turn: int = 1,
    total: int = 0,
    silent_s: int = 4,
    agent: AgentChoice = CODEX,
    stage: str = "streaming_turn",
) -> models.RunningRow:
    return models.RunningRow(
        issue_id=str(number),
        issue_identifier=f"WEB-{number}",
        issue_url=f"https://tracker.example/WEB-{number}",
        title=title,
        agent=agent,
        worker_host=None,
        workspace_path=f"/srv/work/WEB-{number}",
        skills=models.SkillNames(listed=("api-style", "testing"), dropped=(), malformed=()),
        run_id=f"run-{number}",
        state="In Progress",
        stage=stage,
        attempt=None,
        attempt_number=1,
        attempt_limit=5,
        turn=turn,
        stopping=None,
        session_id=f"thread-{number}",
        turn_count=turn,
        last_event="item",
        last_message=last_message or None,
        started_at=ago(minutes=11 + number % 7),
        last_event_at=ago(seconds=silent_s),
        tokens=Tokens(input_tokens=total * 9 // 10, output_tokens=total // 10, total_tokens=total),
        cost_usd=total * 3.1e-6 if total else None,
        resumed_from=None,
    )


def blocked_row(
    number: int, title: str, error: str, *, code: str, hint: str | None, question: str | None = None
) -> models.BlockedRow:
    return models.BlockedRow(
        issue_id=str(number),
        issue_identifier=f"WEB-{number}",
        issue_url=f"https://tracker.example/WEB-{number}",
        title=title,
        agent=CLAUDE if question else CODEX,
        spent=Spent(tokens=212_400, turns=3),
        worker_host=None,
        workspace_path=f"/srv/work/WEB-{number}",
        state="In Progress",
        error=error,
        failure=models.Failure(code=code, message=error, hint=hint, where=None),
        session_id=f"thread-{number}",
        blocked_at=ago(minutes=7 + number % 60),
        last_event="item",
        last_message=None,
        last_event_at=ago(minutes=7 + number % 60),
        question=question,
        resumable=True,
        not_obeyed=(),
        answers_failure=None,
    )


def waiting_row(number: int, title: str, code: str, message: str, position: int) -> models.WaitingRow:
    return models.WaitingRow(
        issue_id=str(number),
        issue_identifier=f"WEB-{number}",
        issue_url=f"https://tracker.example/WEB-{number}",
        title=title,
        state="Todo",
        reason=models.Reason(code=code, message=message),
        agent=CODEX,
        position=position,
    )


READY = models.ReadyRow(
    issue_id="118",
    issue_identifier="WEB-118",
    issue_url="https://tracker.example/WEB-118",
    title="Export reports as CSV",
    state="In Review",
    delivered=models.ReadyBranch(
        branch="symphony/WEB-118",
        head="5d1c" * 10,
        work=WorkSize(commits=3, files_changed=7, insertions=214, deletions=38),
        push="pushed",
        push_failure=None,
        branch_failure=None,
    ),
    turns=4,
    tokens=Tokens(total_tokens=486_000),
    cost_usd=2.14,
    summary="Reports can be downloaded as CSV; the export streams, so that large reports need no memory.",
    pull_request_url="https://forge.example/web/pulls/418",
    look=("symphony diff WEB-118", "git diff main...symphony/WEB-118"),
    ended_at=ago(minutes=42),
    pull_request=models.PullRequest(
        number=418,
        url="https://forge.example/web/pulls/418",
        state="open",
        draft=False,
        code="checks_pending",
        message="checks are running: test, lint",
        needs_you=False,
        failure=None,
    ),
)


def review_file(path: str, status: str = "modified", **others: Any) -> models.ReviewFile:
    return models.ReviewFile(
        **{"path": path, "status": status, "old_path": None, "insertions": 1, "deletions": 1, **others}
    )


def demo_review() -> models.Review:
    """The change of `READY`, with a comment that is drafted."""
    return models.Review(
        generated_at=utc_text(NOW),
        issue_id="118",
        issue_identifier="WEB-118",
        title=READY.title,
        state=READY.state,
        status="ready",
        branch="symphony/WEB-118",
        start="a" * 40,
        since="a" * 40,
        head="c0ffee5a" * 5,
        last="c0ffee5a" * 5,
        deliveries=(
            models.ReviewDelivery(head="c0ffee5a" * 5, run_id="run-118-2", at="2026-03-04T08:51:00Z"),
            models.ReviewDelivery(head="b" * 40, run_id="run-118-1", at="2026-03-04T08:42:00Z"),
        ),
        looked_at=None,
        summary=READY.summary,
        verified=models.Verified(
            head="c0ffee5a" * 5,
            passed=True,
            status="passed",
            message="tests, lint passed",
            base=None,
            checks=(),
            protected_changes=(),
            weakened=(),
        ),
        unverified=False,
        pull_request=READY.pull_request,
        pull_request_url=READY.pull_request_url,
        rehearsal=None,
        commits=(
            models.ReviewCommit(
                commit="c0ffee5a" * 5, author="Agent", at="2026-03-04T08:50:00Z", subject="Stream the export"
            ),
            models.ReviewCommit(
                commit="b" * 40, author="Agent", at="2026-03-04T08:41:00Z", subject="Make the cursor unique"
            ),
        ),
        files=(
            review_file("app/audit/cursor.py", insertions=7, deletions=4),
            review_file("web/pager.ts", insertions=2),
            review_file("assets/logo.png", "added", insertions=None, deletions=None),
            review_file(
                "docs/new name.md", "renamed", old_path="docs/old name.md", insertions=0, deletions=0
            ),
            review_file("package-lock.json", insertions=4_310, deletions=1_204),
            review_file("tests/test_cursor.py", "added", insertions=38, deletions=0, viewed=True),
        ),
        files_left_out=0,
        insertions=4_357,
        deletions=1_209,
        approval="merge",
        command="git -C /srv/web merge symphony/WEB-118",
        verify=models.Choice(allowed=True),
        send_back=models.Choice(allowed=True),
        approve=models.Choice(allowed=True),
        message="The cursor is right now.",
        comments=(
            LineComment(
                file="app/audit/cursor.py",
                line=15,
                old=False,
                quote="        return self._query(after, limit=self.limit)",
                text="Where does the limit come from? A page of 10,000 must not be possible.",
                head="c0ffee5a" * 5,
            ),
        ),
        left=None,
        others=(),
        decided=None,
    )


def demo_state() -> models.State:
    """A board with something of each kind."""
    slot = "4 of 4 slots are used"
    waiting = (
        waiting_row(141, "Rate limit the public search endpoint", "no_slot", slot, 1),
        waiting_row(143, "Show the plan on the billing page", "no_slot", slot, 2),
        waiting_row(
            139, "Migrate sessions to the new table", "not_dispatchable", "is blocked by WEB-131 (Todo)", 3
        ),
        waiting_row(150, "Translate the mails", "label_missing", "has no label agent", 4),
    )
    return models.State(
        generated_at=utc_text(NOW),
        health=models.DaemonHealth(
            status="ok",
            polls=912,
            last_poll_at=ago(seconds=12),
            poll_failure=None,
            workflow_failure=None,
            skipped_records=(),
        ),
        counts=models.Counts(running=4, retrying=1, blocked=2, waiting=4, ready=1),
        slots=models.Slots(used=4, limit=4),
        running=(
            running_row(
                131,
                "Paginate the audit log",
                "The cursor is stable now. I am writing a test with two pages that share a timestamp.",
                turn=2,
                total=318_200,
            ),
            running_row(
                134,
                "Dark mode for the settings page",
                "pytest -q tests/ui/test_settings.py",
                turn=1,
                total=96_400,
                silent_s=21,
            ),
            running_row(
                137, "Document the webhook payloads", "", total=0, stage="launching_agent", agent=CLAUDE
            ),
            running_row(
                128,
                "Retry failed card payments",
                "Waiting for the sandbox of the payment provider",
                turn=3,
                total=702_900,
                silent_s=312,
            ),
        ),
        retrying=(
            models.RetryingRow(
                issue_id="126",
                issue_identifier="WEB-126",
                issue_url=None,
                title="Upgrade the image library",
                state="In Progress",
                agent=CODEX,
                last_error=None,
                worker_host=None,
                workspace_path=None,
                attempt=2,
                attempt_number=3,
                attempt_limit=5,
                due_at=utc_text(NOW + timedelta(seconds=95)),
                error="turn_timeout: no sign of life for 300 s",
            ),
        ),
        blocked=(
            blocked_row(
                122,
                "Delete accounts after 30 days",
                "the agent needs a person",
                code="turn_input_required",
                hint=None,
                question="Invoices must be kept for ten years. Shall I anonymise them and keep the amounts,\n"
                "or move them to the archive before the account goes?",
            ),
            blocked_row(
                119,
                "Speed up the nightly import",
                "5 attempts without progress: the test tests/import/test_large.py times out each time",
                code="no_progress",
                hint="look at the test, then unblock the issue",
            ),
        ),
        waiting=waiting,
        waiting_by_reason={"no_slot": 2, "not_dispatchable": 1, "label_missing": 1},
        waiting_left_out=0,
        ready=(READY,),
        pushes=(),
        failed_pushes=(),
        codex_totals=models.Totals(
            input_tokens=5_180_000, output_tokens=412_000, total_tokens=5_592_000, seconds_running=18_240.0
        ),
        skills_totals=models.SkillsTotals(runs=31, listed=62, dropped=0, malformed=1),
        rate_limits=None,
        creates_in=("Todo", "In Progress"),
        agents=(
            models.AgentInUse(name="codex", kind="codex", model="gpt-5.2-codex", limited=None),
            models.AgentInUse(name="claude", kind="claude", model="opus", limited=None),
        ),
        polling=models.Polling(checking=False, next_poll_in_ms=18_000, poll_interval_ms=30_000),
        drain="no",
        paused=False,
        budgets=models.Budgets(
            day="2026-03-04",
            day_tokens=3_100_000,
            day_cost_usd=9.61,
            used_up_by=None,
            max_tokens_per_day=12_000_000,
            max_tokens_per_issue=2_000_000,
            max_turns_per_issue=None,
            max_turns_without_progress=3,
            max_attempts_without_progress=5,
        ),
        tracker=models.TrackerHealth(
            circuit="closed",
            failures_in_a_row=0,
            until=None,
            asks_next_at=utc_text(NOW + timedelta(seconds=18)),
            last_error=None,
        ),
        journal=models.JournalHealth(state="ok", reason=None, hint=None),
        version="0.1.0",
        commit="1a2b3c4",
    )


def past_run(
    number: int,
    outcome: str | None,
    *,
    reason: str | None = None,
    started_h: float,
    cost: float | None = 0.84,
    commits: int = 0,
) -> models.PastRun:
    return models.PastRun(
        work=WorkSize(commits=commits),
        run_id=f"run-131-{number}",
        attempt=None if number == 1 else number - 1,
        agent="codex",
        started_at=ago(hours=started_h),
        ended_at=None if outcome is None else ago(hours=started_h - 0.2),
        outcome=outcome,
        reason=reason,
        turn_count=2,
        tokens=Tokens(280_000, 38_200, 318_200),
        branch="symphony/WEB-131",
        model="gpt-5.2-codex",
        cost_usd=cost,
        unpriced_tokens=0 if cost is not None else 318_200,
    )


def demo_issue() -> models.Issue:
    """A running issue with an earlier run."""
    state = demo_state()
    row = state.running[0]
    run = models.Run(**{name: getattr(row, name) for name in models.Run.__struct_fields__})
    return models.Issue(
        generated_at=state.generated_at,
        issue_id=row.issue_id,
        issue_identifier=row.issue_identifier,
        issue_url=row.issue_url,
        title=row.title,
        state="In Progress",
        moves_to=("Todo", "In Progress", "Done"),
        status="running",
        agent=row.agent,
        workspace=models.WorkspacePlace(path=row.workspace_path, host=None, branch="symphony/WEB-131"),
        attempts=models.Attempts(number=1, limit=5, restart_count=0, current_retry_attempt=0, runs_started=2),
        running=run,
        retry=None,
        blocked=None,
        waiting=None,
        result=None,
        runs=(
            past_run(2, None, started_h=0.2, cost=1.12),
            past_run(
                1, "timed_out", reason="turn_timeout: no sign of life for 300 s", started_h=3, cost=None
            ),
        ),
        cost_usd=1.12,
        unpriced_tokens=318_200,
        logs=models.Logs(codex_session_logs=()),
        recent_events=(
            models.Event(at=ago(hours=2.8), event="run_ended", message="timed out after turn 1"),
            models.Event(at=ago(hours=2.8), event="retry_scheduled", message="attempt 2 of 5 in 20 s"),
            models.Event(at=ago(minutes=12), event="run_started", message="agent codex, attempt 2 of 5"),
            models.Event(at=ago(minutes=5), event="turn_started", message="turn 2"),
        ),
        last_error="turn_timeout: no sign of life for 300 s",
        skills=models.Skills(
            commit="9f3c2ab",
            listed=(
                models.ListedSkill(
                    name="api-style", path=".symphony/skills/api-style/SKILL.md", sha256="3f" * 32, seen=True
                ),
                models.ListedSkill(
                    name="testing", path=".symphony/skills/testing/SKILL.md", sha256="a7" * 32, seen=False
                ),
            ),
            dropped=(models.DroppedSkill(name="release-notes", reason="not_included"),),
            problems=(
                models.SkillProblem(
                    path=".symphony/skills/mails/SKILL.md",
                    code="invalid_yaml",
                    severity="error",
                    line=4,
                    column=12,
                    sha256=None,
                ),
            ),
        ),
        spent=Spent(tokens=636_400, turns=3),
        tracked={},
        paused=False,
        budgets=state.budgets,
        tracker=state.tracker,
        journal=state.journal,
        phase=Phase(name="IMPLEMENT", reason="the state is In Progress"),
        instructions=models.Instructions(
            phase="IMPLEMENT",
            origin="last_good",
            sha256="e0" * 32,
            modules=(models.InstructionModule(name="python-style", sha256="5c" * 32),),
            dropped=("history-of-the-project",),
            chars=4_812,
            problems=(
                Problem(
                    path="docs/agents.yaml",
                    line=7,
                    column=None,
                    code="invalid_yaml",
                    severity=Severity.ERROR,
                    message="a colon is missing",
                    hint="write key: value",
                ),
            ),
        ),
    )


DESCRIPTION = """\
The audit log has **40,000 rows**. Page through it with a cursor.

1. 100 rows a page
2. a cursor that survives two events with one timestamp

| Field | Kind |
| --- | --- |
| `after` | text |

See https://pages.example/cursors, [the old log](https://pages.example/log) and ![a drawing](https://pages.example/a.png).

```python
page = log.read(after=cursor)
```
"""


def demo_task(issue: models.Issue) -> models.Task:
    """What the tracker says of an issue: a description, a dependency, and comments of all."""

    def comment(number: int, by: str, author: str, body: str) -> models.TaskComment:
        at = ago(hours=4 - number / 2)
        return models.TaskComment(id=str(number), by=by, author=author, at=at, body=body, cut=False)

    return models.Task(
        generated_at=issue.generated_at,
        issue_id=issue.issue_id,
        issue_identifier=issue.issue_identifier,
        title=issue.title,
        state=issue.state,
        gone=False,
        description=DESCRIPTION,
        description_cut=False,
        labels=("backend", "audit"),
        priority=2,
        blocked_by=(
            models.TaskBlocker(
                issue_identifier="WEB-118", title=READY.title, state="Done", over=True, known=True
            ),
            models.TaskBlocker(
                issue_identifier="OPS-7", title=None, state="In Progress", over=False, known=False
            ),
        ),
        created_at=ago(days=3),
        updated_at=ago(hours=2),
        comments=(
            comment(1, "person", "ann", "Please keep the parameter `limit`; two clients use it."),
            comment(2, "agent", "agent", "I keep `limit`, at most 100."),
            comment(3, "daemon", "symphony", "Attempt 1 timed out. Attempt 2 follows."),
            comment(4, "person", "operator", "See https://pages.example/cursors first."),
        ),
        comments_left_out=0,
        can_comment=True,
        failure=None,
    )


def ready_issue(running: models.Issue) -> models.Issue:
    """An issue whose work waits for review."""
    return structs.replace(
        running,
        issue_id=READY.issue_id,
        issue_identifier=READY.issue_identifier,
        title=READY.title,
        state=READY.state,
        status="ready",
        running=None,
        result=READY,
        runs=(past_run(1, "succeeded", started_h=1.2, commits=3),),
    )


def demo_transcript() -> models.Transcript:
    """A turn with an entry of each kind that people see most."""
    when = {seq: utc_text(NOW - timedelta(seconds=300 - 20 * seq)) for seq in range(1, 14)}
    return models.Transcript(
        issue_identifier="WEB-131",
        run_id="run-131-2",
        entries=(
            TurnEntry(
                seq=1,
                at=when[1],
                turn=2,
                status="started",
                prompt="Go on with WEB-131: Paginate the audit log.",
                envelope="Work in small commits.\n\n<skills>\napi-style: naming and paging\n</skills>",
            ),
            ReasoningEntry(
                seq=2,
                at=when[2],
                turn=2,
                text="Two events may share a timestamp.\nThe cursor needs the id as a second part.",
            ),
            PlanEntry(
                seq=3,
                at=when[3],
                turn=2,
                text="Make the cursor stable",
                steps=(
                    TranscriptPlanStep(text="Add the id to the cursor", status="completed"),
                    TranscriptPlanStep(text="Test two pages that share a timestamp", status="in_progress"),
                    TranscriptPlanStep(text="Describe the cursor in the API page", status="pending"),
                ),
            ),
            MessageEntry(
                seq=4,
                at=when[4],
                turn=2,
                text="The cursor only had the time of an event, so one was skipped when two share it. "
                "I put the id beside it.",
            ),
            EditEntry(
                seq=5,
                at=when[5],
                turn=2,
                status="completed",
                files=(
                    EditedFile(path="app/audit/cursor.py", change="update", added=18, removed=6),
                    EditedFile(path="tests/audit/test_cursor.py", change="add", added=31, removed=0),
                ),
            ),
            CommandEntry(
                seq=6,
                at=when[6],
                turn=2,
                command="pytest -q tests/audit",
                status="failed",
                exit_code=1,
                output="1 failed, 14 passed in 2.31s",
            ),
            ToolEntry(
                seq=7,
                at=when[7],
                turn=2,
                name="issue_comment",
                status="completed",
                arguments='{"body": "The cursor is stable now."}',
                result="ok",
            ),
            CommandEntry(
                seq=8,
                at=when[8],
                turn=2,
                command="pytest -q tests/audit",
                status="completed",
                exit_code=0,
                output="15 passed in 2.28s",
            ),
            MessageEntry(
                seq=9,
                at=when[9],
                turn=2,
                text="The cursor is stable now. I am writing a test with two pages that share a timestamp.",
            ),
        ),
        next_after=9,
        more=False,
        earlier=False,
        ended=False,
        complete=True,
        missing=(),
    )


TITLES = {
    118: "Export reports as CSV",
    119: "Speed up the nightly import",
    122: "Delete accounts after 30 days",
    131: "Paginate the audit log",
}


def run_row(number: int, outcome: str | None, *, hours: float, reason: str | None = None) -> models.RunRow:
    past = past_run(number, outcome, started_h=hours, reason=reason, commits=number % 3)
    fields = {name: getattr(past, name) for name in models.PastRun.__struct_fields__}
    return models.RunRow(
        **fields,
        issue_id=str(100 + number),
        issue_identifier=f"WEB-{100 + number}",
        issue_state="In Progress",
        issue_title=TITLES.get(100 + number),
        seconds=740.0 + number,
    )


def sums(key: str | None, runs: int) -> models.RunSums:
    return models.RunSums(
        key=key,
        runs=runs,
        turns=3 * runs,
        seconds=711.0 * runs,
        commits=2 * runs,
        tokens=Tokens(300_000 * runs, 21_000 * runs, 321_000 * runs),
        cost_usd=0.92 * runs,
        unpriced_tokens=0,
    )


def demo_runs(query: RunQuery) -> models.Runs:
    """A week of runs."""
    amounts = (9, 14, 3, 0, 11, 17, 8)
    days = tuple(sums(f"2026-03-{4 - at:02}", amount) for at, amount in enumerate(amounts[:4]))
    days += tuple(sums(f"2026-02-{28 - at:02}", amount) for at, amount in enumerate(amounts[4:]))
    return models.Runs(
        generated_at=utc_text(NOW),
        since=ago(days=7),
        by=query.by,
        runs=(
            *(() if query.outcomes else (run_row(31, None, hours=0.2),)),
            run_row(18, "succeeded", hours=0.9),
            run_row(22, "input_required", hours=1.5, reason="the agent needs a person"),
            run_row(19, "timed_out", hours=3, reason="turn_timeout: no sign of life for 300 s"),
        ),
        left_out=58,
        groups=days if query.by == "day" else (sums("codex", 51), sums("claude", 11)),
        total=sums(None, 62),
    )


@dataclass
class DemoOperator(FakeOperator):
    """Answers with fixed documents, which a test may replace."""

    document: models.State = field(default_factory=demo_state)
    one: models.Issue = field(default_factory=demo_issue)
    task_document: models.Task | None = None
    transcript_part: models.Transcript | None = field(default_factory=demo_transcript)
    reviews: dict[str, models.Review] = field(default_factory=lambda: {"WEB-118": demo_review()})
    patch_texts: dict[str, str] = field(default_factory=lambda: dict(PATCHES))
    transcript_file: Path | None = None
    transcript_parts: list[tuple[str, TranscriptQuery]] = field(default_factory=list)
    queries: list[RunQuery] = field(default_factory=list)
    given: list[models.Feedback] = field(default_factory=list)
    selections: list[Selection] = field(default_factory=list)

    @override
    async def state(self, only: Selection = ALL_ISSUES) -> models.State:
        self._try()
        self.selections.append(only)
        waiting = self.document.waiting
        shown = waiting if only.limit is None else waiting[: only.limit]
        return structs.replace(self.document, waiting=shown, waiting_left_out=len(waiting) - len(shown))

    @override
    async def issue(self, identifier: str) -> models.Issue | None:
        if identifier == READY.issue_identifier:
            return structs.replace(ready_issue(self.one), feedback=tuple(self.given))
        return self.one if identifier == self.one.issue_identifier else None

    @override
    async def task(self, identifier: str) -> models.Task | None:
        self._try()
        issue = await self.issue(identifier)
        return self.task_document or (None if issue is None else demo_task(issue))

    @override
    async def feedback(
        self, identifier: str, given: models.Stars, *, may_teach: bool
    ) -> models.Feedback | None:
        stored = await super().feedback(identifier, given, may_teach=may_teach)
        self.given += [] if stored is None else [stored]
        return stored

    @override
    async def transcript(
        self, identifier: str, part: TranscriptQuery = NEWEST_ENTRIES
    ) -> models.Transcript | None:
        self.transcript_parts.append((identifier, part))
        if self.transcript_file is None or self.transcript_part is None:
            return self.transcript_part
        read = partial(read_transcript, after=part.after, before=part.before, limit=part.limit)
        page = await to_thread.run_sync(partial(read, self.transcript_file, text=part.text))
        return structs.replace(
            self.transcript_part,
            entries=page.entries,
            next_after=page.next_after,
            more=page.more,
            earlier=page.earlier,
            missing=page.missing,
        )

    @override
    async def runs(self, query: RunQuery) -> models.Runs:
        self._try()
        self.queries.append(query)
        return demo_runs(query)

    @override
    async def prompt(self, identifier: str, phase: str | None = None) -> models.Prompt | None:
        if identifier != self.one.issue_identifier:
            return None
        return models.Prompt(
            issue_identifier=identifier,
            source="daemon",
            attempt=None,
            envelope="Work in small commits.",
            prompt="Paginate the audit log.",
            skills=models.Skills(),
            note=None,
            agent=CODEX,
        )


def fill_library(file: Path) -> None:
    """A library with versions, assignments and proposals, as on the day of `demo_state`."""
    times = iter(range(90, 0, -10))
    store = Library(file, now_ms=lambda: int((NOW - timedelta(hours=next(times))).timestamp() * 1_000))
    retries = SkillText(
        name="retries",
        description="Call services that fail at times.",
        when_to_use="A request to another service is added or changed.",
        content=(
            "# Retries\n\nEvery call has a time limit and at most three attempts.\n\n"
            "1. Set the limit in `settings.py`.\n2. Wait between attempts: 1 s, 2 s, 4 s.\n\n"
            "```python\nclient.get(url, timeout=5)\n```\n"
        ),
    )
    store.add(retries, Authorship(author="operator", reason="from the incident of May"))
    store.edit(
        replace(retries, content=retries.content + "\nLog the last failure, not each one.\n"),
        Authorship(author="operator", reason="the log was full"),
        base_version=1,
    )
    style = replace(
        retries, name="api-style", description="How endpoints are named.", when_to_use="", content="#\n"
    )
    store.add(style, Authorship(author="operator"), origin=Origin.IMPORTED)
    store.assign(TargetKind.AGENT, "codex", ["retries"])
    evidence = Evidence(run_id="run-131-2", issue_identifier="WEB-131", transcript_seq=7)
    better = replace(
        store.skill("retries").text, content=retries.content + "\nAdd jitter: `random() * wait`.\n"
    )
    store.propose(better, evidence, base_version=2)
    learned = replace(
        retries,
        name="cursor-paging",
        description="Page through lists without losing rows.",
        content="# Paging\n\nRead https://pages.example/cursors first.\n",
    )
    store.propose(learned, evidence, base_version=0)
    failed = Trial(
        passed=False, seconds=212.4, turns=3, tokens=181_200, problem="the check ended with status 2"
    )
    passed = Trial(passed=True, seconds=95.0, turns=1, tokens=64_310, problem=None)
    comparisons = tuple(
        Comparison(
            issue_identifier=identifier,
            base_commit="9f1c0d2e" * 5,
            agent="codex",
            without=without,
            changed=passed,
        )
        for identifier, without in (("WEB-118", failed), ("WEB-97", replace(passed, tokens=61_870)))
    )
    evaluation = Evaluation(
        check="make test", base_version=0, comparisons=comparisons, at_ms=int(NOW.timestamp() * 1_000)
    )
    store.record_evaluation(2, evaluation)


@contextmanager
def serve_app(app: ASGIApp) -> Iterator[str]:
    """The address of the application on a free port, served from a thread with an event loop of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, args=([listener],)
    )  # clients wait in the queue of the socket
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
