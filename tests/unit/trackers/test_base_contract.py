"""The contract of trackers (TR1-TR7, DM1-DM9, TR11), run against every adapter of this version.

A `Desk` is how a test puts records on a board of one kind, in that board's own words, and what the board
cannot say is left out: no adapter invents it.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from typing_extensions import override

from symphony.domain import Category, Issue, template_view
from symphony.trackers.base import (
    Comment,
    CreatingCapability,
    IssueToCreate,
    Tracker,
    TrackerError,
    creation_problem,
    skipped_by,
)
from symphony.trackers.comments import UpsertOutcome, upsert_comment
from symphony.trackers.markdown import BoardConfig, MarkdownTracker
from symphony.trackers.memory import MemoryTracker
from symphony.trackers.registry import tracker_kind

pytestmark = pytest.mark.asyncio


class Commenting(Tracker, Protocol):
    """A tracker with comments, which both adapters are."""

    async def list_comments(self, issue_id: str) -> Sequence[Comment]: ...

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str: ...


class Desk(ABC):
    """A board of one kind with a tracker on it."""

    tracker: Commenting
    event: str
    move_tool: str

    @abstractmethod
    def put(self, issue_id: str, **fields: Any) -> None:
        """Write an issue; title and state are there unless `fields` say otherwise (null leaves one out)."""

    @abstractmethod
    def remove(self, issue_id: str) -> None: ...

    @abstractmethod
    def hold_back(self, issue_id: str) -> None:
        """Write an issue that the board's own rules keep from being dispatched."""

    @abstractmethod
    async def comment(self, issue_id: str, body: str) -> None:
        """Write a comment that is not the daemon's."""


class MarkdownDesk(Desk):
    event, move_tool = "board_file_skipped", "board_move"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.tracker = MarkdownTracker(BoardConfig(path=folder))

    @override
    def put(self, issue_id: str, **fields: Any) -> None:
        values = {"title": f"Title {issue_id}", "state": "Todo", **fields}
        body = values.pop("description", None) or ""
        names = {"created_at": "created", "assignee_id": "assignee"}
        front = "".join(
            f"{names.get(key, key)}: {json.dumps(value, ensure_ascii=False)}\n"
            for key, value in values.items()
            if value is not None
        )
        (self.folder / f"{issue_id}.md").write_text(f"---\n{front}---\n{body}", encoding="utf-8")

    @override
    def remove(self, issue_id: str) -> None:
        (self.folder / f"{issue_id}.md").unlink()

    @override
    def hold_back(self, issue_id: str) -> None:
        self.put(issue_id, blocked_by=["NOT-THERE"])

    @override
    async def comment(self, issue_id: str, body: str) -> None:
        (issue,) = await self.tracker.fetch_issues_by_ids([issue_id])
        await self.tracker.execute_agent_tool("board_comment", {"body": body}, issue=issue)


class MemoryDesk(Desk):
    event, move_tool = "memory_record_skipped", "memory_move"

    def __init__(self, folder: Path) -> None:
        del folder
        self.memory = MemoryTracker()
        self.tracker = self.memory

    @override
    def put(self, issue_id: str, **fields: Any) -> None:
        record = {
            "id": issue_id,
            "title": f"Title {issue_id}",
            "state": "Todo",
            "dispatchable": True,
            **fields,
        }
        self.memory.put({key: value for key, value in record.items() if value is not None})

    @override
    def remove(self, issue_id: str) -> None:
        self.memory.remove(issue_id)

    @override
    def hold_back(self, issue_id: str) -> None:
        self.put(issue_id, dispatchable=None)

    @override
    async def comment(self, issue_id: str, body: str) -> None:
        self.memory.comment(issue_id, body)


