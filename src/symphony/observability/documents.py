"""What the API answers: the state of the daemon and of one issue as JSON values (AP4, AP6, AP9).

Pure. Every surface that tells what is going on (API, `symphony status`, `symphony explain`) shows these two
documents, so they agree. Times are UTC, to the second. Within v1 fields are added, never removed or retyped.
The texts are what trackers and agents wrote: whoever lets a document out masks it first (`masking.masked`).
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from symphony.domain.failures import Failure
from symphony.domain.issue import Issue
from symphony.journal.model import Health, HealthState
from symphony.observability.agents import agent_document, agent_of, agents_document
from symphony.observability.conditions import conditions, question, resumed_from, spent
from symphony.observability.history import History, IssueHistory, RunSkills
from symphony.observability.moments import utc_text
from symphony.observability.waiting import Reason, waiting
from symphony.scheduler.inputs import RunReport
from symphony.scheduler.state import Blocked, Cycle, Drain, Retry, Running, State

__all__ = ["issue_document", "skills_document", "state_document"]

Document = dict[str, Any]


def state_document(
    state: State, history: History, *, now_ms: int, now: datetime, journal: Health | None = None
) -> Document:
    """The whole daemon: health, counts, one row per known issue by status, totals, limits, conditions.

    `journal` says whether what happens is remembered; null where nothing is known of one.
    """
    view = _View(state, history, now_ms, now, journal)
    waits = [view.waiting(issue, reason) for issue, reason in waiting(state)]
    return {
        "generated_at": utc_text(now),
        "health": _health(state, history, journal),
        "counts": {
            "running": len(state.running),
            "retrying": len(state.retrying),
            "blocked": len(state.blocked),
            "waiting": len(waits),
        },
        "slots": {"used": len(state.running), "limit": state.settings.max_concurrent_agents},
        "running": [view.running(run) for run in state.running.values()],
        "retrying": [view.retrying(retry) for retry in state.retrying.values()],
        "blocked": [view.blocked(blocked) for blocked in state.blocked.values()],
        "waiting": waits,
        "codex_totals": _totals(state, now_ms),
        "skills_totals": asdict(history.skill_totals),
        "rate_limits": None if state.rate_limits is None else dict(state.rate_limits),
        "agents": view.agents(),
        "polling": _polling(state, now_ms),
        "drain": state.drain.value,
        **view.conditions(),
    }


def issue_document(
    state: State,
    history: History,
    identifier: str,
    *,
    now_ms: int,
    now: datetime,
    journal: Health | None = None,
) -> Document | None:
    """One issue by its identifier, compared exactly; null when the daemon does not know it now."""
    view = _View(state, history, now_ms, now, journal)
    for run in state.running.values():
        if run.issue.identifier == identifier:
            return view.issue(run.issue, "running", run=run)
    for retry in state.retrying.values():
        if retry.issue.identifier == identifier:
            return view.issue(retry.issue, "retrying", retry=retry)
    for blocked in state.blocked.values():
        if blocked.issue.identifier == identifier:
            return view.issue(blocked.issue, "blocked", blocked=blocked)
    for issue, reason in waiting(state, identifier=identifier):
        parked = state.parked.get(issue.id)
        return view.issue(issue, "waiting", reason=reason, path=parked.path if parked else None)
    return None


# --- the daemon ------------------------------------------------------------------------------------------


def _health(state: State, history: History, journal: Health | None) -> Document:
    """Whether the daemon is well; `status` is `starting`, `ok`, `degraded` or `draining`."""
    if state.drain is not Drain.NO:
        status = "draining"
    elif state.hold is not None or state.last_poll_failure is not None or _forgets(journal):
        status = "degraded"
    else:
        status = "ok" if state.polls else "starting"
    return {
        "status": status,
        "polls": state.polls,
        "last_poll_at": _text(history.last_poll_at),
        "poll_failure": _failure(state.last_poll_failure),
        "workflow_failure": _failure(state.hold),
        "skipped_records": [
            {"where": each.where, "message": each.message, "hint": each.hint} for each in state.skipped
        ],
    }


def _forgets(journal: Health | None) -> bool:
    """Whether a restart would know nothing of what happens now."""
    return journal is not None and journal.state is not HealthState.OK


def _polling(state: State, now_ms: int) -> Document:
    due = state.next_poll_ms
    return {
        "checking": state.cycle is not Cycle.IDLE,
        "next_poll_in_ms": None if due is None else max(due - now_ms, 0),
        "poll_interval_ms": state.settings.poll_interval_ms,
    }


def _totals(state: State, now_ms: int) -> Document:
    """Tokens and agent time of all runs since the start, the live ones included (TK6)."""
    totals, reports = state.totals, [run.report for run in state.running.values()]
    spent_ms = totals.running_ms + sum(
        now_ms - run.agent_ms for run in state.running.values() if run.agent_ms is not None
    )
    return {
        "input_tokens": totals.input_tokens + sum(report.input_tokens for report in reports),
        "output_tokens": totals.output_tokens + sum(report.output_tokens for report in reports),
        "total_tokens": totals.total_tokens + sum(report.total_tokens for report in reports),
        "seconds_running": round(spent_ms / 1000, 1),
    }


# --- its issues ------------------------------------------------------------------------------------------

_NO_HISTORY = IssueHistory()


@dataclass(frozen=True, slots=True)
class _View:
    """One moment's look: turns the moments of the state into times of day."""

    state: State
    history: History
    now_ms: int
    now: datetime
    journal: Health | None

    def conditions(self) -> Document:
        return conditions(self.state, self.history, journal=self.journal, now_ms=self.now_ms, now=self.now)

    def agents(self) -> list[Document]:
        """Those that issues may be given to."""
        return agents_document(self.state, self._moment)

    def _moment(self, moment_ms: int) -> str:
        return utc_text(self.history.wall(moment_ms, now_ms=self.now_ms, now=self.now))

    def running(self, run: Running) -> Document:
        skills = self._of(run.issue).skills
        return {
            **_identity(run.issue),
            **self._run(run),
            "agent": agent_document(run.agent),
            "worker_host": None,
            "workspace_path": run.report.workspace_path,
            "skills": None if skills is None else _names(skills),
        }

    def retrying(self, retry: Retry) -> Document:
        return {
            **_identity(retry.issue),
            **self._retry(retry),
            "agent": agent_of(self.state, retry.issue, retry.resume),
            "last_error": self._of(retry.issue).last_error,
            "worker_host": None,
            "workspace_path": retry.workspace_path,
        }

    def blocked(self, blocked: Blocked) -> Document:
        return {
            **_identity(blocked.issue),
            **self._block(blocked),
            "agent": agent_of(self.state, blocked.issue, blocked.resume),
            "spent": spent(self.state, blocked.issue.id),
            "worker_host": None,
            "workspace_path": blocked.workspace_path,
        }

    def waiting(self, issue: Issue, reason: Reason) -> Document:
        return {
            **_identity(issue),
            "reason": {"code": reason.code, "message": reason.message},
            "agent": agent_of(self.state, issue),
        }

    def issue(
        self,
        issue: Issue,
        status: str,
        *,
        run: Running | None = None,
        retry: Retry | None = None,
        blocked: Blocked | None = None,
        reason: Reason | None = None,
        path: str | None = None,
    ) -> Document:
        memory = self._of(issue)
        for claim in (retry, blocked):
            path = claim.workspace_path if claim else path
        attempt, claim = _attempt(run, retry), retry or blocked
        resume = claim.resume if claim else None
        report = run.report if run else blocked.report if blocked else None
        return {
            "generated_at": utc_text(self.now),
            **_identity(issue),
            "status": status,
            "agent": agent_document(run.agent) if run else agent_of(self.state, issue, resume),
            "workspace": {
                "path": run.report.workspace_path if run else path,
                "host": None,
                "branch": report.branch if report else None,
            },
            "attempts": {
                "restart_count": max(attempt - 1, 0),
                "current_retry_attempt": attempt,
                "runs_started": memory.runs,
            },
            "running": self._run(run) if run else None,
            "retry": self._retry(retry) if retry else None,
            "blocked": self._block(blocked) if blocked else None,
            "waiting": {"reason": {"code": reason.code, "message": reason.message}} if reason else None,
            "logs": {"codex_session_logs": _session_logs(run)},
            "recent_events": [
                {"at": utc_text(one.at), "event": one.event, "message": one.message}
                for one in memory.recent()
            ],
            "last_error": blocked.failure.line if blocked else memory.last_error,
            "skills": None if memory.skills is None else skills_document(memory.skills),
            "spent": spent(self.state, issue.id),
            "tracked": {},
            **self.conditions(),
        }

    def _of(self, issue: Issue) -> IssueHistory:
        return self.history.of(issue.id) or _NO_HISTORY

    def _run(self, run: Running) -> Document:
        report, memory = run.report, self._of(run.issue)
        return {
            "run_id": run.run_id,
            "state": run.issue.state,
            "stage": report.stage.value,
            "attempt": run.attempt,
            "turn": run.turn,
            "stopping": None if run.stopping is None else run.stopping.value,
            "session_id": report.session_id,
            "turn_count": report.turn_count,
            "last_event": report.last_event,
            "last_message": report.last_message,
            "started_at": self._at(memory.started_at, run.started_ms),
            "last_event_at": self._at(memory.last_event_at, run.last_sign_ms),
            "tokens": _tokens(report),
            "resumed_from": resumed_from(run.resume),
        }

    def _retry(self, retry: Retry) -> Document:
        return {
            "attempt": retry.attempt,
            "due_at": self._moment(retry.due_ms),
            "error": retry.error,
        }

    def _block(self, blocked: Blocked) -> Document:
        report, memory = blocked.report, self._of(blocked.issue)
        return {
            "state": blocked.issue.state,
            "error": blocked.failure.message,
            "failure": _failure(blocked.failure),
            "session_id": report.session_id if report else None,
            "blocked_at": self._at(memory.blocked_at, blocked.blocked_ms),
            "last_event": report.last_event if report else None,
            "last_message": report.last_message if report else None,
            "last_event_at": _text(memory.last_event_at),
            "question": question(blocked),
            "resumable": blocked.resume is not None and blocked.resume.thread is not None,
        }

    def _at(self, noted: datetime | None, moment_ms: int | None) -> str | None:
        """The time noted when it happened, which no jump of the clock moves; else as it looks from now."""
        if noted is None and moment_ms is not None:
            noted = self.history.wall(moment_ms, now_ms=self.now_ms, now=self.now)
        return _text(noted)


