"""The poll cycle and the by-id refresh: what to ask the tracker, and what its answers mean (SC2-SC15).

At most one by-id request is under way. Ids that somebody wants meanwhile go together in the next one, so a
tick and a burst cost one request each, never one per issue. A candidate is started only after such a
refresh (SC9), which keeps a stale poll from starting an issue that has changed. An answer decides nothing
for an id that is wanted again by then: it was asked before the question, and may be older than its cause.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from zlib import crc32

from symphony.domain import Failure, Issue, normalise_state
from symphony.scheduler import blocks, policy, results, runs
from symphony.scheduler.messages import (
    AnswersRead,
    AnswersReadFailed,
    CleanWorkspace,
    FetchCandidates,
    FinishReason,
    IssueComment,
    Polled,
    PollFailed,
    ReadAnswers,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    Timer,
    TimerKind,
)
from symphony.scheduler.policy import Eligible, ReasonCode, TrackerStatus
from symphony.scheduler.state import (
    AnswerCheck,
    Blocked,
    CircuitBreaker,
    Cycle,
    Drain,
    RefreshInFlight,
    State,
    Step,
)

# Tracker weather: how long the next question waits when questions go wrong in a row.
#
# One failure is no weather. From the second on nothing is asked for 2 s, doubling up to 25 s, each wait
# shifted by up to a fifth so that daemons of one tracker do not come back together. Failures within 2 s of
# each other count as one: both questions of a tick, or a burst. A wait that the tracker asked for comes on
# top. Then the next answer decides: a good one closes the circuit, a bad one doubles the wait. A wake does
# not bypass it; an operator who asks for a refresh bypasses our own wait, and not the tracker's. What runs
# goes on.


MAX_THROTTLE_MS = 3_600_000
LONGEST_WAIT_MS = 30_000
_FIRST_WAIT_MS = 2_000
_BURST_MS = 2_000
_LONGEST_EXACT_MS = LONGEST_WAIT_MS * 5 // 6
_MAX_EXPONENT = 10
_HARMLESS = 1
_QUIET = Timer(TimerKind.TRACKER_PAUSE)


class CircuitState(StrEnum):
    """Whether the tracker is asked: as always, not now, or once to see whether it is back."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def requests_paused_until(state: State, now_ms: int) -> int | None:
    """When the tracker may be asked again, or null for now."""
    until_ms = max(state.throttled_until_ms or 0, state.breaker.until_ms or 0)
    return until_ms if until_ms > now_ms else None


def circuit_state(state: State, now_ms: int) -> CircuitState:
    """The state of the circuit, for people."""
    if requests_paused_until(state, now_ms) is not None:
        return CircuitState.OPEN
    return CircuitState.HALF_OPEN if state.breaker.failures > _HARMLESS else CircuitState.CLOSED


def breaker_wait_ms(failures: int, seed: str) -> int:
    """How long the next question waits after so many failures in a row; the same seed gives the same wait."""
    if failures <= _HARMLESS:
        return 0
    exponent = min(failures - _HARMLESS - 1, _MAX_EXPONENT)
    permille = 800 + crc32(seed.encode()) % 401
    return int(min(_FIRST_WAIT_MS * 2**exponent, _LONGEST_EXACT_MS)) * permille // 1000


def on_failure(work: Step, failure: Failure) -> None:
    """A question went wrong as a whole.

    What the tracker asked for is heeded up to an hour: our own limit keeps a wild answer from ending the
    work for days.
    """
    before, state = work.state.breaker, work.state
    counts = before.counted_ms is None or work.now_ms - before.counted_ms >= _BURST_MS
    failures = before.failures + int(counts)
    asked_ms = min(failure.retry_after_ms or 0, MAX_THROTTLE_MS)
    delay_ms = asked_ms + (breaker_wait_ms(failures, f"{state.epoch}-{state.serial}") if counts else 0)
    if failure.retry_after_ms is not None:
        work.update(throttled_until_ms=max(work.now_ms + asked_ms, state.throttled_until_ms or 0))
    work.update(
        breaker=CircuitBreaker(
            failures=failures,
            since_ms=work.now_ms if before.since_ms is None else before.since_ms,
            counted_ms=work.now_ms if counts else before.counted_ms,
            until_ms=max(work.now_ms + delay_ms, before.until_ms or 0) if delay_ms else before.until_ms,
            failure=failure,
        )
    )
    if counts and failures == _HARMLESS + 1:
        work.notify("warning", "circuit_opened", reason=failure.line, delay_ms=delay_ms)


