import errno
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import pytest
import structlog
from typing_extensions import override

from symphony.domain import MASK, Redaction
from symphony.observability.logs import Redactor, configure

SECRET = "correct-horse-battery"


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def masked(**fields: Any) -> dict[str, Any]:
    return dict(Redactor(Redaction([SECRET]))(None, "info", fields))


def logged(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def raised(message: str) -> ValueError:
    """An error that has a stack."""
    try:
        int(message)
    except ValueError as error:
        return ValueError(message).with_traceback(error.__traceback__)
    raise AssertionError(message)


def to_json(**options: Any) -> io.StringIO:
    out = io.StringIO()
    configure(stream=out, as_json=True, redaction=Redaction([SECRET]), **options)
    return out


# --- masking ---


@pytest.mark.conformance("O-7")
def test_a_known_value_is_masked_wherever_it_stands() -> None:
    found = masked(
        event=f"got {SECRET}",
        deep={"list": [f"x{SECRET}", {"tuple": (SECRET, 1)}], "set": {SECRET}},
        error=ValueError(SECRET),
        raw=SECRET.encode(),
    )
    assert SECRET not in repr(found)
    assert found["deep"]["list"][1]["tuple"] == [MASK, 1]


def test_the_shape_of_a_credential_is_masked_though_nobody_named_it() -> None:
    found = masked(reason="GET https://user:pw@host/x", header="Authorization: Bearer abcdef012345")
    assert "pw@" not in found["reason"]
    assert "abcdef012345" not in found["header"]


@pytest.mark.parametrize(
    "key", ["api_key", "apikey", "APIKEY", "Authorization", "token", "x_token", "password", "set-cookie"]
)
@pytest.mark.parametrize("value", ["abc", b"abc", ["abc"], {"abc": "abc"}, ("abc",), {"abc"}])
def test_what_stands_under_a_telling_key_is_masked_whole(key: str, value: object) -> None:
    assert masked(**{key: value}) == {key: MASK}
    assert masked(inner={key: value}) == {"inner": {key: MASK}}


@pytest.mark.parametrize("key", ["total_tokens", "input_tokens", "tokens"])
def test_counts_of_tokens_are_no_secrets(key: str) -> None:
    assert masked(**{key: 123}) == {key: 123}
    assert masked(**{key: {"input": 1}}) == {key: {"input": 1}}


@pytest.mark.parametrize("value", [None, True, 7, 1.5])
def test_plain_values_stay_as_they_are(value: object) -> None:
    assert masked(value=value, token=value) == {"value": value, "token": value}


def test_an_exception_is_masked_and_its_stack_is_kept() -> None:
    out = to_json()
    structlog.get_logger("x").error("crashed", exc_info=raised(SECRET))
    (line,) = logged(out)
    assert "Traceback" in line["exception"]
    assert SECRET not in out.getvalue()


# --- form ---


@pytest.mark.conformance("O-2")
def test_json_lines_carry_event_level_time_and_context() -> None:
    out = to_json()
    with structlog.contextvars.bound_contextvars(issue_id="1", session_id="n/a"):
        structlog.get_logger("x").info("run_started", issue_identifier="SYM-1", path="ä")
    (line,) = logged(out)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "run_started",
        "level": "info",
        "issue_id": "1",
        "session_id": "n/a",
        "issue_identifier": "SYM-1",
        "path": "ä",
    }


def test_a_value_json_does_not_know_is_written_as_text() -> None:
    out = to_json()
    structlog.get_logger("x").info("x", kind=Exception("odd"), flag={1: None})
    assert logged(out)[0]["kind"] == "odd"


def test_the_level_is_the_least_that_is_shown() -> None:
    out = to_json(level="warning")
    structlog.get_logger("x").info("quiet")
    structlog.get_logger("x").warning("loud")
    assert [line["event"] for line in logged(out)] == ["loud"]


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "as_json", "is_json"),
    [
        (io.StringIO, None, True),
        (Terminal, None, False),
        (io.StringIO, False, False),
        (Terminal, True, True),
    ],
)
def test_people_at_a_terminal_get_lines_and_machines_get_json(
    stream: type[io.StringIO],
    as_json: bool | None,  # noqa: FBT001 - a parameter of the table above
    is_json: bool,  # noqa: FBT001 - as above
) -> None:
    out = stream()
    configure(stream=out, as_json=as_json)
    structlog.get_logger("x").info("hello", reason="two words")
    assert out.getvalue().startswith("{") is is_json
    assert "hello" in out.getvalue()
    assert ("\x1b[" in out.getvalue()) is (stream is Terminal and not is_json), "colour for terminals only"


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[2J\x1b]0;title\x07", "a\rb", "\u202eabc\u2028"])
def test_a_foreign_text_cannot_forge_a_console_line_or_drive_the_terminal(text: str) -> None:
    out = io.StringIO()
    configure(stream=out, as_json=False)
    structlog.get_logger("x").info("hello", reason=text, deep=[text])
    assert out.getvalue().count("\n") == 1
    assert not {"\x1b", "\r", "\x07", "\u202e", "\u2028"} & set(out.getvalue())