@pytest.fixture(params=[MarkdownDesk, MemoryDesk], ids=["markdown", "memory"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    made = request.param(tmp_path / "board")
    assert isinstance(made, Desk)
    return made


async def ids(desk: Desk, *states: str) -> list[str]:
    return [issue.id for issue in await desk.tracker.fetch_issues_by_states(states)]


async def one(desk: Desk, issue_id: str = "SYM-1") -> Issue:
    (issue,) = await desk.tracker.fetch_issues_by_ids([issue_id])
    return issue


# --- the two reads (TR1-TR4) ---


@pytest.mark.conformance("T-1")
async def test_a_list_holds_the_states_asked_for_in_order_whatever_their_spelling(desk: Desk) -> None:
    for issue_id, state in (
        ("SYM-1", "Todo"),
        ("SYM-2", "Done"),
        ("SYM-3", "In Progress"),
        ("SYM-4", "Todo"),
    ):
        desk.put(issue_id, state=state)
    assert await ids(desk, " todo ", "IN PROGRESS") == ["SYM-1", "SYM-3", "SYM-4"]
    assert await ids(desk, "Done") == ["SYM-2"]
    assert await ids(desk, "Nowhere") == []


@pytest.mark.conformance("T-1", "T-8")
async def test_a_list_holds_what_may_not_be_dispatched_with_the_reason(desk: Desk) -> None:
    desk.put("SYM-1")
    desk.hold_back("SYM-2")
    free, held = await desk.tracker.fetch_issues_by_states(["Todo"])
    assert (free.dispatchable, free.not_dispatchable_reason) == (True, None)
    assert held.dispatchable is False
    assert held.not_dispatchable_reason


@pytest.mark.conformance("T-2")
async def test_asking_for_nothing_gives_nothing(desk: Desk) -> None:
    desk.put("SYM-1")
    desk.put("SYM-2", title=None)
    with capture_logs() as logs:
        assert list(await desk.tracker.fetch_issues_by_states([])) == []
        assert list(await desk.tracker.fetch_issues_by_states([" "])) == []
        assert list(await desk.tracker.fetch_issues_by_ids([])) == []
    assert logs == [], "the board was not even looked at"


@pytest.mark.conformance("T-5")
@pytest.mark.parametrize("broken", [{"title": None}, {"state": None}, {"title": "  "}, {"state": "  "}])
async def test_a_malformed_record_is_left_out_of_a_list_and_logged(
    desk: Desk, broken: dict[str, Any]
) -> None:
    desk.put("SYM-1")
    desk.put("SYM-2", **broken)
    with capture_logs() as logs:
        assert await ids(desk, "Todo") == ["SYM-1"]
    assert [line["event"] for line in logs] == [desk.event]
    (failure,) = skipped_by(desk.tracker)
    assert "SYM-2" in (failure.where or failure.message)
    assert failure.hint
    desk.remove("SYM-2")
    await ids(desk, "Todo")
    assert skipped_by(desk.tracker) == ()


@pytest.mark.conformance("T-5")
async def test_a_malformed_record_fails_a_refresh_and_is_named(desk: Desk) -> None:
    desk.put("SYM-1")
    desk.put("SYM-2", state=None)
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids(["SYM-1", "SYM-2"])
    assert caught.value.failure.category is Category.TRACKER_RESPONSE
    assert caught.value.culprits == {"SYM-2"}
    assert [issue.id for issue in await desk.tracker.fetch_issues_by_ids(["SYM-1"])] == ["SYM-1"]


@pytest.mark.conformance("T-6")
@pytest.mark.parametrize("kind", [list, tuple, set])
async def test_a_refresh_gives_each_id_once_and_omits_what_is_gone(
    desk: Desk, kind: type[Collection[str]]
) -> None:
    desk.put("SYM-1", description="text", labels=["a"])
    desk.put("SYM-2")
    desk.remove("SYM-2")
    asked = kind(["SYM-1", "SYM-1", "SYM-2", "SYM-9"])  # type: ignore[call-arg]  # every one of them takes a list
    (found,) = await desk.tracker.fetch_issues_by_ids(asked)
    assert (found.id, found.description, found.labels) == ("SYM-1", "text", ("a",))


@pytest.mark.conformance("T-6")
async def test_a_refresh_and_a_list_show_the_same_snapshot(desk: Desk) -> None:
    desk.put("SYM-1", priority=2, labels=["a"], description="text", created_at="2026-01-02T03:04:05Z")
    assert list(await desk.tracker.fetch_issues_by_states(["Todo"])) == [await one(desk)]


# --- the model (DM1-DM9) ---


@pytest.mark.conformance("T-4")
async def test_what_is_absent_is_null_or_empty(desk: Desk) -> None:
    desk.put("SYM-1")
    issue = await one(desk)
    assert (issue.description, issue.priority, issue.branch_name, issue.url, issue.assignee_id) == (None,) * 5
    assert (issue.native_ref, issue.created_at, issue.updated_at) == (None,) * 3
    assert (issue.labels, issue.blocked_by) == ((), ())


@pytest.mark.conformance("T-4")
@pytest.mark.parametrize("odd", [True, 7, -1, 2.5, "soon", ["x"], {"a": 1}, [None], "", "\u0000"])
async def test_optional_data_that_cannot_be_used_is_null_or_empty(desk: Desk, odd: Any) -> None:
    desk.put(
        "SYM-1", priority=odd, labels=odd, created_at=odd, assignee_id=[odd], url=[odd], native_ref=[odd]
    )
    issue = await one(desk)
    assert issue.title == "Title SYM-1"
    assert issue.priority in {None, 7, -1}, "other numbers share the last bucket (DM9)"
    assert issue.created_at is None
    assert issue.native_ref is None
    assert all(label == label.strip().lower() and label for label in issue.labels)


LABELS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8), max_size=6
)