def lift(work: Step) -> None:
    """End our own wait; one that the tracker asked for stays."""
    work.update(breaker=replace(work.state.breaker, until_ms=None))
    if requests_paused_until(work.state, work.now_ms) is None:
        work.clear_timer(_QUIET)


def on_success(work: Step) -> None:
    """A question was answered: the next one need not wait, but for a time that the tracker named."""
    before = work.state.breaker
    if before.failures == 0:
        return
    work.update(breaker=CircuitBreaker())
    if requests_paused_until(work.state, work.now_ms) is None:
        work.clear_timer(_QUIET)
    if before.failures > _HARMLESS:
        work.notify("info", "circuit_closed", failures=before.failures)


# Comments on an issue that waits for an answer: what a person writes there is the answer.
#
# While an agent's question is open, the comments of its issue are read with every poll and every wake,
# never more than once at a time. The runtime tells what was written since the question and whose words
# count. All that such people wrote goes to the agent together, by the path of the verb `answer`. What
# others wrote is shown and not obeyed. A reading that fails speaks against nothing but itself: it is tried
# again with the next poll, and only a pause that the tracker asked for is heeded.


MAX_ANSWER_CHARS = 32_000
"""Characters of all comments together that an agent is given as the answer."""


def read(work: Step) -> None:
    """Have the comments of every issue read that waits for an answer."""
    for blocked in tuple(work.state.blocked.values()):
        if not _waits(blocked):
            continue
        if blocked.answer_check.in_progress:
            work.set_blocked(
                replace(blocked, answer_check=replace(blocked.answer_check, requested_again=True))
            )
        else:
            _ask(work, blocked)


def _ask(work: Step, blocked: Blocked) -> None:
    reading = replace(blocked.answer_check, in_progress=True, requested_again=False)
    work.set_blocked(replace(blocked, answer_check=reading))
    work.emit(ReadAnswers(question=blocked.run_id or "", comment=blocks.block_comment(blocked)))


def _waits(blocked: Blocked) -> bool:
    """Whether an answer would be taken: one that was given already, and waits for a move back, is enough."""
    return blocks.awaits_answer(blocked.failure, blocked.question) and blocked.unblock_reason is None


def on_read(work: Step, fact: AnswersRead) -> None:
    """Take an answer, or note what was said by others; what belongs to an earlier question means nothing."""
    blocked = _asked(work, fact)
    if blocked is None:
        return
    known = {remark.id for remark in blocked.answer_check.unauthorized}
    for remark in fact.unauthorized:
        if remark.id not in known:
            work.notify("warning", "comment_not_obeyed", blocked.issue, author=remark.author)
    before, blocked = (
        blocked.answer_check,
        replace(blocked, answer_check=AnswerCheck(unauthorized=fact.unauthorized)),
    )
    work.set_blocked(blocked)
    if fact.answers and _waits(blocked):
        authors = ", ".join(dict.fromkeys(remark.author for remark in fact.answers))
        work.notify("info", "answer_taken", blocked.issue, author=authors, comments=len(fact.answers))
        resume = blocks.answered(blocked, join_comments(fact.answers))
        blocks.go_on(work, blocked, resume, reason="a person answered by a comment")
    elif before.requested_again:
        _once_more(work, blocked)


def on_unread(work: Step, fact: AnswersReadFailed) -> None:
    """Say once why the comments cannot be read; heed a pause that the tracker asked for."""
    blocked = _asked(work, fact)
    if blocked is None:
        return
    before, failure = blocked.answer_check, fact.failure
    told = before.failure is not None and before.failure.message == failure.message
    work.notify(
        "debug" if told else "warning",
        "answers_unread",
        blocked.issue,
        reason=failure.line,
        hint=failure.hint,
    )
    work.set_blocked(
        replace(blocked, answer_check=AnswerCheck(unauthorized=before.unauthorized, failure=failure))
    )
    if failure.retry_after_ms is not None:
        on_failure(work, failure)


def _asked(work: Step, fact: AnswersRead | AnswersReadFailed) -> Blocked | None:
    """The block whose comments were read, if it still stands and somebody waits for this."""
    blocked = work.state.blocked.get(fact.issue_id)
    if blocked is None or not blocked.answer_check.in_progress or fact.question != (blocked.run_id or ""):
        return None
    return blocked


def _once_more(work: Step, blocked: Blocked) -> None:
    """Somebody woke us while the comments were read: the answer may not have been there yet."""
    if work.state.drain is Drain.NO and requests_paused_until(work.state, work.now_ms) is None:
        _ask(work, blocked)


