from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.journalling import claim, full_claim, run, with_claim
from symphony.journal.model import ClaimRecord, CodecError, RunRecord, column, decode, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def test_every_field_survives() -> None:
    assert decode(encode(full_claim()), ClaimRecord) == full_claim()
    assert decode(encode(run(1)), RunRecord) == run(1)


@given(st.text(), JSON)
def test_every_text_survives_and_every_native_reference(text: str, held: Any) -> None:
    given_claim = claim(1)
    issue = replace(
        given_claim.claim.issue, title=text, description=text + "\udcff", native_ref={"held": held}
    )
    record = with_claim(given_claim, issue=issue)
    assert decode(encode(record), ClaimRecord) == record


def test_defaults_are_not_written_and_unknown_names_not_read() -> None:
    text = encode(claim(1))
    assert "failure" not in text
    assert decode(text.replace('"kind"', '"later":{"x":1},"kind"'), ClaimRecord) == claim(1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"issue": 1}',
        "[" * 100_000,
        None,
        7,
        b"{}",
        encode(claim(1)).replace("running", "x"),
    ],
    ids=range(10),
)
def test_a_text_of_another_type_is_refused(text: object) -> None:
    with pytest.raises(CodecError):
        decode(text, ClaimRecord)


@given(st.data())
def test_a_damaged_text_is_refused_or_read(data: st.DataObject) -> None:
    text = encode(full_claim())
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:place] + data.draw(st.characters()) + text[place + data.draw(st.integers(0, 5)) :]
    with suppress(CodecError):
        assert isinstance(decode(damaged, ClaimRecord), ClaimRecord)


def test_values_that_json_cannot_express_are_refused() -> None:
    nested: list[Any] = []
    nested.append(nested)
    for odd in (object(), nested, b"bytes"):
        issue = replace(claim(1).claim.issue, native_ref={"odd": odd})
        with pytest.raises(CodecError, match="ClaimRecord"):
            encode(with_claim(claim(1), issue=issue))
    with pytest.raises(CodecError, match="too many"):
        encode(with_claim(claim(1), error="x" * (8 * 1024 * 1024)))


def test_a_column_holds_only_values_that_sqlite_can_store() -> None:
    assert [column(value) for value in (True, 3, 1.5, None, "ü", "\ud800")] == [
        1,
        3,
        1.5,
        None,
        "ü",
        "\\ud800",
    ]
    for odd in (2**63, -(2**63) - 1, b"x", ()):
        with pytest.raises(CodecError):
            column(odd)
