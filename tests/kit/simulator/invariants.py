"""The rules that hold after every step of the scheduler, each with its words, in one place (DESIGN 4).

A check is a function of one `Moment`; its docstring is the rule as `docs/testing.md` shows it. It returns
null while the rule holds, else what is broken. Those about restarts stand in `lasting`, and the words of the
rules that need more than one moment in `judged`.
"""

from collections import Counter
from collections.abc import Mapping

from kit.simulator import giving, judged, lasting
from kit.simulator.books import Moment
from kit.simulator.rules import Broken, Invariant, Rules
from symphony.domain import Category, Issue, VerificationStatus, normalise_state
from symphony.scheduler import (
    CONTINUATION_DELAY_MS,
    MAX_NOT_REVIEWED,
    CleanWorkspace,
    ContinueRun,
    Cycle,
    Drain,
    Exit,
    FeedbackGiven,
    FinishRun,
    Notify,
    OperatorAsked,
    Polled,
    PollFailed,
    PullRequestJudged,
    Recovered,
    Refreshed,
    RefreshFailed,
    ResultStatus,
    RunEnded,
    Running,
    RunStage,
    SettingsChanged,
    State,
    StopRun,
    Timer,
    TimerFired,
    TimerKind,
    is_worked_on,
)

__all__ = ["ALL", "first_broken"]


_POLL = Timer(TimerKind.POLL)
_RULES = Rules()
_invariant = _RULES.invariant


# --- starts ----------------------------------------------------------------------------------------------


@_invariant("one-run-per-issue", "SM3, SM4")
def _one_run(moment: Moment) -> Broken | None:
    """There is never more than one live run of an issue. No run id is used twice, even after a restart."""
    if not moment.starts:
        return None
    at_work = set(moment.live.values())
    for start in moment.starts:
        if start.issue.id in at_work:
            return Broken("a second run was started beside a live one", start.issue.id)
        at_work.add(start.issue.id)
        if moment.books.used[start.run_id] > 1:
            return Broken(f"the run id {start.run_id} was used twice", start.issue.id)
    return None


@_invariant("no-start-while-draining", "SC16")
def _not_on_the_way_out(moment: Moment) -> Broken | None:
    """Nothing is started once the daemon was asked to end."""
    late = moment.starts and moment.before.drain is not Drain.NO
    return Broken("started on the way out", moment.starts[0].issue.id) if late else None


@_invariant("no-start-under-invalid-workflow", "CF7, WF9")
def _not_under_an_invalid_workflow(moment: Moment) -> Broken | None:
    """Nothing is started while the workflow file is invalid."""
    held = moment.starts and moment.before.config_error is not None
    return Broken("started under an invalid workflow", moment.starts[0].issue.id) if held else None


@_invariant("fresh-start", "SC9, RT7")
def _fresh(moment: Moment) -> Broken | None:
    """An issue is started only by an answer that shows it eligible and is newer than the reason to ask.

    Feedback on its pull request makes it eligible in any state that is not terminal, and work that is not
    verified in the state where it was handed over.
    """
    for start in moment.starts:
        issue = start.issue
        if not isinstance(moment.fact, Refreshed) or issue not in moment.fact.issues:
            return Broken("started without a fresh look", issue.id)
        if not moment.known or issue.id in moment.before.ids_to_refresh:
            return Broken("started by a stale answer", issue.id)
        handed_off = start.resume is not None and start.resume.after_handoff
        handed_over_to = None if start.resume is None else start.resume.handed_over_to
        if words := _unfit(issue, moment, handed_off=handed_off, handed_over_to=handed_over_to):
            return Broken(words, issue.id)
    return None


