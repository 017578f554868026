"""How texts of the command line are worded for a page."""

import pytest

from symphony.api.formatting import button_words


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("symphony resume", "“Resume”"),
        ("run: symphony resume", "press “Resume”"),
        ("run `symphony retry SYM-1` or `symphony unblock SYM-1`", "press “Retry” or “Unblock”"),
        ("have it tried again: symphony unblock 'a b'\"'\"'c'", "have it tried again: “Unblock”"),
        (
            'answer it by a comment, or: symphony answer SYM-7 "…"',
            "answer it by a comment, or: “Send answer”",
        ),
        ("symphony refresh asks at once", "“Poll now” asks at once"),
        ("`symphony explain SYM-1` shows why", "the page of the issue shows why"),
        ("symphony outbox list names them", "symphony outbox list names them"),
        ("symphony unblocked", "symphony unblocked"),
        (None, ""),
    ],
)
def test_a_hint_on_a_page_names_the_button(hint: str | None, shown: str) -> None:
    assert button_words(hint) == shown
