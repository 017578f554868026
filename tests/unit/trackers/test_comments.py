from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.trackers.base import Comment
from symphony.trackers.comments import MAX_BODY_CHARS, Upserted, UpsertOutcome, revise_comment, upsert_comment

pytestmark = pytest.mark.asyncio


@dataclass
class Thread:
    """A tracker in memory; `racing` comments appear right after the first create."""

    comments: dict[str, Comment] = field(default_factory=dict)
    writes: int = 0
    racing: list[str] = field(default_factory=list)

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        assert issue_id == "SYM-1"
        return tuple(self.comments.values())

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        assert issue_id == "SYM-1"
        assert key
        self.writes += 1
        name = comment_id or f"c{len(self.comments)}"
        self.comments[name] = Comment(id=name, body=body, mine=True)
        while self.racing:
            self.comments = {self.racing.pop(): Comment(id="rival", body=body, mine=True), **self.comments}
        return name


async def upsert(
    thread: Thread, body: str = "text", fingerprint: str = "f", kind: str = "skills", scope: str = "board"
) -> Upserted:
    return await upsert_comment(thread, "SYM-1", kind=kind, scope=scope, fingerprint=fingerprint, body=body)


@pytest.mark.conformance("T-12")
async def test_the_first_time_a_comment_is_created() -> None:
    thread = Thread()
    assert await upsert(thread) == Upserted(comment_id="c0", outcome=UpsertOutcome.CREATED)
    marker, text = thread.comments["c0"].body.split("\n", 1)
    assert marker.startswith("<!-- symphony:skills v1 key=")
    assert text == "text"


@pytest.mark.conformance("T-12")
async def test_the_same_fingerprint_writes_nothing() -> None:
    thread = Thread()
    await upsert(thread)
    assert (await upsert(thread, body="else")).outcome is UpsertOutcome.UNCHANGED
    assert thread.writes == 1


@pytest.mark.conformance("T-12")
async def test_another_fingerprint_edits_the_same_comment() -> None:
    thread = Thread()
    await upsert(thread)
    assert await upsert(thread, "new", "g") == Upserted(comment_id="c0", outcome=UpsertOutcome.EDITED)
    assert thread.comments["c0"].body.endswith("\nnew")
    assert len(thread.comments) == 1


async def test_a_pasted_marker_is_not_ours() -> None:
    thread = Thread()
    await upsert(thread)
    pasted = thread.comments.pop("c0").body
    thread.comments["p"] = Comment(id="p", body=pasted, mine=False)
    assert await upsert(thread) == Upserted(comment_id="c1", outcome=UpsertOutcome.CREATED)
    assert thread.comments["p"].body == pasted


async def test_our_marker_must_stand_in_the_first_line() -> None:
    thread = Thread()
    await upsert(thread)
    quoted = "> quoted\n" + thread.comments.pop("c0").body
    thread.comments["q"] = Comment(id="q", body=quoted, mine=True)
    assert (await upsert(thread)).outcome is UpsertOutcome.CREATED


async def test_kind_and_scope_keep_comments_apart() -> None:
    thread = Thread()
    names = {
        (await upsert(thread)).comment_id,
        (await upsert(thread, kind="budget")).comment_id,
        (await upsert(thread, scope="other")).comment_id,
    }
    assert len(names) == 3


async def test_the_marker_is_found_behind_any_number_of_comments() -> None:
    thread = Thread({f"x{index}": Comment(id=f"x{index}", body="hm", mine=True) for index in range(500)})
    await upsert(thread)
    assert (await upsert(thread)).outcome is UpsertOutcome.UNCHANGED


@pytest.mark.conformance("T-12")
async def test_two_of_ours_become_one_and_the_oldest_stays() -> None:
    thread = Thread(racing=["rival"])
    assert await upsert(thread) == Upserted(comment_id="rival", outcome=UpsertOutcome.CREATED)
    assert "posted twice" in thread.comments["c0"].body
    assert (await upsert(thread)).outcome is UpsertOutcome.UNCHANGED
    assert await upsert(thread, "new", "g") == Upserted(comment_id="rival", outcome=UpsertOutcome.EDITED)


async def test_nothing_in_the_arguments_can_close_the_marker() -> None:
    thread = Thread()
    await upsert(thread, fingerprint="--> <b>", scope="-->")
    assert thread.comments["c0"].body.count("-->") == 1
    with pytest.raises(ValueError, match="kind"):
        await upsert(thread, kind="x -->")


async def test_an_overlong_body_is_cut_at_a_line_and_an_open_fence_is_closed() -> None:
    thread = Thread()
    await upsert(thread, "intro\n````\n" + "```\n- file\n" * 10_000)
    lines = thread.comments["c0"].body.splitlines()
    assert lines[-2:] == ["````", "(cut: the comment was too long)"]
    await upsert(thread, "```\nclosed\n```\n" + "text\n" * 10_000, "g")
    lines = thread.comments["c0"].body.splitlines()
    assert lines[-2:] == ["text", "(cut: the comment was too long)"]


@pytest.mark.parametrize("more", [0, 1])
async def test_a_body_that_just_fits_is_not_cut(more: int) -> None:
    short, thread = Thread(), Thread()
    await upsert(short, "")
    text = "x" * (MAX_BODY_CHARS - len(short.comments["c0"].body) + more)
    await upsert(thread, text)
    assert thread.comments["c0"].body.endswith(text) == (not more)


@given(st.text(max_size=100), st.integers(min_value=0, max_value=1_000))
async def test_no_body_is_longer_than_the_limit(text: str, times: int) -> None:
    thread = Thread()
    await upsert(thread, text * times)
    body = thread.comments["c0"].body
    assert len(body) <= MAX_BODY_CHARS
    assert body.split("\n", 1)[1] == text * times or len(text) * times > MAX_BODY_CHARS - 200


async def revise(thread: Thread, body: str = "text", fingerprint: str = "f") -> Upserted | None:
    return await revise_comment(
        thread, "SYM-1", kind="skills", scope="board", fingerprint=fingerprint, body=body
    )


async def test_a_revision_edits_what_stands_and_creates_nothing() -> None:
    thread = Thread()
    assert await revise(thread) is None
    assert thread.comments == {}
    await upsert(thread)
    assert await revise(thread, body="mended", fingerprint="g") == Upserted(
        comment_id="c0", outcome=UpsertOutcome.EDITED
    )
    assert thread.comments["c0"].body.endswith("\nmended")


async def test_a_revision_leaves_a_marker_that_somebody_else_pasted_alone() -> None:
    thread = Thread()
    await upsert(thread)
    thread.comments["c0"] = Comment(id="c0", body=thread.comments["c0"].body, mine=False)
    assert await revise(thread, body="mended", fingerprint="g") is None
    assert thread.writes == 1
