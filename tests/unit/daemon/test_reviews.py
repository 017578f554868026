"""Drafts of reviews: whose they are, and what becomes of those of browsers that cannot come back."""

from harness.binding import StoryCore
from symphony.daemon.reviews import Draft, Reviews
from symphony.scheduler import LineComment


def nothing(*_: object) -> None: ...


def reviews(recovered: dict[str, str]) -> Reviews:
    """Only its drafts are asked for."""

    def record(name: str, value: str | None) -> None:
        recovered.pop(name, None)
        if value is not None:
            recovered[name] = value

    return Reviews(
        StoryCore(wall_ms=lambda: len(str(recovered))),  # grows with what is written
        nothing,  # type: ignore[arg-type]  # not asked for, as what follows
        nothing,  # type: ignore[arg-type]
        recovered=dict(recovered),
        record=record,
        on_merged=nothing,
    )


REMARK = LineComment(file="a.py", line=3, old=False, quote="x", text="Why?", head="abc")


def test_a_draft_of_a_former_sign_in_is_offered_until_a_person_says_that_it_is_theirs() -> None:
    kept: dict[str, str] = {}
    before = reviews(kept)
    before.change("1", "s1-ann", Draft(message="Almost", comments=(REMARK,)))
    before.change("1", "s1-bob", Draft())
    before.change("1", "api:cleo", Draft(message="By the command"))
    assert before.left("1", "s1-dora") is None, "ann may go on herself"
    assert len(before.others("1", "s1-dora")) == 2

    after = reviews(kept)
    assert after.left("1", "api:dora") is None
    assert after.shown("1", "s2-dora", "abc").message == "", "it may be another person's"
    left = after.left("1", "s2-dora")
    assert left is not None
    assert (left.message, left.comments) == ("Almost", (REMARK,))
    assert [draft.message for draft in after.others("1", "s2-dora")] == ["By the command"]
    after.change("1", "s2-ann", Draft(message="It is mine"))
    after.take("1", "s2-ann")
    after.take("1", "s2-dora")
    assert after.draft("1", "s2-dora").message == "", "it is ann's now"
    assert reviews(kept).draft("1", "s2-ann").text == "Almost\n\nIt is mine\n\na.py:3\nWhy?"