@pytest.mark.conformance("T-3")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(labels=LABELS)
async def test_labels_are_trimmed_lower_cased_and_unique(desk: Desk, labels: list[str]) -> None:
    desk.put("SYM-1", labels=[f" {label} " for label in labels])
    found = (await one(desk)).labels
    assert len(set(found)) == len(found)
    assert set(found) == {label.strip().lower() for label in labels if label.strip()}


@pytest.mark.conformance("T-4")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T05:04:05+02:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("yesterday", None),
        ("2026-13-40T00:00:00Z", None),
        ("2026-01-02", None),
        ("2026-01-02T03:04:05", None),
    ],
)
async def test_times_are_rfc_3339_or_null(desk: Desk, written: str, expected: datetime | None) -> None:
    desk.put("SYM-1", created_at=written)
    assert (await one(desk)).created_at == expected


@pytest.mark.conformance("T-7")
async def test_an_issue_can_be_shown_to_template_and_api_as_json(desk: Desk) -> None:
    desk.put("SYM-1", native_ref={"number": 7, "deep": {"a": [1, None]}}, labels=["a"], blocked_by=["SYM-2"])
    issue = await one(desk)
    view = json.loads(json.dumps(template_view(issue)))
    assert view["native_ref"] in (None, {"number": 7, "deep": {"a": [1, None]}})
    assert view["blocked_by"] == [{"id": "SYM-2", "identifier": "SYM-2", "state": None}]


async def test_the_state_keeps_its_spelling(desk: Desk) -> None:
    desk.put("SYM-1", state=" todo ")
    assert (await one(desk)).state == "todo"


# --- tools and secrets (TR9) ---


async def test_no_variable_of_the_environment_is_a_secret_here(desk: Desk) -> None:
    assert desk.tracker.secret_environment_names() == frozenset()


async def test_tools_are_described_by_closed_schemas(desk: Desk) -> None:
    specs = {spec.name: spec for spec in desk.tracker.agent_tool_specs()}
    assert tuple(specs) in (tracker_kind("markdown").tools, tracker_kind("memory").tools)
    assert desk.move_tool in specs
    assert all(spec.input_schema["type"] == "object" for spec in specs.values())
    assert all(spec.input_schema["additionalProperties"] is False for spec in specs.values())


async def test_a_session_moves_its_own_issue(desk: Desk) -> None:
    desk.put("SYM-1")
    done = await desk.tracker.execute_agent_tool(desk.move_tool, {"state": "Done"}, issue=await one(desk))
    assert done.success
    assert (await one(desk)).state == "Done"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"state": ""}, {"state": 7}, {"state": "Done", "issue": "SYM-2"}, {"state": "x" * 5_000}, [1]],
)
async def test_nonsense_is_answered_and_changes_nothing(desk: Desk, arguments: Any) -> None:
    desk.put("SYM-1")
    before = await one(desk)
    for tool in (desk.move_tool, "no_such_tool"):
        result = await desk.tracker.execute_agent_tool(tool, arguments, issue=before)
        assert not result.success
        assert json.loads(result.text)["error"]["message"]
    assert await one(desk) == before