def join_comments(remarks: Sequence[IssueComment]) -> str:
    """What one or several comments say, in their order, each of several with its author; bounded."""
    if len(remarks) == 1:
        text = remarks[0].text
    else:
        text = "\n\n".join(f"{remark.author} writes:\n{remark.text}" for remark in remarks)
    if len(text) <= MAX_ANSWER_CHARS:
        return text
    return f"{text[:MAX_ANSWER_CHARS]}\n(cut: the rest stands on the issue)"


IDLE_WORKSPACE_CHECK_MS = 600_000
WAKE_GAP_MS = 100
MOST_SKIPPED = 50
_POLL = Timer(TimerKind.POLL)


def begin(work: Step) -> None:
    """Start a cycle: reconcile first, then poll (SC3)."""
    if work.state.drain is not Drain.NO or work.state.cycle is not Cycle.IDLE:
        return
    quiet_until_ms = requests_paused_until(work.state, work.now_ms)
    if quiet_until_ms is not None:
        work.update(poll_again=False, poll_soon=True)
        _poll_at(work, quiet_until_ms)
        return
    runs.forgive_sleep(work, work.late_ms(_POLL))
    work.clear_timer(_POLL)
    work.update(
        cycle=Cycle.RECONCILING, cycle_request=None, poll_again=False, poll_soon=False, next_poll_ms=None
    )
    for run in tuple(work.state.running.values()):
        runs.judge_silence(work, run)
    read(work)
    ids = _to_reconcile(work)
    if ids:
        work.update(ids_to_refresh=work.state.ids_to_refresh | ids)
    else:
        _fetch(work)


def _to_reconcile(work: Step) -> frozenset[str]:
    state = work.state
    ids = {key for key, run in state.running.items() if not run.stopping} | set(state.blocked)
    if (
        state.idle_workspaces_checked_ms is None
        or work.now_ms - state.idle_workspaces_checked_ms >= IDLE_WORKSPACE_CHECK_MS
    ):
        ids |= set(state.idle_workspaces) | results.watched(state)
        work.update(idle_workspaces_checked_ms=work.now_ms)
    return frozenset(ids)


def _fetch(work: Step) -> None:
    state = work.state
    paused = requests_paused_until(work.state, work.now_ms) is not None
    if state.config_error is not None or state.drain is not Drain.NO or paused:
        work.update(poll_again=state.poll_again or paused)  # made up for as soon as the pause is over
        _end(work)
        return
    request = work.number()
    work.update(cycle=Cycle.POLLING, cycle_request=request)
    work.emit(FetchCandidates(request=request))


def _end(work: Step) -> None:
    delay_ms = WAKE_GAP_MS if work.state.poll_again else work.state.settings.poll_interval_ms
    if work.state.breaker.failures:  # whether it is back is asked soon, however long the interval
        delay_ms = min(delay_ms, LONGEST_WAIT_MS)
    work.update(
        cycle=Cycle.IDLE,
        cycle_request=None,
        poll_again=False,
        poll_soon=work.state.poll_again,
        polls=work.state.polls + 1,
    )
    _poll_at(work, max(work.now_ms + delay_ms, requests_paused_until(work.state, work.now_ms) or 0))


def _poll_at(work: Step, due_ms: int) -> None:
    work.update(next_poll_ms=due_ms)
    work.set_timer(_POLL, due_ms)


def _bring_forward(work: Step) -> None:
    """Poll no later than in an interval, once nothing stands in the way of it any more."""
    state = work.state
    due_ms = max(
        work.now_ms + state.settings.poll_interval_ms, requests_paused_until(state, work.now_ms) or 0
    )
    if state.next_poll_ms is not None and due_ms < state.next_poll_ms:
        _poll_at(work, due_ms)


def wake(work: Step, *, by_operator: bool = False) -> None:
    """Poll as soon as possible; a wake during a cycle brings one more after it, after a pause (SC15)."""
    if work.state.drain is Drain.NO:
        work.update(ids_to_refresh=work.state.ids_to_refresh | results.seen_at_a_wake(work.state))
    if by_operator:
        lift(work)
        work.update(
            poll_soon=work.state.poll_soon and requests_paused_until(work.state, work.now_ms) is not None
        )
    if work.state.cycle is not Cycle.IDLE:
        work.update(poll_again=True)
    elif not work.state.poll_soon:
        begin(work)


