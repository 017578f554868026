"""Codes as people read them."""

import pytest

from harness.pages import past_run
from symphony.api.formatting import run_words


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
