"""States that the daemon itself moves issues to: `tracker.on_start` and `tracker.on_block`.

A move is asked for and not waited for: it is carried out beside the work, and the next look at the issue
tells whether it was made. So a tracker that is slow or refuses delays nothing, and nothing is decided on a
move that did not happen.

- `on_start` is an active state. An issue is moved there when a run of it starts, if it is not there.
- `on_block` may be any state that is not terminal. In an active one the block is as ever. Outside of them the
  issue *rests*: it stays blocked and is shown, instead of being released for having left the active states.
- A move to `on_block` is never "a change by a person" that unblocks: neither ours, nor one of a person.
- What rests goes on when a person moves it to an active state, or by `answer`, `retry`, `unblock`, or a
  budget that is there again: then it is looked at, moved back from where it rests, to `on_start` or else the
  first of the active states, and goes on when a look says that it is there. Other changes do nothing
  meanwhile: who edits the text of a blocked issue is often not done yet.
"""

from dataclasses import replace

from symphony.domain.issue import Issue, normalise_state
from symphony.scheduler import policy
from symphony.scheduler.commands import MoveIssue, MoveReason
from symphony.scheduler.inputs import SchedulerSettings
from symphony.scheduler.policy import Standing
from symphony.scheduler.work import Work

__all__ = ["at_rest", "back", "on_block", "on_start", "rests", "same_request"]


def on_start(work: Work, issue: Issue) -> None:
    """A run of the issue starts."""
    _move(
        work, issue, work.state.settings.on_start, MoveReason.START, frozenset({normalise_state(issue.state)})
    )


def on_block(work: Work, issue: Issue) -> None:
    """The issue waits for a person; one that somebody took out of the active states stays where it is."""
    settings = work.state.settings
    _move(work, issue, settings.on_block, MoveReason.BLOCK, settings.active_states - settings.terminal_states)


def back(work: Work, issue: Issue) -> None:
    """The issue rests and shall go on."""
    _move(
        work,
        issue,
        work.state.settings.on_return,
        MoveReason.BACK,
        frozenset({normalise_state(issue.state)}),
    )


def _move(work: Work, issue: Issue, state: str | None, reason: MoveReason, only_from: frozenset[str]) -> None:
    if state is not None and normalise_state(state) != normalise_state(issue.state):
        work.emit(MoveIssue(issue=issue, state=state, reason=reason, only_from=only_from))


def at_rest(issue: Issue, settings: SchedulerSettings) -> bool:
    """Whether the issue is in `on_block`, and that is no active state."""
    return _is_on_block(issue, settings) and policy.standing(issue, settings) is Standing.INACTIVE


def rests(settings: SchedulerSettings) -> bool:
    """Whether blocked issues are taken out of the active states."""
    state = normalise_state(settings.on_block or "")
    return state != "" and state not in settings.active_states - settings.terminal_states


def same_request(before: Issue, after: Issue, settings: SchedulerSettings) -> bool:
    """As `policy.same_request`, but that a move to `on_block` is no change."""
    if _is_on_block(after, settings):
        before = replace(before, state=after.state)
    return policy.same_request(before, after)


def _is_on_block(issue: Issue, settings: SchedulerSettings) -> bool:
    wanted = settings.on_block
    return wanted is not None and normalise_state(issue.state) == normalise_state(wanted)
