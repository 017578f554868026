import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from blockbuster import blockbuster_ctx
from structlog.testing import capture_logs

from symphony.domain import Category, Issue
from symphony.trackers.base import (
    AccountCapability,
    AccountInfo,
    CommentCapability,
    MovingCapability,
    Tracker,
    TrackerError,
)
from symphony.trackers.comments import UpsertOutcome, upsert_comment
from symphony.trackers.markdown import Board, BoardConfig, MarkdownTracker

pytestmark = pytest.mark.asyncio

Write = Callable[..., Path]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def call(tracker: MarkdownTracker, issue: Issue, name: str, **arguments: Any) -> dict[str, Any]:
    result = await tracker.execute_agent_tool(name, arguments, issue=issue)
    answer: dict[str, Any] = json.loads(result.text)
    assert result.success is ("error" not in answer)
    return answer


async def one(tracker: MarkdownTracker, issue_id: str = "SYM-1") -> Issue:
    (issue,) = await tracker.fetch_issues_by_ids([issue_id])
    return issue


@pytest.mark.conformance("T-7")
async def test_it_is_a_tracker_with_comments_and_without_secrets(tracker: MarkdownTracker) -> None:
    contract: Tracker = tracker
    for capability in (CommentCapability, MovingCapability, AccountCapability):
        assert isinstance(contract, capability)
    assert contract.secret_environment_names() == frozenset()


@pytest.mark.conformance("T-1")
async def test_a_list_holds_the_states_asked_for_whatever_their_case(
    tracker: MarkdownTracker, write: Write
) -> None:
    write("SYM-1", state="todo")
    write("SYM-2", state="Done")
    write("SYM-3", blocked_by="[SYM-1]")
    found = await tracker.fetch_issues_by_states([" TODO", ""])
    assert [(issue.id, issue.dispatchable) for issue in found] == [("SYM-1", True), ("SYM-3", False)]


@pytest.mark.conformance("T-2")
async def test_nothing_asked_for_is_nothing_read(tmp_path: Path) -> None:
    nowhere = MarkdownTracker(BoardConfig(path=tmp_path / "none"))
    assert await nowhere.fetch_issues_by_states([]) == ()
    assert await nowhere.fetch_issues_by_states([" "]) == ()
    assert await nowhere.fetch_issues_by_ids([]) == ()
    with pytest.raises(TrackerError):
        await nowhere.fetch_issues_by_states(["Todo"])


@pytest.mark.conformance("T-5")
async def test_a_malformed_file_is_skipped_in_a_list_and_logged_once_per_problem(
    tracker: MarkdownTracker, write: Write, folder: Path
) -> None:
    write("SYM-1")
    path = write("SYM-2", state="")
    with capture_logs() as logs:
        for _ in range(3):
            assert [issue.id for issue in await tracker.fetch_issues_by_states(["Todo"])] == ["SYM-1"]
    assert [(log["event"], log["where"]) for log in logs] == [("board_file_skipped", f"{folder}/SYM-2.md:3")]
    path.write_text("nothing", encoding="utf-8")
    with capture_logs() as logs:
        await tracker.fetch_issues_by_states(["Todo"])
    assert [log["where"] for log in logs] == [f"{folder}/SYM-2.md:1"]


@pytest.mark.conformance("T-6")
async def test_a_refresh_omits_what_is_gone_and_gives_each_id_once(
    tracker: MarkdownTracker, write: Write
) -> None:
    write("SYM-1")
    found = await tracker.fetch_issues_by_ids(["SYM-1", "SYM-1", "SYM-2", "sym-1", "../SYM-1", "a\0b"])
    assert [issue.id for issue in found] == ["SYM-1"]


@pytest.mark.conformance("T-5")
async def test_a_refresh_fails_for_a_malformed_file_and_names_it(
    tracker: MarkdownTracker, write: Write, folder: Path
) -> None:
    write("SYM-1")
    write("SYM-2", state="")
    write("SYM-3", title="")
    with pytest.raises(TrackerError) as caught:
        await tracker.fetch_issues_by_ids(["SYM-1", "SYM-2", "SYM-3"])
    assert caught.value.culprits == {"SYM-2", "SYM-3"}
    assert caught.value.failure.where == f"{folder}/SYM-2.md:3"
    assert caught.value.failure.category is Category.TRACKER_RESPONSE


@pytest.mark.conformance("T-5")
async def test_a_refresh_does_not_mind_malformed_files_it_was_not_asked_for(
    tracker: MarkdownTracker, write: Write
) -> None:
    write("SYM-1", blocked_by="[SYM-2]")
    write("SYM-2", state="")
    assert (await one(tracker)).not_dispatchable_reason == "blocked by SYM-2 (unreadable)"


