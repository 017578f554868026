"""Schedulers that are broken on purpose, each in one way, with the invariant that must notice it.

Each wraps the real `step`: it lies to it, or changes what it said. `step` is pure, and so are these, but for
the one that shows that the replay notices it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from kit.simulator import make_settings
from symphony.domain import NO_TOKENS, Category
from symphony.scheduler import (
    AgentReported,
    AnswersRead,
    CleanWorkspace,
    Command,
    ContinueRun,
    Cycle,
    Drain,
    Event,
    Exit,
    FeedbackGiven,
    FetchCandidates,
    Notify,
    OperatorAsked,
    Polled,
    PollFailed,
    PostComment,
    PullRequestJudged,
    PushBranch,
    ReadAnswers,
    Refreshed,
    RefreshIssues,
    ResultStatus,
    Resume,
    RunEnded,
    RunStage,
    SchedulerSettings,
    SetTimer,
    SettingsChanged,
    StartRun,
    State,
    StopRun,
    TimerFired,
    TimerKind,
    WakeAsked,
    WorkflowRejected,
    in_active_state,
    step,
)

__all__ = ["BROKEN_STEPS", "Broken"]


Commands = tuple[Command, ...]
Broken = Callable[[State, Event, int], tuple[State, Commands]]


def _without(held: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in held.items() if key not in keys}


def _at_the_end(state: State) -> bool:
    """Whether these are the settings under which a schedule ends, when nobody counts how long issues wait."""
    settings = state.settings
    return settings == make_settings(
        poll_interval_ms=60_000, max_concurrent_agents=settings.max_concurrent_agents
    )


def starts_while_draining(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if state.drain is not Drain.DRAINING:
        return step(state, fact, now_ms)
    after, commands = step(state.changed(drain=Drain.NO), fact, now_ms)
    return after if after.drain is Drain.EXITED else after.changed(drain=Drain.DRAINING), commands


def starts_under_an_invalid_workflow(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if state.config_error is None or isinstance(fact, SettingsChanged | WorkflowRejected):
        return step(state, fact, now_ms)
    after, commands = step(state.changed(config_error=None), fact, now_ms)
    return after.changed(config_error=state.config_error), commands


def _under(limits: Callable[[SchedulerSettings], SchedulerSettings]) -> Broken:
    """A step that decides under other limits than the ones in force."""

    def broken(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
        if isinstance(fact, SettingsChanged):
            return step(state, fact, now_ms)
        after, commands = step(state.changed(settings=limits(state.settings)), fact, now_ms)
        return after.changed(settings=state.settings), commands

    return broken


def _under_budget(**limits: int | None) -> Broken:
    return _under(lambda settings: replace(settings, budget=structs.replace(settings.budget, **limits)))


def frees_the_slot_at_stop(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    for command in commands:
        if isinstance(command, StopRun):
            running = {key: run for key, run in after.running.items() if run.run_id != command.run_id}
            after = after.changed(running=running)
    return after, commands


def forgets_a_run_that_delivers(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if isinstance(fact, AgentReported) and fact.report.stage is RunStage.FINISHING:
        running = {key: run for key, run in after.running.items() if run.run_id != fact.run_id}
        lost = after.running.keys() - running.keys()
        said = tuple(Notify(level="info", event="claim_released", issue_id=key) for key in lost)
        return after.changed(running=running), commands + said
    return after, commands


def forgets_a_claim_on_reload(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    return (after.changed(retrying={}), commands) if isinstance(fact, SettingsChanged) else (after, commands)


def forgets_a_retry(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if isinstance(fact, RunEnded):
        gained = after.retrying.keys() - state.retrying.keys()
        return after.changed(retrying=_without(after.retrying, *gained)), commands
    return after, commands


def takes_silence_for_an_end(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if isinstance(fact, PollFailed):
        lost = after.retrying.keys() & state.retrying.keys()
        told = tuple(Notify(level="info", event="claim_released", issue_id=key) for key in sorted(lost))
        return after.changed(retrying=_without(after.retrying, *lost)), (*commands, *told)
    return after, commands


def _drops(kind: type[Command], which: Callable[[Any, Event], bool] = lambda _command, _fact: True) -> Broken:
    def broken(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
        after, commands = step(state, fact, now_ms)
        kept = (each for each in commands if not (isinstance(each, kind) and which(each, fact)))
        return after, tuple(kept)

    return broken


def doubles_a_run(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    again = tuple(
        structs.replace(each, run_id=f"{each.run_id}+") for each in commands if isinstance(each, StartRun)
    )
    return after, commands + again


def uses_a_run_id_again(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    return step(state.changed(epoch="e"), fact, now_ms)


def starts_from_the_poll(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    return _answering_itself(state, fact, now_ms) if isinstance(fact, Polled) else step(state, fact, now_ms)


def fills_a_slot_without_a_look(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    return _answering_itself(state, fact, now_ms) if isinstance(fact, RunEnded) else step(state, fact, now_ms)


def _answering_itself(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if after.refresh is None or after.refresh is state.refresh:
        return after, commands
    answer = Refreshed(request=after.refresh.request, issues=tuple(after.candidates.values()))
    after, more = step(after, answer, now_ms)
    return after, tuple(each for each in commands if not isinstance(each, RefreshIssues)) + more


def is_deaf_to_comments(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    return step(state, structs.replace(fact, answers=()) if isinstance(fact, AnswersRead) else fact, now_ms)


def reads_no_comments(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    return after, tuple(each for each in commands if not isinstance(each, ReadAnswers))


def starts_what_is_not_eligible(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if not isinstance(fact, Refreshed):
        return step(state, fact, now_ms)
    told = {issue.id: issue for issue in fact.issues}
    active = tuple(
        replace(issue, state="Todo")
        if issue.id in state.pending_candidates and not in_active_state(issue, state.settings)
        else issue
        for issue in fact.issues
    )
    after, commands = step(state, structs.replace(fact, issues=active), now_ms)
    true = (
        structs.replace(each, issue=told[each.issue.id]) if isinstance(each, StartRun) else each
        for each in commands
    )
    return after, tuple(true)


def counts_attempts_wrongly(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    wrong = (
        structs.replace(each, attempt=1 + (each.attempt or 0)) if isinstance(each, StartRun) else each
        for each in commands
    )
    return after, tuple(wrong)


def waits_too_long(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if after.retrying is state.retrying:
        return after, commands
    late = {key: replace(retry, due_ms=retry.due_ms + 10**8) for key, retry in after.retrying.items()}
    return after.changed(retrying=late), commands


def takes_a_stale_timer(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if isinstance(fact, TimerFired) and fact.timer in state.timers:
        fact = structs.replace(fact, token=state.timers[fact.timer].token)
    return step(state, fact, now_ms)


def takes_an_answer_twice(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if isinstance(fact, Polled) and state.cycle is Cycle.IDLE:
        state = state.changed(cycle=Cycle.POLLING, cycle_request=fact.request)
    return step(state, fact, now_ms)


def loses_a_wake(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if isinstance(fact, WakeAsked) and state.cycle is Cycle.POLLING:
        return state, ()
    return step(state, fact, now_ms)


def asks_twice(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    more = tuple(
        structs.replace(each, request=-each.request) for each in commands if isinstance(each, RefreshIssues)
    )
    return after, commands + more


def claims_twice(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    kept = {key: retry for key, retry in state.retrying.items() if key in after.running}
    return after.changed(retrying={**after.retrying, **kept}), commands


def cleans_under_a_run(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    issues = {run.run_id: run.issue for run in after.running.values()}
    stopped = [issues[each.run_id] for each in commands if isinstance(each, StopRun)]
    more = tuple(
        CleanWorkspace(issue_id=issue.id, identifier=issue.identifier, path=None) for issue in stopped
    )
    return after, commands + more


def speaks_to_the_deaf(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if isinstance(fact, AgentReported):
        ending = [run for run in after.running.values() if run.run_id == fact.run_id and run.finishing]
        more = tuple(ContinueRun(run_id=run.run_id, issue=run.issue, turn=run.turn + 1) for run in ending)
        return after, commands + more
    return after, commands


def raises(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if isinstance(fact, PollFailed):
        raise KeyError(fact.request)
    return step(state, fact, now_ms)


def starts_nothing(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if _at_the_end(state):
        return step(state, fact, now_ms)
    return step(state, structs.replace(fact, issues=()) if isinstance(fact, Polled) else fact, now_ms)


def never_unblocks(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if isinstance(fact, Refreshed):
        old = tuple(
            state.blocked[issue.id].issue if issue.id in state.blocked else issue for issue in fact.issues
        )
        fact = structs.replace(fact, issues=old)
    return step(state, fact, now_ms)


def remembering() -> Broken:
    """Not a function of its arguments: it keeps silent now and then, by a count of its own."""
    calls = 0

    def broken(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
        nonlocal calls
        calls += 1
        after, commands = step(state, fact, now_ms)
        quiet = tuple(
            each for each in commands if not isinstance(each, Notify) or each.event == "claim_released"
        )
        return after, quiet if calls % 3 == 0 else commands

    return broken


def _resumes(change: Callable[[Resume], Resume]) -> Broken:
    """A step whose runs go on with something else than what an earlier one left."""

    def broken(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
        after, commands = step(state, fact, now_ms)
        told = (
            structs.replace(each, resume=change(each.resume))
            if isinstance(each, StartRun) and each.resume
            else each
            for each in commands
        )
        return after, tuple(told)

    return broken


def _anew(resume: Resume) -> Resume:
    return replace(resume, thread=structs.replace(resume.thread, tokens=NO_TOKENS) if resume.thread else None)


def goes_on_and_starts_cold(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    cold = tuple(
        structs.replace(each, run_id=f"{each.run_id}+", resume=None)
        for each in commands
        if isinstance(each, StartRun) and each.resume
    )
    return after, commands + cold


def starts_while_paused(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if not state.paused or isinstance(fact, OperatorAsked):
        return step(state, fact, now_ms)
    after, commands = step(state.changed(paused=False), fact, now_ms)
    return after.changed(paused=True), commands


def leaves_the_last_issues(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if not _at_the_end(state):
        return step(state, fact, now_ms)
    return step(state, structs.replace(fact, issues=()) if isinstance(fact, Polled) else fact, now_ms)


def gives_to_nobody_known(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    told = (
        structs.replace(each, agent="nobody") if isinstance(each, StartRun) else each for each in commands
    )
    return after, tuple(told)


def starts_on_a_limited_agent(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if not isinstance(fact, Refreshed):
        return step(state, fact, now_ms)
    after, commands = step(state.changed(limited_agents={}), fact, now_ms)
    return after.changed(limited_agents=state.limited_agents), commands


def forgets_a_limit(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    return (after.changed(limited_agents={}), commands) if isinstance(fact, RunEnded) else (after, commands)


def _of_another_agent(resume: Resume) -> Resume:
    return (
        resume
        if resume.thread is None
        else replace(resume, thread=structs.replace(resume.thread, agent="nobody"))
    )


def reviews_what_it_works_on(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if not isinstance(fact, RunEnded):
        return after, commands
    ready = {key: replace(each, status=ResultStatus.READY) for key, each in after.results.items()}
    return after.changed(results=ready), commands


def forgets_which_feedback_it_took(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if not isinstance(fact, FeedbackGiven):
        return after, commands
    forgotten = {key: replace(each, feedback=None) for key, each in after.results.items()}
    return after.changed(results=forgotten), commands


def starts_closed_work(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    if isinstance(fact, PullRequestJudged):
        return step(state, fact, now_ms)
    blocks = {key: each.pull_block for key, each in state.results.items()}
    free = {key: replace(each, pull_block=None) for key, each in state.results.items()}
    after, commands = step(state.changed(results=free), fact, now_ms)
    held = {key: replace(each, pull_block=blocks.get(key)) for key, each in after.results.items()}
    return after.changed(results=held), commands


def lifts_a_block_when_a_run_ends(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if isinstance(fact, RunEnded):
        for key in state.blocked.keys() & state.results.keys():
            if state.results[key].pull_block is not None:
                after, more = step(after, PullRequestJudged(issue_id=key), now_ms)
                commands += more
    return after, commands


def lifts_a_stop_by_a_setting(state: State, fact: Event, now_ms: int) -> tuple[State, Commands]:
    after, commands = step(state, fact, now_ms)
    if isinstance(fact, Refreshed) and after.settings.required_labels:
        lifted = {
            key
            for key, blocked in after.blocked.items()
            if blocked.failure.category is Category.STOPPED_BY_OPERATOR
        }
        said = tuple(Notify(level="info", event="claim_released", issue_id=key) for key in lifted)
        return after.changed(blocked=_without(after.blocked, *lifted)), commands + said
    return after, commands


def _prefers_the_fallback(settings: SchedulerSettings) -> SchedulerSettings:
    if settings.fallback is None:
        return settings
    return replace(settings, agent=settings.fallback, fallback=settings.agent)


def _sends_back_for_ever(settings: SchedulerSettings) -> SchedulerSettings:
    return settings if settings.verify_rounds is None else replace(settings, verify_rounds=99)


BROKEN_STEPS: Mapping[str, tuple[Broken, str]] = {
    "sends work back for ever": (_under(_sends_back_for_ever), "unverified-work-stays-claimed"),
    "frees the slot at StopRun": (frees_the_slot_at_stop, "stop-frees-nothing"),
    "forgets a run that delivers": (forgets_a_run_that_delivers, "runs-answered"),
    "forgets a claim on reload": (forgets_a_claim_on_reload, "reload-keeps-claims"),
    "forgets a retry": (forgets_a_retry, "no-silent-loss"),
    "takes silence for an end": (takes_silence_for_an_end, "silence-frees-nothing"),
    "drops the timer of a retry": (
        _drops(SetTimer, lambda each, _: each.timer.kind is TimerKind.RETRY),
        "no-stuck-claim",
    ),
    "drops the timer of silence": (
        _drops(SetTimer, lambda each, _: each.timer.kind is TimerKind.STALL),
        "no-stuck-claim",
    ),
    "drops the timer of the drain": (
        _drops(SetTimer, lambda each, _: each.timer.kind is TimerKind.DRAIN),
        "exit-once",
    ),
    "drops the next poll after a failure": (
        _drops(
            SetTimer, lambda each, fact: each.timer.kind is TimerKind.POLL and isinstance(fact, PollFailed)
        ),
        "next-poll",
    ),
    "never asks for the poll": (_drops(FetchCandidates), "next-poll"),
    "never ends": (_drops(Exit), "exit-once"),
    "starts while draining": (starts_while_draining, "no-start-while-draining"),
    "starts under an invalid workflow": (
        starts_under_an_invalid_workflow,
        "no-start-under-invalid-workflow",
    ),
    "ignores the cap": (_under(lambda limits: replace(limits, max_concurrent_agents=99)), "limits"),
    "ignores the cap of a state": (
        _under(lambda limits: replace(limits, max_concurrent_by_state={})),
        "limits",
    ),
    "doubles a run": (doubles_a_run, "one-run-per-issue"),
    "uses a run id again": (uses_a_run_id_again, "one-run-per-issue"),
    "starts from the poll": (starts_from_the_poll, "fresh-start"),
    "fills a slot without a look": (fills_a_slot_without_a_look, "fresh-start"),
    "starts what is not eligible": (starts_what_is_not_eligible, "fresh-start"),
    "counts attempts wrongly": (counts_attempts_wrongly, "attempts-count"),
    "waits too long": (waits_too_long, "backoff-cap"),
    "takes a stale timer": (takes_a_stale_timer, "stale-timer"),
    "takes an answer twice": (takes_an_answer_twice, "nonsense-changes-nothing"),
    "loses a wake": (loses_a_wake, "no-lost-wake"),
    "asks twice": (asks_twice, "one-refresh"),
    "claims twice": (claims_twice, "one-claim"),
    "cleans under a run": (cleans_under_a_run, "clean-after-end"),
    "speaks to the deaf": (speaks_to_the_deaf, "words-are-heard"),
    "lets idle runs go on": (
        _under_budget(max_turns_without_progress=None),
        "idle-runs-end",
    ),
    "raises": (raises, "total"),
    "starts nothing": (starts_nothing, "liveness"),
    "never unblocks": (never_unblocks, "winds-down"),
    "goes on and starts cold": (goes_on_and_starts_cold, "one-run-per-issue"),
    "starts while paused": (starts_while_paused, "pause-survives"),
    "ignores the budget of an issue": (
        _under_budget(max_tokens_per_issue=None, max_turns_per_issue=None),
        "budget-holds",
    ),
    "ignores the budget of the day": (
        _under_budget(max_tokens_per_day=None),
        "budget-holds",
    ),
    "counts a conversation anew": (_resumes(_anew), "tokens-once"),
    "is deaf to comments": (is_deaf_to_comments, "answers-once"),
    "reads no comments": (reads_no_comments, "comments-are-heard"),
    "drops an answer": (_resumes(lambda resume: replace(resume, answer=None)), "answers-arrive"),
    "tells nobody of a block": (_drops(PostComment), "block-is-told"),
    "leaves the last issues": (leaves_the_last_issues, "finished-or-blocked"),
    "gives issues to nobody known": (gives_to_nobody_known, "agent-by-rules"),
    "prefers the fallback": (_under(_prefers_the_fallback), "fallback-has-reason"),
    "starts on a limited agent": (starts_on_a_limited_agent, "no-start-on-limited-agent"),
    "hands a conversation to another agent": (_resumes(_of_another_agent), "conversation-has-its-agent"),
    "forgets a limit": (forgets_a_limit, "limits-are-known-and-end"),
    "drops the timer of a limit": (
        _drops(SetTimer, lambda each, _: each.timer.kind is TimerKind.LIMIT),
        "limits-are-known-and-end",
    ),
    "reviews what it works on": (reviews_what_it_works_on, "ready-is-delivered"),
    "starts closed work": (starts_closed_work, "closed-work-rests"),
    "lifts a block when a run ends": (lifts_a_block_when_a_run_ends, "block-is-lifted-by-a-person"),
    "lifts a stop by a setting": (lifts_a_stop_by_a_setting, "stop-lasts"),
    "forgets which feedback it took": (forgets_which_feedback_it_took, "feedback-is-taken-once"),
    "drops a push": (_drops(PushBranch), "push-is-tried-again"),
    "is no function of its arguments": (remembering(), "replay"),
}
