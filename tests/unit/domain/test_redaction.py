import time

import pytest

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.redaction import Redaction, mask_credentials

SIZE = 64_000


@pytest.mark.parametrize(
    "unit", ["a-", "a.", "key_", "-eyJaaaaaaaa", "https://", "https://a?", "token ", "bearer ", "sk-", "://@"]
)
def test_masking_takes_time_in_proportion_to_the_text_whatever_an_agent_writes(unit: str) -> None:
    started = time.process_time()

    mask_credentials(unit * (SIZE // len(unit)))

    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("MY-SERVICE_TOKEN=abcd1234", "MY-SERVICE_TOKEN=***"),
        ("git+ssh://me@host/x", "git+ssh://***@host/x"),
        ("https://h/a and wss://h/b?c=1", "https://h/a and wss://h/b?***"),
        ("x-eyJhbGciOiJI.eyJzdWIiOiIx", "x-***"),
        ("eyJhbGciOiJI alone is nothing", "eyJhbGciOiJI alone is nothing"),
    ],
)
def test_credentials_are_found_wherever_they_begin(text: str, shown: str) -> None:
    assert mask_credentials(text) == shown


def test_what_steers_a_terminal_is_taken_out_and_lines_stay_lines() -> None:
    text = "one\x1b[31m red\x1b]0;title\x07\r\n\ttwo\x00\x9b\u202e three"

    assert Redaction().text(text) == "one red\n\ttwo  three"


def test_a_known_value_is_found_although_control_characters_hide_it() -> None:
    assert Redaction(["hunter-2222"]).text("hun\x1b[0mter-2222") == "***"


def test_a_failure_is_one_line_in_each_of_its_texts() -> None:
    failure = Failure(
        category=Category.COMMAND,
        blame=Blame.HOST,
        message="first\nsecond\x1b[1m hunter-2222",
        hint="do\nthis",
        where="a\x1b[2Jb.md:3",
    )

    shown = Redaction(["hunter-2222"]).failure(failure)

    assert (shown.message, shown.hint, shown.where) == ("first second ***", "do this", "ab.md:3")