async def test_a_file_system_that_hangs_fails_the_call(
    config: BoardConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    board = Board(config)
    monkeypatch.setattr(board, "all", lambda: release.wait(20))
    tracker = MarkdownTracker(config, board=board, read_limit_s=0.05)
    try:
        with pytest.raises(TrackerError) as caught:
            await tracker.fetch_issues_by_states(["Todo"])
    finally:
        release.set()
    assert caught.value.failure.category is Category.TRACKER_REQUEST
    assert caught.value.failure.retryable


async def test_comments_tell_whose_they_are(tracker: MarkdownTracker, write: Write) -> None:
    write("SYM-1")
    issue = await one(tracker)
    await call(tracker, issue, "board_comment", body="<!-- symphony:skills v1 -->")
    ours = await tracker.put_comment("SYM-1", "note", key="k", comment_id=None)
    listed = await tracker.list_comments("SYM-1")
    assert [(comment.id == ours, comment.body) for comment in listed if comment.mine] == [(True, "note")]
    assert len(listed) == 2


async def test_comments_of_an_issue_that_is_not_there_are_refused(tracker: MarkdownTracker) -> None:
    with pytest.raises(TrackerError, match="no issue"):
        await tracker.list_comments("SYM-9")
    with pytest.raises(TrackerError, match="no issue"):
        await tracker.put_comment("../SYM-9", "x", key="k", comment_id=None)


async def test_a_malformed_comment_is_logged_and_skipped(
    tracker: MarkdownTracker, write: Write, folder: Path
) -> None:
    write("SYM-1")
    place = folder / "SYM-1" / "comments"
    place.mkdir(parents=True)
    (place / "x.md").write_text("no front matter", encoding="utf-8")
    with capture_logs() as logs:
        assert await tracker.list_comments("SYM-1") == ()
        assert await tracker.list_comments("SYM-1") == ()
    assert [log["where"] for log in logs] == [f"{place}/x.md:1"]


@pytest.mark.conformance("T-12")
async def test_the_upsert_works_on_the_board_and_a_pasted_marker_changes_nothing(
    tracker: MarkdownTracker, write: Write
) -> None:
    write("SYM-1")

    async def upsert(fingerprint: str) -> UpsertOutcome:
        done = await upsert_comment(
            tracker, "SYM-1", kind="skills", scope="s", fingerprint=fingerprint, body=f"about {fingerprint}"
        )
        return done.outcome

    assert await upsert("a") is UpsertOutcome.CREATED
    pasted = (await tracker.list_comments("SYM-1"))[0].body
    await call(tracker, await one(tracker), "board_comment", body=pasted)
    assert await upsert("a") is UpsertOutcome.UNCHANGED
    assert await upsert("b") is UpsertOutcome.EDITED
    listed = await tracker.list_comments("SYM-1")
    assert sorted((comment.mine, comment.body.splitlines()[-1]) for comment in listed) == [
        (False, "about a"),
        (True, "about b"),
    ]


@pytest.mark.conformance("T-12")
async def test_two_daemons_at_once_make_one_comment(config: BoardConfig, write: Write) -> None:
    write("SYM-1")
    trackers = [MarkdownTracker(config) for _ in range(8)]

    async def upsert(tracker: MarkdownTracker) -> None:
        await upsert_comment(tracker, "SYM-1", kind="skills", scope="s", fingerprint="f", body="b")

    async with anyio.create_task_group() as group:
        for tracker in trackers:
            group.start_soon(upsert, tracker)
    assert len(await trackers[0].list_comments("SYM-1")) == 1


async def test_the_event_loop_is_never_blocked(tracker: MarkdownTracker, write: Write) -> None:
    write("SYM-1", body="text")
    with blockbuster_ctx():
        issue = await one(tracker)
        await tracker.fetch_issues_by_states(["Todo"])
        await upsert_comment(tracker, "SYM-1", kind="skills", scope="s", fingerprint="f", body="b")
        for name, arguments in (
            ("board_show", {}),
            ("board_comment", {"body": "x"}),
            ("board_move", {"state": "Done"}),
        ):
            await call(tracker, issue, name, **arguments)
        with anyio.fail_after(60):
            async for _ in tracker.changes():
                break


async def test_a_session_sees_its_own_issue(tracker: MarkdownTracker, write: Write) -> None:
    write("SYM-1", body="\nDo it.\n", blocked_by="[SYM-2]")
    write("SYM-2", state="Done")
    issue = await one(tracker)
    await call(tracker, issue, "board_comment", body="x" * 5_000)
    shown = await call(tracker, issue, "board_show")
    assert shown["description"] == "Do it."
    assert shown["blocked_by"] == [{"id": "SYM-2", "state": "Done"}]
    assert shown["comments"][0]["author"] == "agent"
    assert len(shown["comments"][0]["body"]) < 4_100
    assert shown["comments_left_out"] == 0


def fifty_comments(place: Path) -> None:
    place.mkdir(parents=True)
    for index in range(50):
        (place / f"{index:03}.md").write_text(f"---\nauthor: a\n---\n{index}", encoding="utf-8")


async def test_what_is_shown_is_bounded(tracker: MarkdownTracker, write: Write, folder: Path) -> None:
    write("SYM-1", body="x" * 1_000_000)
    fifty_comments(folder / "SYM-1" / "comments")
    shown = await call(tracker, await one(tracker), "board_show")
    assert len(shown["description"]) < 33_000
    assert [comment["body"] for comment in shown["comments"]] == [str(index) for index in range(30, 50)]
    assert shown["comments_left_out"] == 30
    assert shown["comments"][0]["created"] is None


async def test_a_session_moves_its_own_issue_to_configured_states_only(
    tracker: MarkdownTracker, write: Write
) -> None:
    write("SYM-1")
    issue = await one(tracker)
    answer = await call(tracker, issue, "board_move", state="human review")
    assert answer == {"issue": "SYM-1", "before": "Todo", "state": "Human Review"}
    refused = await call(tracker, issue, "board_move", state="Shipped")
    assert "Human Review, Done, Cancelled" in refused["error"]["hint"]
    assert (await one(tracker)).state == "Human Review"


@pytest.mark.conformance("A-13")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("board_move", {}),
        ("board_move", {"state": 3}),
        ("board_move", {"state": "Done", "issue": "SYM-2"}),
        ("board_move", {"state": "x" * 201}),
        ("board_comment", {"body": ""}),
        ("board_comment", {"body": "x" * 32_001}),
        ("board_comment", {"body": "\ud800"}),
        ("board_comment", ["body"]),
        ("board_show", {"id": "SYM-2"}),
        ("board_delete", {}),
    ],
)
async def test_nonsense_is_answered_and_changes_nothing(
    tracker: MarkdownTracker, write: Write, folder: Path, name: str, arguments: Mapping[str, Any]
) -> None:
    path = write("SYM-1")
    before = path.read_bytes()
    result = await tracker.execute_agent_tool(name, arguments, issue=await one(tracker))
    assert not result.success
    assert json.loads(result.text)["error"]["message"]
    assert path.read_bytes() == before
    assert names(folder) == ["SYM-1.md"]