def _unfit(
    issue: Issue, moment: Moment, *, handed_off: bool, handed_over_to: str | None = None
) -> str | None:
    """SC5 in words of its own, so that the scheduler's judgement is not its own judge."""
    settings, state = moment.after.settings, normalise_state(issue.state)
    if not all(text.strip() for text in (issue.id, issue.identifier, issue.title, state)):
        return "started though the tracker gave no id, identifier, title or state"
    ended = state in settings.terminal_states or (state not in settings.active_states and not handed_off)
    if ended and state != handed_over_to:
        return f"started in state {issue.state!r}"
    labels = {label.strip().lower() for label in settings.required_labels}
    if not issue.dispatchable or not labels <= set(issue.labels):
        return "started though it is not routable"
    if any(blocker.id in moment.live.values() for blocker in issue.blocked_by):
        return "started while an issue that it waits for runs"
    return None


@_invariant("limits", "SC7, SC8")
def _limits(moment: Moment) -> Broken | None:
    """At the moment of a start no more runs are live than allowed, in all and in the state of the issue."""
    if not moment.starts:
        return None
    settings = moment.after.settings
    if len(moment.books.live) > settings.max_concurrent_agents:
        words = f"{len(moment.books.live)} live runs, {settings.max_concurrent_agents} allowed"
        return Broken(words, moment.starts[-1].issue.id)
    used = Counter(normalise_state(start.issue.state) for start in moment.starts)
    for key, run in moment.after.running.items():
        was, state = moment.before.running.get(key), normalise_state(run.issue.state)
        # A run whose state changed in this very step was no reason for or against a start.
        used[state] += was is not None and normalise_state(was.issue.state) == state
    for start in moment.starts:
        state = normalise_state(start.issue.state)
        cap = settings.max_concurrent_by_state.get(state)
        if cap is not None and used[state] > cap:
            return Broken(f"{used[state]} runs in state {state!r}, {cap} allowed", start.issue.id)
    return None


@_invariant("attempts-count", "RT2, RT4, RT6")
def _attempts(moment: Moment) -> Broken | None:
    """A run carries the number of the retry it comes from; a wait counts from 1, stays, or goes up by one.

    What a predecessor left goes on with the number that it had.
    """
    for start in moment.starts:
        retry = moment.before.retrying.get(start.issue.id)
        if start.attempt != (retry.attempt if retry else None):
            return Broken(f"attempt {start.attempt} does not follow from the retry", start.issue.id)
    before_it = moment.before
    if moment.after.retrying is before_it.retrying or isinstance(moment.fact, Recovered):
        return None
    for key, retry in moment.after.retrying.items():
        was = before_it.retrying.get(key) or before_it.running.get(key) or before_it.blocked.get(key)
        before = was.attempt if was else None
        if retry.attempt not in {1, before, (before or 0) + 1}:
            return Broken(f"attempt {retry.attempt} after {before}", key)
    return None


# --- claims ----------------------------------------------------------------------------------------------


@_invariant("stop-frees-nothing", "SC13")
def _stop_frees_nothing(moment: Moment) -> Broken | None:
    """A run that is asked to stop keeps slot and claim until its end arrives."""
    for command in moment.commands:
        if isinstance(command, StopRun) and (key := moment.live.get(command.run_id)):
            run = moment.after.running.get(key)
            if run is None or run.run_id != command.run_id:
                return Broken(f"{command.run_id} lost its slot when it was asked to stop", key)
    return None


@_invariant("reload-keeps-claims", "CF10")
def _reload_keeps_claims(moment: Moment) -> Broken | None:
    """A reload neither loses a claim nor makes one."""
    reloaded = isinstance(moment.fact, SettingsChanged)
    changed = reloaded and _claims(moment.before) ^ _claims(moment.after)
    return Broken("a reload changed who is claimed", min(changed)) if changed else None


def _claims(state: State) -> set[str]:
    return {*state.running, *state.retrying, *state.blocked}


@_invariant("runs-answered", "SM3, SC13")
def _runs_answered(moment: Moment) -> Broken | None:
    """A run is live and holds a slot from `StartRun` to its one `RunEnded` (after a crash: `Recovered`)."""
    live, running = moment.books.live, moment.after.running
    for key, run in running.items():
        if live.get(run.run_id) != key:
            return Broken(f"{run.run_id} holds a slot and is not live", key)
    if len(live) != len(running):
        slots = {run.run_id for run in running.values()}
        lost = next(run_id for run_id in live if run_id not in slots)
        return Broken(f"{lost} is live and holds no slot", live[lost])
    return None


