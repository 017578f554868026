"""Codes and hints as people read them."""

import pytest

from harness.pages import past_run
from symphony.api.formatting import button_words, run_words


@pytest.mark.parametrize(
    ("outcome", "reason", "words"),
    [
        (None, None, "Running"),
        ("succeeded", None, "Ended: the agent said that it is done"),
        ("succeeded", "finished: a budget is used up", "Ended: a budget is used up"),
        ("no_progress", None, "Ended without a change: the agent said that it is done"),
        ("timed_out", "turn_timeout: no sign of life", "Timed out: no sign of life"),
        ("canceled", "stopped: a person stopped it", "Stopped: a person stopped it"),
        ("input_required", None, "Waits for a person"),
        ("of_tomorrow", None, "of tomorrow"),
    ],
)
def test_a_run_ends_in_a_sentence(outcome: str | None, reason: str | None, words: str) -> None:
    assert run_words(past_run(1, outcome, reason=reason, started_h=1)) == words


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