def test_a_stack_on_the_console_keeps_its_lines() -> None:
    out = io.StringIO()
    configure(stream=out, as_json=False)
    structlog.get_logger("x").error("crashed", exc_info=raised("broken \x1b[2J"))
    assert out.getvalue().count("\n") > 2
    assert "\nValueError: broken" in out.getvalue()
    assert "\x1b" not in out.getvalue()


# --- a sink that fails ---


class Broken(io.StringIO):
    """Refuses every other line."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.calls = 0

    @override
    def write(self, text: str) -> int:
        self.calls += 1
        if self.calls % 2:
            raise OSError(self.number, "refused")
        return super().write(text)


@pytest.mark.conformance("O-3")
@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_a_sink_that_refuses_a_line_loses_that_line_only(number: int) -> None:
    out = Broken(number)
    configure(stream=out, as_json=True)
    for name in ("one", "two", "three", "four"):
        structlog.get_logger("x").info(name)
    assert [line["event"] for line in logged(out)] == ["two", "four"]


@pytest.mark.conformance("O-3")
def test_a_closed_sink_stops_nothing() -> None:
    out = io.StringIO()
    configure(stream=out, as_json=True)
    out.close()
    structlog.get_logger("x").error("nobody hears it")


def test_a_text_that_cannot_be_encoded_is_written_all_the_same() -> None:
    raw = io.BytesIO()
    out: TextIO = io.TextIOWrapper(raw, encoding="utf-8")
    configure(stream=out, as_json=True)
    structlog.get_logger("x").info("x", path="caf\udce9")
    assert b"caf" in raw.getvalue()


# --- what others log ---


def test_the_chatter_of_a_library_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    script = (
        "import logging, sys\n"
        "from symphony.observability.logs import configure\n"
        "import watchfiles\n"
        "configure(as_json=True)\n"
        "logging.getLogger('watchfiles.main').info('3 changes detected')\n"
        "logging.getLogger('watchfiles.main').debug('timeout')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True)
    assert done.returncode == 0
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("watchfiles").level == logging.NOTSET


SESSION = "01a1fd50-e1b8-70cf-8cda-13696435757e-01a1fd50-e1cc-7224-8f06-714e51f5cd11"


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure(stream=stream, as_json=False)
    yield stream
    structlog.reset_defaults()


def log(**fields: object) -> None:
    structlog.get_logger().info("turn_ended", **fields)


def test_the_issue_comes_first_and_the_ids_last(out: io.StringIO) -> None:
    log(session_id="n/a", run_id="r-1", issue_id="17", status="completed", issue_identifier="SYM-1")
    keys = [word.split("=")[0] for word in out.getvalue().split() if "=" in word]
    assert keys == ["issue_identifier", "status", "run_id", "issue_id", "session_id"]


def test_a_line_about_a_turn_fits_on_a_wide_terminal(out: io.StringIO) -> None:
    log(session_id=SESSION, run_id="81b4d404-15", issue_id="SYM-1", issue_identifier="SYM-1", pid=9231)
    (line,) = out.getvalue().splitlines()
    assert len(line) < 130
    assert "…714e51f5cd11" in line
    assert "issue_id=" not in line, "it says the same as the identifier"


def test_a_line_without_an_issue_is_as_it_is(out: io.StringIO) -> None:
    structlog.get_logger().warning("watch_failed", what="board", reason="no")
    assert "what=board reason=no" in out.getvalue()


def test_json_keeps_every_id_whole() -> None:
    stream = io.StringIO()
    configure(stream=stream, as_json=True)
    log(session_id=SESSION, issue_id="SYM-1", issue_identifier="SYM-1")
    assert SESSION in stream.getvalue()
    assert '"issue_id": "SYM-1"' in stream.getvalue()


def test_attempts_are_told_as_people_count_them(out: io.StringIO) -> None:
    log(issue_identifier="SYM-1", attempt=2, attempt_number=3, attempt_limit=5)
    assert "attempt=3 of 5" in " ".join(out.getvalue().replace("'", "").split())
    assert "attempt_" not in out.getvalue()
