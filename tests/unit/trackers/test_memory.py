"""What the memory tracker does beyond the contract: given from code or from the file, and kept apart."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from harness.scheduling import make_issue
from symphony.config import TrackerSettings
from symphony.domain import Blocker, Issue
from symphony.frontmatter import Profile, load
from symphony.trackers.base import AccountCapability, MovingCapability, TrackerConfigError, TrackerError
from symphony.trackers.memory import DEFAULT_ACTIVE, DEFAULT_TERMINAL, MemoryTracker, issue_of, read_issues
from symphony.trackers.registry import create_tracker, tracker_kind, with_default_states

PAGE = (Path(__file__).parents[3] / "docs/trackers/memory.md").read_text(encoding="utf-8")
HERE = Path("/project")
RECORD = {"id": "M-1", "title": "One", "state": "Todo", "dispatchable": True}

pytestmark = pytest.mark.conformance("C-9")


def test_the_states_are_those_of_linear_unless_configured() -> None:
    filled = with_default_states(TrackerSettings(kind="memory"), base_dir=HERE, environment={})
    assert filled.active_states == DEFAULT_ACTIVE == ("Todo", "In Progress")
    assert (
        filled.terminal_states == DEFAULT_TERMINAL == ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")
    )
    own = TrackerSettings(kind="memory", active_states=("Now",), terminal_states=())
    assert with_default_states(own, base_dir=HERE, environment={}) == own


@pytest.mark.asyncio
async def test_a_board_of_the_file_is_empty_unless_it_names_issues() -> None:
    empty = create_tracker(TrackerSettings(kind="memory"), base_dir=HERE, environment={})
    assert await empty.fetch_issues_by_states(DEFAULT_ACTIVE) == ()
    settings = TrackerSettings(kind="memory", provider={"issues": [RECORD]})
    (issue,) = await create_tracker(settings, base_dir=HERE, environment={}).fetch_issues_by_states(["Todo"])
    assert (issue.id, issue.identifier, issue.title) == ("M-1", "M-1", "One")
    assert tracker_kind("memory").provider_keys == ("issues",)


@pytest.mark.parametrize(
    ("issues", "problems"),
    [
        ("x", ["tracker.provider.issues must be a list of maps"]),
        ({"a": 1}, ["tracker.provider.issues must be a list of maps"]),
        (["x", RECORD], ["tracker.provider.issues[0] must be a map"]),
        (
            [{}, {**RECORD, "title": [7]}, RECORD, {**RECORD, "state": " "}],
            [
                "tracker.provider.issues[0] has no id",
                "tracker.provider.issues[1] needs title to be a text",
                "tracker.provider.issues[3] needs state to be a text",
            ],
        ),
        ([RECORD, RECORD], ["tracker.provider.issues[1] has the id 'M-1' of another one"]),
    ],
)
def test_issues_of_the_file_that_do_not_fit_are_told_at_once(issues: Any, problems: list[str]) -> None:
    with pytest.raises(TrackerConfigError) as caught:
        read_issues({"issues": issues})
    assert [problem.failure.message for problem in caught.value.problems] == problems
    assert all(problem.location[:3] == ("tracker", "provider", "issues") for problem in caught.value.problems)
    assert all(problem.failure.hint for problem in caught.value.problems)


@pytest.mark.conformance("T-7")
@pytest.mark.asyncio
async def test_issues_of_code_come_back_as_they_are() -> None:
    issue = make_issue("1", labels=("a",), blocked_by=(Blocker(id="2", state="Todo"),), native_ref={"n": 1})
    assert list(await MemoryTracker([issue]).fetch_issues_by_ids(["1"])) == [issue]


@pytest.mark.asyncio
async def test_nobody_else_holds_what_the_board_holds() -> None:
    reference: dict[str, Any] = {"n": [1]}
    tracker = MemoryTracker([{**RECORD, "native_ref": reference}])
    reference["n"].append(2)
    reference["more"] = True
    (first,) = await tracker.fetch_issues_by_ids(["M-1"])
    assert isinstance(first.native_ref, dict)
    first.native_ref["n"] = "changed"
    (second,) = await tracker.fetch_issues_by_ids(["M-1"])
    assert isinstance(second.native_ref, dict)
    assert "changed" not in second.native_ref.values()
    assert "more" not in second.native_ref


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["M-2", " ", 7, {}, {"x": 1}], (Blocker(id="M-2", identifier="M-2"),)),
        ([{"id": "M-2", "state": "Todo"}], (Blocker(id="M-2", state="Todo"),)),
        ("M-2", ()),
    ],
)
def test_blockers_are_what_the_record_says_and_nothing_is_invented(
    written: Any, expected: tuple[Blocker, ...]
) -> None:
    assert issue_of({**RECORD, "blocked_by": written}).blocked_by == expected


@pytest.mark.parametrize(
    ("written", "expected"), [(2, 2), (2.0, 2), (0, 0), (2.5, None), (float("nan"), None), (1e300, None)]
)
def test_a_priority_is_a_whole_number(written: Any, expected: int | None) -> None:
    assert issue_of({**RECORD, "priority": written}).priority == expected


def test_a_native_reference_that_is_not_json_is_null() -> None:
    for odd in ({"a": {1}}, {"a": float("nan")}, [1], "x"):
        assert issue_of({**RECORD, "native_ref": odd}).native_ref is None


def test_what_does_not_say_that_it_may_be_dispatched_may_not() -> None:
    for odd in (None, "true", 1, False):
        issue = issue_of({**RECORD, "dispatchable": odd})
        assert issue.dispatchable is False
        assert issue.not_dispatchable_reason == "the record does not say that it is dispatchable"
    told = issue_of({**RECORD, "dispatchable": False, "not_dispatchable_reason": "on holiday"})
    assert told.not_dispatchable_reason == "on holiday"


@pytest.mark.asyncio
async def test_who_listens_is_told_of_every_change_from_code() -> None:
    tracker = MemoryTracker()
    changes = tracker.changes()
    steps = (
        lambda: tracker.put(RECORD),
        lambda: tracker.move("M-1", "Done"),
        lambda: tracker.remove("M-1"),
    )
    for step in steps:
        step()
        with anyio.fail_after(60):
            await anext(changes)
    await changes.aclose()  # type: ignore[attr-defined]  # it is a generator


def test_moving_what_is_not_there_is_refused() -> None:
    tracker = MemoryTracker([RECORD])
    assert tracker.move("M-1", "Done") == "Todo"
    with pytest.raises(TrackerError, match="no issue"):
        tracker.move("M-2", "Done")
    tracker.remove("M-2")


@pytest.mark.asyncio
async def test_an_issue_that_comes_back_has_no_old_comments() -> None:
    tracker = MemoryTracker([RECORD])
    await tracker.put_comment("M-1", "old", key="k", comment_id=None)
    tracker.remove("M-1")
    tracker.put(RECORD)
    assert await tracker.list_comments("M-1") == ()
    fresh: Issue = (await tracker.fetch_issues_by_ids(["M-1"]))[0]
    await tracker.put_comment(fresh.id, "new", key="k", comment_id=None)
    assert [comment.body for comment in await tracker.list_comments("M-1")] == ["new"]


@pytest.mark.asyncio
async def test_a_record_in_memory_goes_to_any_state() -> None:
    tracker = MemoryTracker([RECORD])
    for capability in (MovingCapability, AccountCapability):
        assert isinstance(tracker, capability)
    assert await tracker.move_issue("M-1", "Anywhere") == "Anywhere"
    assert (await tracker.account_info()).states == ()
    with pytest.raises(TrackerError):
        await tracker.move_issue("M-2", "Todo")


# --- the page ---


@pytest.mark.asyncio
async def test_the_board_shown_works() -> None:
    tracker = load(PAGE.split("```yaml\n")[1].split("```")[0].encode(), profile=Profile.CORE).value["tracker"]
    made = create_tracker(TrackerSettings.model_validate(tracker), base_dir=Path("/x"), environment={})
    (issue,) = await made.fetch_issues_by_states(DEFAULT_ACTIVE)
    assert issue.dispatchable


def test_the_code_shown_works() -> None:
    names: dict[str, object] = {}
    exec(PAGE.split("```python\n")[1].split("```")[0], names)  # noqa: S102 - the page's own example
    assert isinstance(names["board"], MemoryTracker)


def test_keys_states_and_tools_are_named() -> None:
    for name in (*tracker_kind("memory").provider_keys, *DEFAULT_ACTIVE, *DEFAULT_TERMINAL):
        assert f"`{name}`" in PAGE
    for spec in MemoryTracker().agent_tool_specs():
        assert f"`{spec.name}`" in PAGE
