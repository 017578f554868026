from typing import Any

import pytest

from symphony.scheduler import FinishReason, Notify, StopReason, log_text


@pytest.mark.parametrize(
    ("event", "fields", "told"),
    [
        (
            "run_started",
            {"attempt_number": 1, "attempt_limit": 3, "agent": "codex", "agent_reason": "the default"},
            "attempt 1 of 3, by codex: the default",
        ),
        (
            "run_retrying",
            {"attempt_number": 2, "attempt_limit": 3, "reason": "turn_timeout"},
            "attempt 2 of 3 after: turn_timeout",
        ),
        ("run_stopped", {"reason": "one\ntwo", "session_id": "s"}, "one two"),
        ("run_ended", {"reason": "inactive"}, "the issue has left the active states"),
        ("poll_done", {"found": 2, "failed": None, "running": 0}, "found 2, running 0"),
    ],
)
def test_the_text_of_a_log_line_is_its_reason_or_its_fields(
    event: str, fields: dict[str, Any], told: str
) -> None:
    assert log_text(Notify(level="info", event=event, fields=fields)) == told


@pytest.mark.parametrize("reason", [*FinishReason, *StopReason])
def test_every_reason_has_words_for_people(reason: FinishReason | StopReason) -> None:
    assert " " in reason.words
