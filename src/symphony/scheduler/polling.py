"""The poll cycle, the refresh of issues by id, and the dispatch of candidates (specification section 8).

A cycle refreshes what is claimed (reconciliation), then polls for candidates. At most one refresh is in
progress; ids that are needed meanwhile go together in the next one, so that a cycle or a burst of events
costs one request. A candidate starts only after such a refresh, because the issue may have changed since the
poll. A snapshot decides nothing for an issue whose refresh was requested again meanwhile, because the
snapshot may be older than the reason for the request.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from symphony.domain import Issue, normalise_state
from symphony.scheduler import blocks, breaker, budgets, hosts, policy, results, runs
from symphony.scheduler.messages import (
    CleanWorkspace,
    FetchCandidates,
    FinishReason,
    Polled,
    PollFailed,
    Refreshed,
    RefreshFailed,
    RefreshIssues,
    Timer,
    TimerKind,
)
from symphony.scheduler.policy import Eligible, ReasonCode, TrackerStatus
from symphony.scheduler.state import Cycle, Drain, RefreshInFlight, State, Step

IDLE_WORKSPACE_CHECK_MS: Final = 600_000
_WAKE_GAP_MS = 100
_MAX_SKIPPED_RECORDS = 50
_POLL_TIMER = Timer(TimerKind.POLL)

# --- the cycle -------------------------------------------------------------------------------------------


def wake(step: Step, *, by_operator: bool = False) -> None:
    """Poll as soon as possible; a wake during a cycle starts another one shortly after it."""
    if step.state.drain is Drain.NO:
        step.request_refresh(*results.ready_issues(step.state))
    if by_operator:
        breaker.end_pause(step)
        step.update(poll_soon=step.state.poll_soon and _is_paused(step))
    if step.state.cycle is not Cycle.IDLE:
        step.update(poll_again=True)
    elif not step.state.poll_soon:
        begin_cycle(step)


def would_coalesce(state: State) -> bool:
    """Whether a wake would cause no poll of its own, because one is in progress or due in a moment.

    A poll that waits for the end of a pause counts as due.
    """
    return state.cycle is not Cycle.IDLE or state.poll_soon


def begin_cycle(step: Step) -> None:
    """Begin a cycle: check for stalls, read answers, and refresh the claims. Then poll."""
    if step.state.drain is not Drain.NO or step.state.cycle is not Cycle.IDLE:
        return
    paused_until_ms = breaker.requests_paused_until(step.state, step.now_ms)
    if paused_until_ms is not None:
        step.update(poll_again=False, poll_soon=True)
        _poll_at(step, paused_until_ms)
        return
    runs.on_overdue_timer(step, step.overdue_ms(_POLL_TIMER))
    step.clear_timer(_POLL_TIMER)
    step.update(
        cycle=Cycle.RECONCILING, cycle_request=None, poll_again=False, poll_soon=False, next_poll_ms=None
    )
    for run in tuple(step.state.running.values()):
        runs.check_stall(step, run)
    blocks.read_answers(step)
    state = step.state
    ids = {key for key, run in state.running.items() if not run.stopping} | state.blocked.keys()
    checked_ms = state.idle_workspaces_checked_ms
    if checked_ms is None or step.now_ms - checked_ms >= IDLE_WORKSPACE_CHECK_MS:
        ids |= state.idle_workspaces.keys() | results.unclaimed_issues(state)
        step.update(idle_workspaces_checked_ms=step.now_ms)
    if ids:
        step.request_refresh(*ids)
    else:
        _poll(step)


def _poll(step: Step) -> None:
    state, paused = step.state, _is_paused(step)
    if state.config_error is not None or state.drain is not Drain.NO or paused:
        step.update(poll_again=state.poll_again or paused)  # poll as soon as the pause is over
        _end_cycle(step)
        return
    request = step.next_serial()
    step.update(cycle=Cycle.POLLING, cycle_request=request)
    step.emit(FetchCandidates(request=request))


def on_polled(step: Step, event: Polled) -> None:
    """Take over the candidates."""
    if step.state.cycle_request != event.request:
        return
    breaker.on_success(step)
    before, polled = step.state.candidates, {issue.id: issue for issue in event.issues}
    # An adapter may return the same issue objects again, and sorting a large board takes long.
    if len(polled) != len(before) or any(before.get(key) is not issue for key, issue in polled.items()):
        ordered = sorted(polled.values(), key=policy.dispatch_order)
        step.update(candidates={issue.id: issue for issue in ordered})
    step.update(
        skipped_until_poll=frozenset(),
        last_poll_failure=None,
        skipped_records=event.skipped_records[:_MAX_SKIPPED_RECORDS],
    )
    step.request_refresh(*results.reactivated_issues(step.state))
    _end_cycle(step)


def on_poll_failed(step: Step, event: PollFailed) -> None:
    """Keep everything that runs, and dispatch nothing."""
    if step.state.cycle_request != event.request:
        return
    step.update(last_poll_failure=event.failure)
    breaker.on_failure(step, event.failure)
    step.notify("warning", "poll_failed", reason=event.failure.line, hint=event.failure.hint)
    _end_cycle(step)


def _end_cycle(step: Step) -> None:
    delay_ms = _WAKE_GAP_MS if step.state.poll_again else step.state.settings.poll_interval_ms
    if step.state.breaker.failures:  # test soon whether the tracker is back, however long the interval
        delay_ms = min(delay_ms, breaker.MAX_PAUSE_MS)
    step.update(
        cycle=Cycle.IDLE,
        cycle_request=None,
        poll_again=False,
        poll_soon=step.state.poll_again,
        polls=step.state.polls + 1,
    )
    _poll_after(step, delay_ms)


def _poll_after(step: Step, delay_ms: int) -> None:
    paused_until_ms = breaker.requests_paused_until(step.state, step.now_ms) or 0
    _poll_at(step, max(step.now_ms + delay_ms, paused_until_ms))


def _poll_at(step: Step, due_ms: int) -> None:
    step.update(next_poll_ms=due_ms)
    step.set_timer(_POLL_TIMER, due_ms)


def _is_paused(step: Step) -> bool:
    return breaker.requests_paused_until(step.state, step.now_ms) is not None


# --- refreshes -------------------------------------------------------------------------------------------


def send_refresh(step: Step) -> None:
    """Send the refresh that is due, if none is in progress and requests are not paused."""
    state = step.state
    if state.refresh is not None or not state.ids_to_refresh or state.drain is Drain.EXITED:
        return
    paused_until_ms = breaker.requests_paused_until(state, step.now_ms)
    if paused_until_ms is not None:
        if state.timer_due_ms(breaker.TRACKER_PAUSE) != paused_until_ms:
            step.set_timer(breaker.TRACKER_PAUSE, paused_until_ms)
        return
    if breaker.TRACKER_PAUSE in state.timers:
        return  # only its timer ends the pause
    request = step.next_serial()
    step.update(
        refresh=RefreshInFlight(request=request, ids=state.ids_to_refresh), ids_to_refresh=frozenset()
    )
    if state.cycle is Cycle.RECONCILING and state.cycle_request is None:
        step.update(cycle_request=request)
    step.emit(RefreshIssues(request=request, ids=state.ids_to_refresh))


def on_refreshed(step: Step, event: Refreshed) -> None:
    """Apply snapshots to runs, due retries, blocked issues, idle workspaces, candidates and results."""
    in_flight = _take_refresh(step, event.request)
    if in_flight is None:
        return
    breaker.on_success(step)
    interval_ms = step.state.settings.poll_interval_ms
    paused_until_ms = breaker.requests_paused_until(step.state, step.now_ms) or 0
    due_ms = max(step.now_ms + interval_ms, paused_until_ms)
    if step.state.next_poll_ms is not None and due_ms < step.state.next_poll_ms:
        _poll_at(step, due_ms)  # the tracker is back
    found = {issue.id: issue for issue in event.issues}
    fresh = in_flight.ids - step.state.ids_to_refresh
    due_retries = {key for key, retry in step.state.retrying.items() if retry.refreshing}
    starting = (step.state.pending_candidates | due_retries) & fresh & found.keys()
    candidates = dict(step.state.candidates)
    for issue_id in fresh & candidates.keys():
        if issue_id in found:
            candidates[issue_id] = found[issue_id]
        else:
            del candidates[issue_id]
    step.update(pending_candidates=step.state.pending_candidates - fresh, candidates=candidates)
    _clean_idle_workspaces(step, [found[key] for key in sorted(fresh & found.keys())])
    for issue_id in sorted(fresh - starting):
        _apply_snapshot(step, issue_id, found.get(issue_id))
    for issue in sorted((found[key] for key in starting), key=policy.dispatch_order):
        if retry := step.state.retrying.get(issue.id):
            runs.on_retry_refreshed(step, retry, issue)
        else:
            _start_candidate(step, issue)
    for issue_id in sorted(fresh & step.state.results.keys()):
        results.on_refreshed(step, issue_id, found.get(issue_id))
    _poll_after_reconciliation(step, event.request)


def _apply_snapshot(step: Step, issue_id: str, issue: Issue | None) -> None:
    if run := step.state.running.get(issue_id):
        runs.on_running_refreshed(step, run, issue)
    elif (retry := step.state.retrying.get(issue_id)) and retry.refreshing:
        runs.on_retry_refreshed(step, retry, issue)
    elif blocked := step.state.blocked.get(issue_id):
        blocks.on_blocked_refreshed(step, blocked, issue)


def _clean_idle_workspaces(step: Step, issues: Iterable[Issue]) -> None:
    """Remove the idle workspaces of ended issues; one that cannot be removed is kept until a restart."""
    idle = dict(step.state.idle_workspaces)
    for issue in issues:
        ended = policy.tracker_status(issue, step.state.settings) is TrackerStatus.TERMINAL
        if ended and (ref := idle.pop(issue.id, None)):
            budgets.reset_usage(step, issue.id)
            host = hosts.forget_workspace(step, issue.id)
            clean = CleanWorkspace(
                issue_id=issue.id, identifier=ref.identifier, path=None if host else ref.path, host=host
            )
            step.emit(clean)
    step.update(idle_workspaces=idle)


def on_refresh_failed(step: Step, event: RefreshFailed) -> None:
    """Keep what runs; finish runs between turns, delay due retries, and skip candidates until the next poll.

    If the adapter names the culprits, the other issues are refreshed again without them.
    """
    in_flight = _take_refresh(step, event.request)
    if in_flight is None:
        return
    culprits, failure = in_flight.ids & event.culprits, event.failure
    if not culprits or failure.retry_after_ms is not None:
        breaker.on_failure(step, failure)
    step.notify("warning", "refresh_failed", reason=failure.line, hint=failure.hint)
    failed = (culprits or in_flight.ids) - step.state.ids_to_refresh
    pending = step.state.pending_candidates
    step.update(
        pending_candidates=pending - failed,
        skipped_until_poll=step.state.skipped_until_poll | pending & failed,
    )
    step.request_refresh(*(in_flight.ids - failed))
    for issue_id in sorted(failed):
        if (run := step.state.running.get(issue_id)) and run.awaiting_refresh:
            cause = replace(failure, message=f"issue state refresh error: {failure.message}")
            runs.finish(step, run, FinishReason.REFRESH_FAILED, cause)
        elif (retry := step.state.retrying.get(issue_id)) and retry.refreshing:
            runs.requeue(step, retry, f"retry refresh failed: {failure.message}", failure=failure)
    _poll_after_reconciliation(step, event.request)


def _take_refresh(step: Step, request: int) -> RefreshInFlight | None:
    in_flight = step.state.refresh
    if in_flight is None or in_flight.request != request:
        return None
    step.update(refresh=None)
    return in_flight


def _poll_after_reconciliation(step: Step, request: int) -> None:
    if step.state.cycle is Cycle.RECONCILING and step.state.cycle_request == request:
        _poll(step)


# --- dispatch --------------------------------------------------------------------------------------------


def fill_slots(step: Step) -> None:
    """Choose the first eligible candidates for the free slots and refresh them before they start."""
    state = step.state
    if state.config_error is not None or state.drain is not Drain.NO or state.paused:
        return
    free = state.settings.max_concurrent_agents - len(state.running) - len(state.pending_candidates)
    if state.settings.hosts:
        on_hosts = hosts.free_slots(state, hosts.runs_by_host(state)) - len(state.pending_candidates)
        free = min(free, on_hosts)
    if free <= 0:
        return
    reserved = Counter(
        normalise_state(state.candidates[key].state)
        for key in state.pending_candidates
        if key in state.candidates
    )
    passed_over = state.pending_candidates | state.skipped_until_poll
    chosen, full_states, used = set[str](), set[str](), policy.used_slots(state)
    for issue in state.candidates.values():
        if len(chosen) == free:
            break
        if issue.id in passed_over or issue.state in full_states:
            continue
        verdict = policy.eligibility(issue, state, used=used, reserved=reserved)
        if isinstance(verdict, Eligible):
            chosen.add(issue.id)
            reserved[normalise_state(issue.state)] += 1
        elif verdict.code is ReasonCode.NO_STATE_SLOT:
            full_states.add(issue.state)
    if chosen:
        step.update(pending_candidates=state.pending_candidates | chosen)
        step.request_refresh(*chosen)


def _start_candidate(step: Step, issue: Issue) -> None:
    """Start a refreshed candidate, or block it if it used up its budget under an earlier claim."""
    verdict = policy.eligibility(issue, step.state)
    if not isinstance(verdict, Eligible):
        step.notify("debug", "dispatch_skipped", issue, code=verdict.code.value, reason=verdict.message)
    elif blocks.block_by_pull_request(step, issue):
        return
    elif failure := budgets.issue_budget_failure(step.state, issue):
        blocks.block(step, issue, failure, has_baseline=True)
    else:
        runs.start(step, issue)