async def test_a_tool_answers_when_the_issue_is_gone(desk: Desk) -> None:
    desk.put("SYM-1")
    issue = await one(desk)
    desk.remove("SYM-1")
    result = await desk.tracker.execute_agent_tool(desk.move_tool, {"state": "Done"}, issue=issue)
    assert not result.success


async def test_a_change_is_a_hint(desk: Desk) -> None:
    desk.put("SYM-1")
    with anyio.fail_after(60):
        async for _ in desk.tracker.changes():
            break


# --- comments (TR11) ---


@pytest.mark.conformance("T-12")
async def test_the_daemons_comment_is_made_once_and_edited_in_place(desk: Desk) -> None:
    desk.put("SYM-1")
    await desk.comment("SYM-1", "a person wrote this")

    async def upsert(fingerprint: str) -> UpsertOutcome:
        done = await upsert_comment(
            desk.tracker,
            "SYM-1",
            kind="skills",
            scope="s",
            fingerprint=fingerprint,
            body=f"about {fingerprint}",
        )
        return done.outcome

    assert [await upsert(of) for of in ("a", "a", "b", "b")] == [
        UpsertOutcome.CREATED,
        UpsertOutcome.UNCHANGED,
        UpsertOutcome.EDITED,
        UpsertOutcome.UNCHANGED,
    ]
    listed = await desk.tracker.list_comments("SYM-1")
    assert sorted((comment.mine, comment.body.splitlines()[-1]) for comment in listed) == [
        (False, "a person wrote this"),
        (True, "about b"),
    ]


@pytest.mark.conformance("T-12")
async def test_a_repeated_create_gives_one_comment(desk: Desk) -> None:
    desk.put("SYM-1")
    first = await desk.tracker.put_comment("SYM-1", "one", key="k", comment_id=None)
    again = await desk.tracker.put_comment("SYM-1", "two", key="k", comment_id=None)
    other = await desk.tracker.put_comment("SYM-1", "three", key="l", comment_id=None)
    assert first == again != other
    assert {comment.id: comment.body for comment in await desk.tracker.list_comments("SYM-1")} == {
        first: "two",
        other: "three",
    }


@pytest.mark.conformance("T-12")
async def test_only_our_own_comments_are_edited(desk: Desk) -> None:
    desk.put("SYM-1")
    await desk.comment("SYM-1", "a person wrote this")
    (theirs,) = await desk.tracker.list_comments("SYM-1")
    assert not theirs.mine
    with pytest.raises(TrackerError):
        await desk.tracker.put_comment("SYM-1", "mine now", key="k", comment_id=theirs.id)
    assert await desk.tracker.list_comments("SYM-1") == (theirs,)


@pytest.mark.conformance("T-12")
async def test_comments_need_an_issue(desk: Desk) -> None:
    with pytest.raises(TrackerError):
        await desk.tracker.list_comments("SYM-9")
    with pytest.raises(TrackerError):
        await desk.tracker.put_comment("SYM-9", "x", key="k", comment_id=None)


async def test_a_repeated_create_gives_one_issue(desk: Desk) -> None:
    tracker, since = desk.tracker, datetime(2026, 1, 1, tzinfo=UTC)
    assert isinstance(tracker, CreatingCapability)
    assert creation_problem(tracker, "board") is None
    new = IssueToCreate(title="Look: for updates", body="First\n\nthen", state="Todo", labels=("Chore",))
    made = await tracker.create_issue(new, key="k", since=since)
    again = await tracker.create_issue(new, key="k", since=since)
    other = await tracker.create_issue(new, key="l", since=since)
    assert again == made
    assert other.id != made.id
    assert (made.title, made.description, made.state) == ("Look: for updates", "First\n\nthen", "Todo")
    assert made.labels == ("chore",)
    assert await ids(desk, "Todo") == [made.id, other.id]