def would_coalesce(state: State) -> bool:
    """Whether a wake would bring no poll of its own, as one is under way or due in a moment (SC15).

    A poll that waits because the tracker asked for a pause counts as due: a wake cannot make it come sooner.
    """
    return state.cycle is not Cycle.IDLE or state.poll_soon


def on_polled(work: Step, answer: Polled) -> None:
    """Take over the candidates and fill free slots (SC3 steps 4-8)."""
    if work.state.cycle_request != answer.request:
        return
    on_success(work)
    newest = {issue.id: issue for issue in answer.issues}
    candidates = {issue.id: issue for issue in sorted(newest.values(), key=policy.dispatch_order)}
    work.update(
        candidates=candidates,
        skipped_until_poll=frozenset(),
        last_poll_failure=None,
        skipped_records=answer.skipped_records[:MOST_SKIPPED],
    )
    work.update(ids_to_refresh=work.state.ids_to_refresh | results.changed(work.state))
    _end(work)


def on_poll_failed(work: Step, answer: PollFailed) -> None:
    """Skip dispatch this tick, keep everything that runs (SC14)."""
    if work.state.cycle_request != answer.request:
        return
    work.update(last_poll_failure=answer.failure)
    on_failure(work, answer.failure)
    work.notify("warning", "poll_failed", reason=answer.failure.line, hint=answer.failure.hint)
    _end(work)


# --- starting --------------------------------------------------------------------------------------------


def fill_slots(work: Step) -> None:
    """Pick the first eligible candidates for the slots that are free, and have them refreshed (SC6-SC9)."""
    state = work.state
    if state.config_error is not None or state.drain is not Drain.NO or state.paused:
        return
    free = state.settings.max_concurrent_agents - len(state.running) - len(state.pending_candidates)
    if free <= 0:
        return
    picked = Counter(
        normalise_state(state.candidates[key].state)
        for key in state.pending_candidates
        if key in state.candidates
    )
    passed, chosen, full = state.pending_candidates | state.skipped_until_poll, set[str](), set[str]()
    for issue in state.candidates.values():
        if len(chosen) == free:
            break
        if issue.id in passed or issue.state in full:
            continue
        verdict = policy.eligibility(issue, state, picked=picked)
        if isinstance(verdict, Eligible):
            chosen.add(issue.id)
            picked[normalise_state(issue.state)] += 1
        elif verdict.code is ReasonCode.NO_STATE_SLOT:
            full.add(issue.state)
    if chosen:
        work.update(
            pending_candidates=state.pending_candidates | chosen, ids_to_refresh=state.ids_to_refresh | chosen
        )


def _start_in_order(work: Step, issues: Iterable[Issue]) -> None:
    """Give the slots there are to picks and due retries alike, by the one order of dispatch (SC6, RT6)."""
    for issue in sorted(issues, key=policy.dispatch_order):
        if retry := work.state.retrying.get(issue.id):
            runs.on_refreshed(work, retry, issue)
        else:
            _start_pick(work, issue)


def _start_pick(work: Step, issue: Issue) -> None:
    """Start a new issue; one that used up its budget under an earlier claim is blocked instead."""
    verdict = policy.eligibility(issue, work.state)
    if not isinstance(verdict, Eligible):
        work.notify("debug", "dispatch_skipped", issue, code=verdict.code.value, reason=verdict.message)
    elif failure := policy.issue_used(work.state, issue):
        blocks.block(work, issue, failure, has_baseline=True)
    else:
        runs.start(work, issue)


# --- refreshing ------------------------------------------------------------------------------------------


def send_wanted(work: Step) -> None:
    """Send the one by-id request that is due, if none is under way."""
    state = work.state
    if state.refresh is not None or not state.ids_to_refresh or state.drain is Drain.EXITED:
        return
    if (quiet_until_ms := requests_paused_until(work.state, work.now_ms)) is not None:
        if state.timer_due_ms(_QUIET) != quiet_until_ms:
            work.set_timer(_QUIET, quiet_until_ms)
        return
    if _QUIET in state.timers:
        return  # it fires in a moment: facts that mean nothing must not end a pause
    request = work.number()
    asked = RefreshInFlight(request=request, ids=state.ids_to_refresh)
    work.update(refresh=asked, ids_to_refresh=frozenset())
    if state.cycle is Cycle.RECONCILING and state.cycle_request is None:
        work.update(cycle_request=request)
    work.emit(RefreshIssues(request=request, ids=asked.ids))