@_invariant("one-claim", "SM1")
def _one_claim(moment: Moment) -> Broken | None:
    """What is claimed is running, waiting for a retry, or blocked: exactly one of them, under its own id."""
    after = moment.after
    if twice := after.running.keys() & after.retrying.keys():
        return Broken("running and waiting for a retry at once", min(twice))
    if twice := after.blocked.keys() & (after.running.keys() | after.retrying.keys()):
        return Broken("blocked and claimed in another way at once", min(twice))
    for claims in (after.running, after.retrying, after.blocked):
        for key, entry in claims.items():
            if entry.issue.id != key:
                return Broken(f"claimed under the id of {entry.issue.id}", key)
    return None


@_invariant("no-silent-loss", "SM1, SM4")
def _no_silent_loss(moment: Moment) -> Broken | None:
    """A claim is given up only with a word: every release is logged with its issue."""
    before, after = moment.before, moment.after
    if (
        before.running is after.running
        and before.retrying is after.retrying
        and before.blocked is after.blocked
    ):
        return None
    lost = _claims(before) - _claims(after)
    if not lost:
        return None
    said = {
        each.issue_id
        for each in moment.commands
        if isinstance(each, Notify) and each.event == "claim_released"
    }
    return Broken("a claim vanished without a word", min(lost - said)) if lost - said else None


@_invariant("silence-frees-nothing", "SM1, SC9")
def _silence_frees_nothing(moment: Moment) -> Broken | None:
    """A poll, or a question that failed, neither gives up a claim nor stops a run: not told is not gone."""
    if not isinstance(moment.fact, Polled | PollFailed | RefreshFailed):
        return None
    if lost := _claims(moment.before) - _claims(moment.after):
        return Broken("released because something was not told", min(lost))
    stopped = [each for each in moment.commands if isinstance(each, StopRun)]
    return Broken(f"stopped {stopped[0].run_id} because something was not told") if stopped else None


@_invariant("words-are-heard", "SM5, AG8")
def _words_are_heard(moment: Moment) -> Broken | None:
    """Only a live run is spoken to. One that is asked to stop or finish is not told to go on, or again."""
    told = dict(moment.told)
    for command in moment.commands:
        if not isinstance(command, ContinueRun | FinishRun | StopRun):
            continue
        if command.run_id not in moment.live:
            return Broken(f"{type(command).__name__} for {command.run_id}, which is not live")
        before = told.get(command.run_id)
        deaf = before is StopRun or (before is FinishRun and not isinstance(command, StopRun))
        if deaf:
            words = f"{type(command).__name__} for {command.run_id}, which is ending"
            return Broken(words, moment.live[command.run_id])
        if not isinstance(command, ContinueRun):
            told[command.run_id] = type(command)
    return None


@_invariant("idle-runs-end", "ours")
def _idle_runs_end(moment: Moment) -> Broken | None:
    """A run gets no further turn once as many in a row as are allowed left no trace."""
    limit = moment.after.settings.budget.max_turns_without_progress
    for command in moment.commands:
        if isinstance(command, ContinueRun) and limit is not None:
            _, idle = moment.books.turns[command.run_id]
            if idle >= limit:
                return Broken(f"a further turn after {idle} without a trace", command.issue.id)
    return None


@_invariant("clean-after-end", "SC13, WS11")
def _clean_after_end(moment: Moment) -> Broken | None:
    """The workspace of an issue is removed only when no run of it is live."""
    at_work: set[str] | None = None
    for command in moment.commands:
        if isinstance(command, CleanWorkspace):
            at_work = at_work or set(moment.books.live.values())
            if command.issue_id in at_work:
                return Broken("the workspace is removed under a live run", command.issue_id)
    return None


