import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.agents.events import redact
from symphony.domain import one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET https://user:pass@host:8/p failed", "GET https://***@host:8/p failed"),
        ("at https://token@github.com/a/b.git", "at https://***@github.com/a/b.git"),
        ("url https://h/v1/x?key=1&b=2 (500)", "url https://h/v1/x?*** (500)"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ('{"api_key": "abcd1234", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("LINEAR_API_KEY=lin_api_x1234567", "LINEAR_API_KEY=***"),
        ("password: hunter22", "password: ***"),
        ("key sk-proj-abcdefgh12 is wrong", "key *** is wrong"),
        ("pushed with ghp_0123456789abcdefXYZ", "pushed with ***"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.sig here", "jwt *** here"),
        ("https://h/plain/path is fine", "https://h/plain/path is fine"),
        ("12 tokens: fine", "12 tokens: fine"),
        ("src/tokenizer.py:3: error", "src/tokenizer.py:3: error"),
    ],
)
def test_credentials_are_masked_and_the_rest_is_kept(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_escape_sequences_and_line_breaks_are_flattened() -> None:
    assert one_line("\x1b[31mred\x1b[0m\r\n\tnext\u2028\x00line") == "red next line"


def test_a_long_text_is_cut_with_an_ellipsis() -> None:
    assert one_line("x" * 50, 10) == "x" * 9 + "…"


def test_the_cut_comes_after_the_masking() -> None:
    assert "sk-" not in redact("x" * 990 + " sk-abcdefghijklmnop")


@given(st.text(max_size=3_000), st.integers(min_value=1, max_value=1_000))
def test_for_any_text_the_result_is_one_bounded_line(text: str, limit: int) -> None:
    shown = redact(text, limit)
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1