def _identity(issue: Issue) -> Document:
    return {
        "issue_id": issue.id,
        "issue_identifier": issue.identifier,
        "issue_url": issue.url,
        "title": issue.title,
        "state": issue.state,
    }


def _attempt(run: Running | None, retry: Retry | None) -> int:
    """The number of the attempt that runs or comes next; 0 is the first."""
    if retry is not None:
        return retry.attempt
    return 0 if run is None else run.attempt or 0


def _tokens(report: RunReport) -> Document:
    return {
        "input_tokens": report.input_tokens,
        "output_tokens": report.output_tokens,
        "total_tokens": report.total_tokens,
    }


def _session_logs(run: Running | None) -> list[Document]:
    """What the agent wrote to stderr, as a path below the daemon's state directory."""
    if run is None or run.agent_ms is None:
        return []
    return [{"label": "stderr", "path": f"logs/{run.run_id}.stderr.log", "url": None}]


def _names(skills: RunSkills) -> Document:
    return {
        "listed": [skill.name for skill in skills.listed],
        "dropped": [skill.name for skill in skills.dropped if skill.reason != "search"],
        "malformed": _unique(one.path for one in skills.problems if one.severity == "error"),
    }


def skills_document(skills: RunSkills) -> Document:
    """The skills of a session: commit, listed, dropped and problems, with paths and digests (DESIGN 11a)."""
    return {
        "commit": skills.commit,
        "listed": [asdict(skill) for skill in skills.listed],
        "dropped": [asdict(skill) for skill in skills.dropped],
        "problems": [asdict(problem) for problem in skills.problems],
    }


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _failure(failure: Failure | None) -> Document | None:
    if failure is None:
        return None
    return {
        "code": failure.category.value,
        "message": failure.message,
        "hint": failure.hint,
        "where": failure.where,
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)