@_invariant("backoff-cap", "RT2, RT3")
def _backoff_cap(moment: Moment) -> Broken | None:
    """No wait exceeds the cap on backoff, a poll interval, what was asked for, or the limit of an agent."""
    if moment.after.retrying is moment.before.retrying or isinstance(moment.fact, Recovered):
        return None  # what is waited for over a restart has a rule of its own
    settings = moment.after.settings
    longest = max(
        settings.max_retry_backoff_ms,
        settings.poll_interval_ms,
        CONTINUATION_DELAY_MS,
        moment.books.longest_wait_ms,
        *((held.until_ms or 0) - moment.now_ms for held in moment.after.limited_agents.values()),
    )
    for key, retry in moment.after.retrying.items():
        if moment.before.retrying.get(key) is not retry and retry.due_ms - moment.now_ms > longest:
            return Broken(f"a wait of {retry.due_ms - moment.now_ms} ms, {longest} allowed", key)
    return None


# --- facts that mean nothing -----------------------------------------------------------------------------


@_invariant("stale-timer", "RT1, SC4")
def _stale_timer(moment: Moment) -> Broken | None:
    """A timer that was armed anew, or is armed no more, does nothing when it fires."""
    fact = moment.fact
    if not isinstance(fact, TimerFired):
        return None
    armed = moment.before.timers.get(fact.timer)
    if armed is not None and armed.token == fact.token:
        return None
    acted = moment.after != moment.before or moment.commands
    return Broken(f"a stale {fact.timer.kind.value} timer was acted upon", fact.timer.id) if acted else None


@_invariant("nonsense-changes-nothing", "ours")
def _nonsense(moment: Moment) -> Broken | None:
    """An answer nobody waits for and the end of an unknown run leave the state as it is."""
    if moment.known or isinstance(moment.fact, TimerFired) or moment.after == moment.before:
        return None
    return Broken(f"a {type(moment.fact).__name__} that belongs to nothing changed the state")


# --- every wait has an end -------------------------------------------------------------


@_invariant("one-refresh", "SC12")
def _one_refresh(moment: Moment) -> Broken | None:
    """At most one by-id request and one poll are under way, and the scheduler waits for those that are."""
    open_ids = moment.books.refreshes
    refresh = moment.after.refresh
    if len(open_ids) > 1:
        return Broken(f"{len(open_ids)} by-id requests under way")
    if len(moment.books.polls) > 1:
        return Broken(f"{len(moment.books.polls)} polls under way")
    if (refresh is None) != (not open_ids) or (refresh and open_ids.get(refresh.request) != refresh.ids):
        return Broken("the by-id request under way is not the one that is waited for")
    return None


@_invariant("no-stuck-claim", "SM1, SM7")
def _no_stuck_claim(moment: Moment) -> Broken | None:
    """Every wait has an end: an answer under way, an armed timer, a worker told to end."""
    after = moment.after
    for key, run in after.running.items():
        if words := _stuck_run(moment, key, run):
            return Broken(words, key)
    if after.drain is not Drain.NO:
        return None
    for key, retry in after.retrying.items():
        if not (key in moment.asked if retry.refreshing else moment.armed(Timer(TimerKind.RETRY, key))):
            return Broken("a retry that never comes due", key)
    if lost := after.pending_candidates - moment.asked:
        return Broken("picked for a start, and nobody asks for it", min(lost))
    if after.ids_to_refresh and after.refresh is None and not moment.armed(Timer(TimerKind.TRACKER_PAUSE)):
        return Broken("wanted, and nobody asks for it", min(after.ids_to_refresh))
    return None


def _stuck_run(moment: Moment, key: str, run: Running) -> str | None:
    if run.stopping or run.finishing:
        return None
    if run.awaiting_refresh:
        return None if key in moment.asked else "a worker between turns that nobody will answer"
    if run.in_grace_period and not moment.armed(Timer(TimerKind.GRACE, run.run_id)):
        return "a grace without end"
    watched = run.agent_started_ms is not None and run.report.stage is not RunStage.FINISHING
    if (
        watched
        and moment.after.settings.agent_info(run.agent.name).stall_timeout_ms > 0
        and not moment.armed(Timer(TimerKind.STALL, run.run_id))
    ):
        return "silence that nobody would notice"
    return None


