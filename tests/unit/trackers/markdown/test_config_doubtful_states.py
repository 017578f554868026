"""States that a board does not have: named by one setting, used by nothing, while issues stand elsewhere."""

from pathlib import Path

import pytest

from symphony.domain import Issue
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import Board, BoardConfig, IssueDraft, MarkdownTracker, doubtful_states


def issue(number: int, state: str) -> Issue:
    return Issue(id=f"SYM-{number}", identifier=f"SYM-{number}", title="t", state=state, dispatchable=True)


def doubted(
    active: list[str], states: list[str], others: list[str] | None = None, listed: list[str] | None = None
) -> list[str]:
    config = BoardConfig.of({"states": listed}, base_dir=Path("/b"), active=active)
    named = [*active, *config.terminal, *(others or []), *(listed or [])]
    issues = [issue(number, state) for number, state in enumerate(states)]
    return [one.state for one in doubtful_states(config, named, issues)]


@pytest.mark.parametrize(
    ("active", "states"),
    [
        (["Tood"], ["Todo", "Todo"]),
        (["Tood", "In Progress"], ["Todo", "In Progress"]),
        (["Redy"], ["Ready", "Done", "Backlog"]),
        (["Todo", "In Progess"], ["Todo", "In Progress"]),
        (["todo"], ["Tood"]),
    ],
)
def test_a_state_that_nothing_uses_is_doubted_while_issues_stand_elsewhere(
    active: list[str], states: list[str]
) -> None:
    assert len(doubted(active, states)) == 1


@pytest.mark.parametrize(
    ("active", "states"),
    [
        (["Todo", "In Progress"], []),
        (["Todo", "In Progress"], ["Todo", "Backlog", "Human Review", "Done", "Cancelled"]),
        (["Todo", "In Progress"], ["Backlog"]),
        (["Ready", "Doing"], ["Ready", "Backlog"]),
        (["Ready"], ["ready", "On Hold"]),
        (["Todo", "In Progress", "Rework"], ["Todo", "Human Review"]),
        (["Tood"], []),
    ],
)
def test_a_usual_board_is_not_doubted(active: list[str], states: list[str]) -> None:
    assert doubted(active, states) == []


def test_a_state_of_two_settings_is_meant() -> None:
    assert doubted(["Ready", "Doing"], ["Ready", "Later"]) == ["Doing"]
    assert doubted(["Ready", "Doing"], ["Ready", "Later"], others=["doing"]) == []
    listed = ["Ready", "Doing", "Later", "Done"]
    assert doubted(["Ready", "Doing"], ["Ready", "Later"], listed=listed) == []


def test_the_nearest_state_is_named() -> None:
    config = BoardConfig.of({}, base_dir=Path("/b"), active=["Tood"])
    (found,) = doubtful_states(config, ["Tood", "Done"], [issue(1, "Todo"), issue(2, "Elsewhere")])
    assert (found.state, found.nearest) == ("Tood", "Todo")
    assert "Elsewhere" in found.message


def test_a_new_issue_takes_a_state_that_settings_or_board_know(board: Board, write: object) -> None:
    for state in ("Todo", "backlog", "HUMAN REVIEW"):
        board.create(IssueDraft(title="t", state=board.known_state(state)))
    with pytest.raises(TrackerError) as refused:
        board.known_state("On Hold")
    assert refused.value.failure.hint is not None
    with pytest.raises(TrackerError):
        board.create(IssueDraft(title="t", state="On Hold"))
    write("SYM-77", state="On Hold")  # type: ignore[operator]
    assert board.create(IssueDraft(title="t", state=board.known_state("on hold"))).state == "On Hold"


@pytest.mark.asyncio
async def test_issues_in_states_that_no_setting_names_are_counted(
    tracker: MarkdownTracker, write: object
) -> None:
    for number, state in enumerate(("Todo", "Backlog", "Human Review", "Done")):
        write(f"SYM-{number}", state=state)  # type: ignore[operator]
    await tracker.fetch_issues_by_states(["Todo"])
    assert tracker.skipped() == ()
    write("SYM-8", state="Tood")  # type: ignore[operator]
    write("SYM-9", state="Elsewhere")  # type: ignore[operator]
    assert len(await tracker.fetch_issues_by_states(["Todo"])) == 1
    assert [failure.message.split()[0] for failure in tracker.skipped()] == ["SYM-8", "SYM-9"]
