"""The poll cycle and the by-id refresh: what to ask the tracker, and what its answers mean (SC2-SC15).

At most one by-id request is under way. Ids that somebody wants meanwhile go together in the next one, so a
tick and a burst cost one request each, never one per issue. A candidate is started only after such a
refresh (SC9), which keeps a stale poll from starting an issue that has changed. An answer decides nothing
for an id that is wanted again by then: it was asked before the question, and may be older than its cause.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from symphony.domain.failures import Failure
from symphony.domain.issue import Issue, normalise_state
from symphony.scheduler import answers, blocks, budgets, policy, results, retries, runs, weather
from symphony.scheduler.commands import CleanWorkspace, FetchCandidates, FinishReason, RefreshIssues
from symphony.scheduler.inputs import Polled, PollFailed, Refreshed, RefreshFailed, Timer, TimerKind
from symphony.scheduler.policy import Eligible, ReasonCode, Standing
from symphony.scheduler.state import Cycle, Drain, RefreshInFlight, State
from symphony.scheduler.work import Work

__all__ = [
    "begin",
    "fill_slots",
    "on_poll_failed",
    "on_polled",
    "on_refresh_failed",
    "on_refreshed",
    "send_wanted",
    "wake",
    "would_coalesce",
]

PARKED_EVERY_MS = 600_000
WAKE_GAP_MS = 100
MOST_SKIPPED = 50
_POLL = Timer(TimerKind.POLL)
_QUIET = Timer(TimerKind.QUIET)


def begin(work: Work) -> None:
    """Start a cycle: reconcile first, then poll (SC3)."""
    if work.state.drain is not Drain.NO or work.state.cycle is not Cycle.IDLE:
        return
    quiet_until_ms = weather.quiet_until(work.state, work.now_ms)
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
    answers.read(work)
    ids = _to_reconcile(work)
    if ids:
        work.update(wanted=work.state.wanted | ids)
    else:
        _fetch(work)


def _to_reconcile(work: Work) -> frozenset[str]:
    state = work.state
    ids = {key for key, run in state.running.items() if not run.stopping} | set(state.blocked)
    if state.parked_ms is None or work.now_ms - state.parked_ms >= PARKED_EVERY_MS:
        ids |= set(state.parked) | results.watched(state)
        work.update(parked_ms=work.now_ms)
    return frozenset(ids)


def _fetch(work: Work) -> None:
    state = work.state
    paused = weather.quiet_until(work.state, work.now_ms) is not None
    if state.hold is not None or state.drain is not Drain.NO or paused:
        work.update(poll_again=state.poll_again or paused)  # made up for as soon as the pause is over
        _end(work)
        return
    request = work.number()
    work.update(cycle=Cycle.POLLING, cycle_request=request)
    work.emit(FetchCandidates(request=request))


def _end(work: Work) -> None:
    delay_ms = WAKE_GAP_MS if work.state.poll_again else work.state.settings.poll_interval_ms
    if work.state.weather.failures:  # whether it is back is asked soon, however long the interval
        delay_ms = min(delay_ms, weather.LONGEST_WAIT_MS)
    work.update(
        cycle=Cycle.IDLE,
        cycle_request=None,
        poll_again=False,
        poll_soon=work.state.poll_again,
        polls=work.state.polls + 1,
    )
    _poll_at(work, max(work.now_ms + delay_ms, weather.quiet_until(work.state, work.now_ms) or 0))


def _poll_at(work: Work, due_ms: int) -> None:
    work.update(next_poll_ms=due_ms)
    work.set_timer(_POLL, due_ms)


def _bring_forward(work: Work) -> None:
    """Poll no later than in an interval, once nothing stands in the way of it any more."""
    state = work.state
    due_ms = max(work.now_ms + state.settings.poll_interval_ms, weather.quiet_until(state, work.now_ms) or 0)
    if state.next_poll_ms is not None and due_ms < state.next_poll_ms:
        _poll_at(work, due_ms)


def wake(work: Work, *, by_operator: bool = False) -> None:
    """Poll as soon as possible; a wake during a cycle brings one more after it, after a pause (SC15)."""
    if work.state.drain is Drain.NO:
        work.update(wanted=work.state.wanted | results.seen_at_a_wake(work.state))
    if by_operator:
        weather.lift(work)
        work.update(
            poll_soon=work.state.poll_soon and weather.quiet_until(work.state, work.now_ms) is not None
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


def on_polled(work: Work, answer: Polled) -> None:
    """Take over the candidates and fill free slots (SC3 steps 4-8)."""
    if work.state.cycle_request != answer.request:
        return
    weather.on_success(work)
    newest = {issue.id: issue for issue in answer.issues}
    candidates = {issue.id: issue for issue in sorted(newest.values(), key=policy.sort_key)}
    work.update(
        candidates=candidates,
        deferred=frozenset(),
        last_poll_failure=None,
        skipped=answer.skipped[:MOST_SKIPPED],
    )
    work.update(wanted=work.state.wanted | results.changed(work.state))
    _end(work)


def on_poll_failed(work: Work, answer: PollFailed) -> None:
    """Skip dispatch this tick, keep everything that runs (SC14)."""
    if work.state.cycle_request != answer.request:
        return
    work.update(last_poll_failure=answer.failure)
    weather.on_failure(work, answer.failure)
    work.notify("warning", "poll_failed", reason=answer.failure.line, hint=answer.failure.hint)
    _end(work)


# --- starting --------------------------------------------------------------------------------------------


def fill_slots(work: Work) -> None:
    """Pick the first eligible candidates for the slots that are free, and have them refreshed (SC6-SC9)."""
    state = work.state
    if state.hold is not None or state.drain is not Drain.NO or state.paused:
        return
    free = state.settings.max_concurrent_agents - len(state.running) - len(state.picks)
    if free <= 0:
        return
    picked = Counter(
        normalise_state(state.candidates[key].state) for key in state.picks if key in state.candidates
    )
    passed, chosen, full = state.picks | state.deferred, set[str](), set[str]()
    for issue in state.candidates.values():
        if len(chosen) == free:
            break
        if issue.id in passed or issue.state in full:
            continue
        verdict = policy.eligible(issue, state, picked=picked)
        if isinstance(verdict, Eligible):
            chosen.add(issue.id)
            picked[normalise_state(issue.state)] += 1
        elif verdict.code is ReasonCode.NO_STATE_SLOT:
            full.add(issue.state)
    if chosen:
        work.update(picks=state.picks | chosen, wanted=state.wanted | chosen)


def _start_in_order(work: Work, issues: Iterable[Issue]) -> None:
    """Give the slots there are to picks and due retries alike, by the one order of dispatch (SC6, RT6)."""
    for issue in sorted(issues, key=policy.sort_key):
        if retry := work.state.retrying.get(issue.id):
            retries.on_refreshed(work, retry, issue)
        else:
            _start_pick(work, issue)


def _start_pick(work: Work, issue: Issue) -> None:
    """Start a new issue; one that used up its budget under an earlier claim is blocked instead."""
    verdict = policy.eligible(issue, work.state)
    if not isinstance(verdict, Eligible):
        work.notify("debug", "dispatch_skipped", issue, code=verdict.code.value, reason=verdict.message)
    elif failure := budgets.issue_used(work.state, issue):
        blocks.block(work, issue, failure, settled=True)
    else:
        runs.start(work, issue)


# --- refreshing ------------------------------------------------------------------------------------------


def send_wanted(work: Work) -> None:
    """Send the one by-id request that is due, if none is under way."""
    state = work.state
    if state.refresh is not None or not state.wanted or state.drain is Drain.EXITED:
        return
    if (quiet_until_ms := weather.quiet_until(work.state, work.now_ms)) is not None:
        if state.dues.get(_QUIET) != quiet_until_ms:
            work.set_timer(_QUIET, quiet_until_ms)
        return
    if _QUIET in state.timers:
        return  # it fires in a moment: facts that mean nothing must not end a pause
    request = work.number()
    asked = RefreshInFlight(request=request, ids=state.wanted)
    work.update(refresh=asked, wanted=frozenset())
    if state.cycle is Cycle.RECONCILING and state.cycle_request is None:
        work.update(cycle_request=request)
    work.emit(RefreshIssues(request=request, ids=asked.ids))


def on_refreshed(work: Work, answer: Refreshed) -> None:
    """Apply fresh snapshots to runs, due retries, blocks, parked workspaces and picks."""
    under_way = _take_refresh(work, answer.request)
    if under_way is None:
        return
    weather.on_success(work)
    _bring_forward(work)
    found = {issue.id: issue for issue in answer.issues}
    fresh = under_way.ids - work.state.wanted
    due = {key for key, retry in work.state.retrying.items() if retry.firing}
    starting = (work.state.picks | due) & fresh & found.keys()
    work.update(picks=work.state.picks - fresh)
    _absorb(work, fresh, found)
    _clean_parked(work, [found[key] for key in sorted(fresh & work.state.parked.keys() & found.keys())])
    for issue_id in sorted(fresh - starting):
        _apply(work, issue_id, found.get(issue_id))
    _start_in_order(work, (found[key] for key in starting))
    for issue_id in sorted(fresh & work.state.results.keys()):
        results.settle(work, issue_id, found.get(issue_id))
    _go_on_with_cycle(work, answer.request)


def _take_refresh(work: Work, request: int) -> RefreshInFlight | None:
    under_way = work.state.refresh
    if under_way is None or under_way.request != request:
        return None
    work.update(refresh=None)
    return under_way


def _go_on_with_cycle(work: Work, request: int) -> None:
    if work.state.cycle is Cycle.RECONCILING and work.state.cycle_request == request:
        _fetch(work)


def _apply(work: Work, issue_id: str, issue: Issue | None) -> None:
    if run := work.state.running.get(issue_id):
        runs.on_running_refreshed(work, run, issue)
    elif (retry := work.state.retrying.get(issue_id)) and retry.firing:
        retries.on_refreshed(work, retry, issue)
    elif blocked := work.state.blocked.get(issue_id):
        blocks.on_blocked_refreshed(work, blocked, issue)


def _clean_parked(work: Work, issues: Iterable[Issue]) -> None:
    """Clean the workspaces of ended issues nobody works on, once: a kept one waits for a restart (SC2)."""
    parked = dict(work.state.parked)
    for issue in issues:
        if policy.standing(issue, work.state.settings) is Standing.TERMINAL:
            ref = parked.pop(issue.id)
            budgets.forget(work, issue.id)
            work.emit(CleanWorkspace(issue_id=issue.id, identifier=ref.identifier, path=ref.path))
    work.update(parked=parked)


def _absorb(work: Work, fresh: frozenset[str], found: Mapping[str, Issue]) -> None:
    """Let the candidates say what the answer says; their order is that of the poll."""
    candidates = dict(work.state.candidates)
    for issue_id in fresh & candidates.keys():
        if issue_id in found:
            candidates[issue_id] = found[issue_id]
        else:
            del candidates[issue_id]
    work.update(candidates=candidates)


def on_refresh_failed(work: Work, answer: RefreshFailed) -> None:
    """Keep what runs; a turn boundary fails its run, a due retry waits longer, a pick waits for a poll.

    Where the adapter names the culprits, the others are asked for again without them.
    """
    under_way = _take_refresh(work, answer.request)
    if under_way is None:
        return
    asked, named = under_way.ids, under_way.ids & answer.culprits
    if not named or answer.failure.retry_after_ms is not None:
        weather.on_failure(work, answer.failure)
    work.notify("warning", "refresh_failed", reason=answer.failure.line, hint=answer.failure.hint)
    hit = (named or asked) - work.state.wanted
    picks, deferred = work.state.picks, work.state.deferred
    work.update(picks=picks - hit, deferred=deferred | picks & hit, wanted=work.state.wanted | (asked - hit))
    for issue_id in sorted(hit):
        _apply_failure(work, issue_id, answer.failure)
    _go_on_with_cycle(work, answer.request)


def _apply_failure(work: Work, issue_id: str, failure: Failure) -> None:
    if (run := work.state.running.get(issue_id)) and run.awaiting:
        reason = replace(failure, message=f"issue state refresh error: {failure.message}")
        runs.finish(work, run, FinishReason.REFRESH_FAILED, reason)
    elif (retry := work.state.retrying.get(issue_id)) and retry.firing:
        retries.requeue(work, retry, f"retry refresh failed: {failure.message}", failure=failure)
