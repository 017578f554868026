import io
from collections.abc import Iterator

import pytest
import structlog

from symphony.observability.logs import configure

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