@_invariant("ready-is-delivered", "ours")
def _ready(moment: Moment) -> Broken | None:
    """Work is ready for review, or over, only with a delivered branch, and while nobody holds its issue."""
    if moment.after.results is moment.before.results and moment.after.running is moment.before.running:
        return None
    after = moment.after
    for key, result in after.results.items():
        if result.status is ResultStatus.OPEN:
            continue
        if result.delivered is None:
            return Broken(f"its work is {result.status.value}, and there is none", key)
        if key in after.running or key in after.retrying or key in after.blocked:
            return Broken(f"its work is {result.status.value}, and it is claimed", key)
    return None


@_invariant("unverified-work-stays-claimed", "DESIGN 23")
def _verified(moment: Moment) -> Broken | None:
    """An issue stays claimed whose run was to be verified and was not, or failed; rounds and tries end.

    Of a verification that a person asked for, only the result counts.
    """
    fact, after = moment.fact, moment.after
    rounds = after.settings.verify_rounds
    if rounds is not None and after.results is not moment.before.results:
        for key, result in after.results.items():
            known = moment.before.results.get(key)
            if result.verify_rounds > rounds and (
                known is None or known.verify_rounds < result.verify_rounds
            ):
                return Broken(f"sent back {result.verify_rounds} times, {rounds} allowed", key)
            if result.not_reviewed >= MAX_NOT_REVIEWED:
                return Broken(f"not reviewed {result.not_reviewed} times, and tried again", key)
    if not isinstance(fact, RunEnded):
        return None
    run = next((each for each in moment.before.running.values() if each.run_id == fact.run_id), None)
    verification = fact.outcome.verification
    if run is None:
        return None
    passed = verification is not None and verification.status is not VerificationStatus.FAILED
    by_hand = run.resume is not None and run.resume.by_hand
    if not run.verifies or passed or by_hand or run.issue.id in _claims(after):
        return None
    return Broken("its work is not verified, and nobody holds it", run.issue.id)


@_invariant("feedback-is-taken-once", "ours")
def _feedback(moment: Moment) -> Broken | None:
    """Feedback is taken for finished work that nobody holds, once for each key, and claims its issue."""
    fact = moment.fact
    if not isinstance(fact, FeedbackGiven):
        return None
    key, before, after = fact.issue_id, moment.before, moment.after
    known, now = before.results.get(key), after.results.get(key)
    claimed = not is_worked_on(before, key) and is_worked_on(after, key)
    taken = known is not None and now is not None and known.feedback != now.feedback
    if taken != claimed:
        return Broken("feedback was taken without a claim, or a claim made without it", key)
    if taken and now is not None and now.feedback != fact.key:
        return Broken("other feedback was taken", key)
    return None


@_invariant("closed-work-rests", "ours")
def _closed(moment: Moment) -> Broken | None:
    """No run starts for an issue while its pull request was closed or needs a person."""
    for start in moment.starts:
        known = moment.before.results.get(start.issue.id)
        if known is not None and known.pull_block is not None:
            return Broken(f"started though {known.pull_block.failure.message}", start.issue.id)
    return None


_LIFTERS = (OperatorAsked, PullRequestJudged, FeedbackGiven)


@_invariant("block-is-lifted-by-a-person", "ours")
def _lifted(moment: Moment) -> Broken | None:
    """What a pull request blocked is lifted by it, by an operator, or by a move or loss of the issue."""
    before, fact = moment.before, moment.fact
    if before.blocked is moment.after.blocked:
        return None
    for key in before.blocked.keys() - moment.after.blocked.keys():
        blocked, known = before.blocked[key], before.results.get(key)
        if known is None or known.pull_block is None or known.pull_block.failure != blocked.failure:
            continue
        if isinstance(fact, Refreshed):
            issue = next((each for each in fact.issues if each.id == key), None)
            stays = issue is not None and normalise_state(issue.state) == normalise_state(blocked.issue.state)
            if issue is not None and stays and _unfit(issue, moment, handed_off=True) is None:
                return Broken("its block was lifted though nobody moved it", key)
        elif not isinstance(fact, _LIFTERS) or fact.issue_id != key:
            return Broken(f"its block was lifted by {type(fact).__name__}", key)
    return None


