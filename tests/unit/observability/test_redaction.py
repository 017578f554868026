import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.domain import MASK, Redaction
from symphony.observability.redaction import masked

SECRET = "hunter2hunter2"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(f"see {SECRET} there"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.conformance("O-7")
@given(JSON)
def test_no_secret_survives_however_deep(value: object) -> None:
    assert SECRET not in repr(masked(value, Redaction([SECRET]).text))


def test_what_stands_under_a_telling_key_is_hidden_and_counts_are_not() -> None:
    value = {"api_key": "x", "nested": [{"Authorization": ["y"]}], "total_tokens": 7, "tokens": {"a": 1}}
    assert masked(value, str) == {
        "api_key": MASK,
        "nested": [{"Authorization": MASK}],
        "total_tokens": 7,
        "tokens": {"a": 1},
    }


def test_other_values_become_text() -> None:
    assert masked({"a": {1}, "b": ValueError("no")}, str) == {"a": [1], "b": "no"}