@pytest.mark.conformance("A-13")
async def test_a_tool_answers_even_when_the_issue_is_gone_or_the_code_is_wrong(
    tracker: MarkdownTracker, write: Write
) -> None:
    path = write("SYM-1")
    issue = await one(tracker)
    path.unlink()
    for name, arguments in (
        ("board_show", {}),
        ("board_comment", {"body": "x"}),
        ("board_move", {"state": "Done"}),
    ):
        assert "no issue" in (await call(tracker, issue, name, **arguments))["error"]["message"]
    no_issue: Any = None
    answer = await call(tracker, no_issue, "board_show")
    assert answer["error"]["message"] == "the tool failed: AttributeError"


async def test_the_tools_are_described_with_the_legal_states(tracker: MarkdownTracker) -> None:
    specs = {spec.name: spec for spec in tracker.agent_tool_specs()}
    assert set(specs) == {"board_show", "board_comment", "board_move"}
    states = specs["board_move"].input_schema["properties"]["state"]["enum"]
    assert states == ["Backlog", "Todo", "In Progress", "Human Review", "Done", "Cancelled"]
    assert all(spec.input_schema["additionalProperties"] is False for spec in specs.values())


# --- moves, and what there is ---


async def test_a_file_is_moved_and_read_back(tracker: MarkdownTracker, write: Write) -> None:
    path = write("SYM-1", body="Its text.\n")
    assert await tracker.move_issue("SYM-1", "human review") == "Human Review"
    assert path.read_text(encoding="utf-8").endswith("state: Human Review\n---\nIts text.\n")


@pytest.mark.parametrize(("issue_id", "state"), [("SYM-1", "Nowhere"), ("SYM-9", "Todo")])
async def test_what_is_not_there_is_refused(
    tracker: MarkdownTracker, write: Write, issue_id: str, state: str
) -> None:
    write("SYM-1")
    with pytest.raises(TrackerError) as caught:
        await tracker.move_issue(issue_id, state)
    assert caught.value.failure.hint


async def test_a_board_tells_its_states(
    tracker: MarkdownTracker, config: BoardConfig, tmp_path: Path
) -> None:
    assert await tracker.account_info() == AccountInfo(
        login=None, scope=str(config.path), states=config.states
    )
    with pytest.raises(TrackerError):
        await MarkdownTracker(BoardConfig(path=tmp_path / "none")).account_info()