@_invariant("stop-lasts", "DESIGN 14")
def _stop_lasts(moment: Moment) -> Broken | None:
    """What an operator stopped stays blocked until an operator continues it or a person moves it."""
    before, fact = moment.before, moment.fact
    if before.blocked is moment.after.blocked:
        return None
    for key in before.blocked.keys() - moment.after.blocked.keys():
        blocked = before.blocked[key]
        if blocked.failure.category is not Category.STOPPED_BY_OPERATOR or blocked.unblock_reason:
            continue
        if isinstance(fact, Refreshed):
            found = {normalise_state(issue.state) for issue in fact.issues if issue.id == key}
            if found <= {normalise_state(blocked.issue.state)} and not blocked.over:  # it had ended before
                return Broken("its stop was lifted though nobody moved it", key)
        elif not isinstance(fact, OperatorAsked) or fact.issue_id != key:
            return Broken(f"its stop was lifted by {type(fact).__name__}", key)
    return None


@_invariant("push-is-tried-again", "ours")
def _push_again(moment: Moment) -> Broken | None:
    """A pending push is tried until it succeeds."""
    if moment.after.results is moment.before.results or moment.after.drain is not Drain.NO:
        return None
    for key, result in moment.after.results.items():
        delivered = result.delivered
        if delivered is None or not delivered.is_pending or key in moment.after.running:
            continue
        if moment.books.pushes.get(key) != delivered.head:
            return Broken("a pending push is not tried", key)
    return None


@_invariant("next-poll", "SC3, SC4")
def _next_poll(moment: Moment) -> Broken | None:
    """While the daemon lives a poll is under way or armed, whatever failed before."""
    after, books = moment.after, moment.books
    if not books.begun or after.drain is not Drain.NO:
        return None
    if after.cycle is Cycle.IDLE:
        return None if moment.armed(_POLL) else Broken("no next poll")
    if after.cycle_request is None:
        return None if moment.asked else Broken("a cycle that waits for no question")
    under_way = after.cycle_request in books.polls or after.cycle_request in books.refreshes
    return None if under_way else Broken("a cycle that waits for no answer")


@_invariant("no-lost-wake", "SC15")
def _no_lost_wake(moment: Moment) -> Broken | None:
    """After a wake a poll follows that is asked later than the wake: prepared, noted, or due in a moment."""
    after = moment.after
    if not moment.books.expects_poll or after.drain is not Drain.NO:
        return None
    noted = after.cycle is Cycle.RECONCILING or after.poll_again or after.poll_soon
    patient = moment.now_ms < moment.books.patient_until_ms
    return None if noted or patient else Broken("a wake was lost")


@_invariant("exit-once", "SC16")
def _exit_once(moment: Moment) -> Broken | None:
    """The daemon is told to end once, when it drains and nothing is live; a drain always comes to its end."""
    after = moment.after
    if any(isinstance(command, Exit) for command in moment.commands) and moment.books.live:
        return Broken("told to end while something runs")
    if moment.books.exits != int(after.drain is Drain.EXITED):
        return Broken(f"told to end {moment.books.exits} times in drain state {after.drain.value!r}")
    if moment.before.drain is after.drain is Drain.DRAINING:
        ending = all(run.stopping for run in after.running.values()) or moment.books.patient
        return None if ending or moment.armed(Timer(TimerKind.DRAIN)) else Broken("a drain without end")
    return None


ALL: Mapping[str, Invariant] = {
    rule.name: rule
    for rule in (
        *_RULES.checked,
        *lasting.RULES.checked,
        *giving.RULES.checked,
        *judged.ALL,
    )
}


def first_broken(moment: Moment) -> tuple[Invariant, Broken] | None:
    """The first rule that this moment breaks, or null."""
    books = (giving.RULES, _RULES, lasting.RULES)
    return next(filter(None, (rules.first_broken(moment) for rules in books)), None)
