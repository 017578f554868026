"""Drafts of reviews: whose they are, and what becomes of those of browsers that cannot come back."""

from symphony.daemon.reviews import Draft, Reviews


def nothing(*_: object) -> None: ...


def reviews(recovered: dict[str, str]) -> Reviews:
    """Only its drafts are asked for."""

    def record(name: str, value: str | None) -> None:
        recovered.pop(name, None)
        if value is not None:
            recovered[name] = value

    return Reviews(
        jobs=nothing,  # type: ignore[arg-type]  # not asked for, as what follows
        context=nothing,  # type: ignore[arg-type]
        state=lambda: None,
        recovered=dict(recovered),
        record=record,
        on_merged=nothing,
        approve_at_forge=nothing,
        look_at_forge=nothing,  # type: ignore[arg-type]
        pull_is_open=lambda _: False,
        hindrance=lambda _: None,
        on_written=nothing,
        post=nothing,
        wall_ms=lambda: len(str(recovered)),  # grows with what is written
    )


def test_a_draft_goes_on_after_a_restart_in_a_browser_that_is_signed_in_anew() -> None:
    kept: dict[str, str] = {}
    before = reviews(kept)
    before.change("1", "s1-ann", Draft(message="Almost"))
    before.change("1", "s1-bob", Draft())
    before.change("1", "api:cleo", Draft(message="By the command"))
    assert before.shown("1", "s1-dora", "abc").message == "", "ann may go on herself"

    after = reviews(kept)
    assert after.shown("1", "api:dora", "abc").message == ""
    assert after.shown("1", "s2-dora", "abc").message == "Almost"
    assert [draft.message for draft in after.others("1", "s2-dora")] == ["By the command"]
    assert after.shown("1", "s2-eve", "abc").message == "", "it is dora's now"
    assert reviews(kept).draft("1", "s2-dora").message == "Almost"