def on_refreshed(work: Step, answer: Refreshed) -> None:
    """Apply fresh snapshots to runs, due retries, blocks, parked workspaces and picks."""
    under_way = _take_refresh(work, answer.request)
    if under_way is None:
        return
    on_success(work)
    _bring_forward(work)
    found = {issue.id: issue for issue in answer.issues}
    fresh = under_way.ids - work.state.ids_to_refresh
    due = {key for key, retry in work.state.retrying.items() if retry.refreshing}
    starting = (work.state.pending_candidates | due) & fresh & found.keys()
    work.update(pending_candidates=work.state.pending_candidates - fresh)
    _absorb(work, fresh, found)
    _clean_parked(
        work, [found[key] for key in sorted(fresh & work.state.idle_workspaces.keys() & found.keys())]
    )
    for issue_id in sorted(fresh - starting):
        _apply(work, issue_id, found.get(issue_id))
    _start_in_order(work, (found[key] for key in starting))
    for issue_id in sorted(fresh & work.state.results.keys()):
        results.settle(work, issue_id, found.get(issue_id))
    _go_on_with_cycle(work, answer.request)


def _take_refresh(work: Step, request: int) -> RefreshInFlight | None:
    under_way = work.state.refresh
    if under_way is None or under_way.request != request:
        return None
    work.update(refresh=None)
    return under_way


def _go_on_with_cycle(work: Step, request: int) -> None:
    if work.state.cycle is Cycle.RECONCILING and work.state.cycle_request == request:
        _fetch(work)


def _apply(work: Step, issue_id: str, issue: Issue | None) -> None:
    if run := work.state.running.get(issue_id):
        runs.on_running_refreshed(work, run, issue)
    elif (retry := work.state.retrying.get(issue_id)) and retry.refreshing:
        runs.on_refreshed(work, retry, issue)
    elif blocked := work.state.blocked.get(issue_id):
        blocks.on_blocked_refreshed(work, blocked, issue)


def _clean_parked(work: Step, issues: Iterable[Issue]) -> None:
    """Clean the workspaces of ended issues nobody works on, once: a kept one waits for a restart (SC2)."""
    parked = dict(work.state.idle_workspaces)
    for issue in issues:
        if policy.tracker_status(issue, work.state.settings) is TrackerStatus.TERMINAL:
            ref = parked.pop(issue.id)
            policy.forget(work, issue.id)
            work.emit(CleanWorkspace(issue_id=issue.id, identifier=ref.identifier, path=ref.path))
    work.update(idle_workspaces=parked)


def _absorb(work: Step, fresh: frozenset[str], found: Mapping[str, Issue]) -> None:
    """Let the candidates say what the answer says; their order is that of the poll."""
    candidates = dict(work.state.candidates)
    for issue_id in fresh & candidates.keys():
        if issue_id in found:
            candidates[issue_id] = found[issue_id]
        else:
            del candidates[issue_id]
    work.update(candidates=candidates)


def on_refresh_failed(work: Step, answer: RefreshFailed) -> None:
    """Keep what runs; a turn boundary fails its run, a due retry waits longer, a pick waits for a poll.

    Where the adapter names the culprits, the others are asked for again without them.
    """
    under_way = _take_refresh(work, answer.request)
    if under_way is None:
        return
    asked, named = under_way.ids, under_way.ids & answer.culprits
    if not named or answer.failure.retry_after_ms is not None:
        on_failure(work, answer.failure)
    work.notify("warning", "refresh_failed", reason=answer.failure.line, hint=answer.failure.hint)
    hit = (named or asked) - work.state.ids_to_refresh
    picks, deferred = work.state.pending_candidates, work.state.skipped_until_poll
    work.update(
        pending_candidates=picks - hit,
        skipped_until_poll=deferred | picks & hit,
        ids_to_refresh=work.state.ids_to_refresh | (asked - hit),
    )
    for issue_id in sorted(hit):
        _apply_failure(work, issue_id, answer.failure)
    _go_on_with_cycle(work, answer.request)


def _apply_failure(work: Step, issue_id: str, failure: Failure) -> None:
    if (run := work.state.running.get(issue_id)) and run.awaiting_refresh:
        reason = replace(failure, message=f"issue state refresh error: {failure.message}")
        runs.finish(work, run, FinishReason.REFRESH_FAILED, reason)
    elif (retry := work.state.retrying.get(issue_id)) and retry.refreshing:
        runs.requeue(work, retry, f"retry refresh failed: {failure.message}", failure=failure)
