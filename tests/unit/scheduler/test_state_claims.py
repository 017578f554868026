import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.scheduling import Story, make_failure, make_issue, make_settings
from symphony.scheduler import (
    TRANSITIONS,
    Blocked,
    Claim,
    ClaimEntry,
    Notify,
    Retry,
    Running,
    State,
    Step,
    StopReason,
    Trigger,
    change_claim,
    claim_of,
    initial_state,
)
from symphony.scheduler.state import MAX_REMEMBERED

_ISSUE = make_issue()
_RUN = Running(
    run_id="e-1", issue=_ISSUE, attempt=None, started_ms=0, max_turns=20, attempts_without_progress=0
)
_ENTRIES: dict[Claim, ClaimEntry | None] = {
    Claim.UNCLAIMED: None,
    Claim.RUNNING: _RUN,
    Claim.STOPPING: replace(_RUN, stopping=StopReason.STALLED),
    Claim.RETRYING: Retry(issue=_ISSUE, attempt=1, due_ms=0, error=None, attempts_without_progress=0),
    Claim.BLOCKED: Blocked(issue=_ISSUE, failure=make_failure(), blocked_ms=0),
}
_PAIRS = [(claim, trigger) for claim in Claim for trigger in Trigger]


def _state_with(claim: Claim) -> State:
    state = initial_state(make_settings(), epoch="e")
    match _ENTRIES[claim]:
        case Running() as run:
            return state.changed(running={"1": run})
        case Retry() as retry:
            return state.changed(retrying={"1": retry})
        case Blocked() as blocked:
            return state.changed(blocked={"1": blocked})
        case None:
            return state


def test_every_claim_is_recognised() -> None:
    assert [claim_of(_state_with(claim), "1") for claim in Claim] == list(Claim)


@pytest.mark.parametrize(("claim", "trigger"), [pair for pair in _PAIRS if pair in TRANSITIONS])
def test_a_pair_of_the_table_leads_where_the_table_says(claim: Claim, trigger: Trigger) -> None:
    target = TRANSITIONS[claim, trigger]
    moved = change_claim(_state_with(claim), "1", trigger, _ENTRIES[target])
    assert moved is not None
    assert claim_of(moved, "1") is target
    assert len(moved.running) + len(moved.retrying) + len(moved.blocked) == (target is not Claim.UNCLAIMED)


@pytest.mark.parametrize(("claim", "trigger"), [pair for pair in _PAIRS if pair not in TRANSITIONS])
def test_a_pair_outside_the_table_changes_nothing(claim: Claim, trigger: Trigger) -> None:
    for entry in _ENTRIES.values():
        assert change_claim(_state_with(claim), "1", trigger, entry) is None


@pytest.mark.parametrize(("claim", "trigger"), list(TRANSITIONS))
def test_an_entry_that_does_not_fit_the_target_changes_nothing(claim: Claim, trigger: Trigger) -> None:
    target = TRANSITIONS[claim, trigger]
    for other, entry in _ENTRIES.items():
        if other is not target:
            assert change_claim(_state_with(claim), "1", trigger, entry) is None


def test_other_claims_are_left_alone() -> None:
    neighbour = replace(_RUN, run_id="e-2", issue=make_issue("2"))
    state = _state_with(Claim.RUNNING).changed(running={"1": _RUN, "2": neighbour})
    moved = change_claim(state, "1", Trigger.RELEASE)
    assert moved is not None
    assert moved.running == {"2": neighbour}


def test_only_the_end_of_a_run_frees_it_once_it_is_stopping() -> None:
    leaving = {trigger for claim, trigger in TRANSITIONS if claim is Claim.STOPPING}
    assert leaving == {Trigger.RETRY, Trigger.BLOCK, Trigger.RELEASE}
    assert (Claim.STOPPING, Trigger.START) not in TRANSITIONS


@pytest.mark.conformance("S-16")
def test_a_run_starts_only_without_another_run() -> None:
    assert {claim for claim, trigger in TRANSITIONS if trigger is Trigger.START} == {
        Claim.UNCLAIMED,
        Claim.RETRYING,
    }


def test_a_refused_change_is_logged_and_changes_nothing() -> None:
    step = Step(_state_with(Claim.BLOCKED), 0)
    before = step.state
    assert not step.change_claim(_ISSUE, Trigger.START, _RUN)
    assert step.state is before
    assert [command.event for command in step.commands if isinstance(command, Notify)] == [
        "claim_transition_refused"
    ]


_PAGE = Path(__file__).parents[3] / "docs" / "ARCHITECTURE.md"
_BEGIN, _END = "<!-- claims:begin -->", "<!-- claims:end -->"


def draw() -> str:
    """The table of claims as a fenced state diagram."""
    arrows = [
        f"    {before.value} --> {after.value}: {trigger.value}"
        for (before, trigger), after in TRANSITIONS.items()
    ]
    return "\n".join(
        ["```mermaid", "stateDiagram-v2", f"    [*] --> {Claim.UNCLAIMED.value}", *arrows, "```"]
    )


def test_the_docs_show_the_claims_as_they_are() -> None:
    page = _PAGE.read_text(encoding="utf-8")
    assert page.count(_BEGIN) == page.count(_END) == 1
    shown = page.split(_BEGIN)[1].split(_END)[0]
    assert shown.strip() == draw()


if __name__ == "__main__":
    sys.stdout.write(draw() + "\n")


def test_of_many_remembered_issues_those_that_left_the_board_are_forgotten() -> None:
    claimed = {
        "running": {"run": _RUN},
        "retrying": {"retry": _ENTRIES[Claim.RETRYING]},
        "blocked": {"block": _ENTRIES[Claim.BLOCKED]},
        "candidates": {"candidate": _ISSUE},
    }
    on_board = frozenset({"run", "retry", "block", "candidate"})
    step = Step(initial_state(make_settings(), epoch="e"), 0)
    step.update(**claimed)
    known = on_board | {f"gone-{number}" for number in range(MAX_REMEMBERED - len(on_board) - 1)}
    full = step.remember(known, "new")
    assert full == known | {"new"}, "so many are remembered"
    assert step.remember(full, "new") == full
    assert step.remember(full, "newest") == on_board | {"newest"}


def test_nothing_is_remembered_of_issues_that_ended_but_that_they_had_a_session() -> None:
    story = Story(max_concurrent_agents=3, max_tokens_per_issue=1_000, poll_interval_ms=60_000).begin()
    for number in range(30):
        issue_id = str(number)
        story.board[issue_id] = make_issue(issue_id)
        story.look()
        story.streams(issue_id, session_id=f"s-{number}", turn_count=1, total_tokens=10 * (number % 2))
        story.turn_ends(issue_id)
        story.streams(issue_id, turn_count=2)
        story.put(issue_id, state="Done")
        story.turn_ends(issue_id).ends(issue_id).advance(2_000)
        del story.board[issue_id]
    story.look()
    sizes = {
        name: len(value)
        for name in story.state.__struct_fields__
        if isinstance(value := getattr(story.state, name), Mapping | frozenset) and value
    }
    assert sizes == {"known_issues": 30, "completed": 30, "timers": 1}
