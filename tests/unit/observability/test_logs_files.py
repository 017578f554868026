"""The log file: one line per record, rotated, and no trouble when it cannot be written (LG3, LG4)."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from symphony.domain import Redaction
from symphony.observability.logs import BACKUPS, MAX_BYTES, RotatedLogFile, configure

SECRET = "correct-horse-battery"


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def shown() -> io.StringIO:
    return io.StringIO()


def logger(
    file: RotatedLogFile, shown: io.StringIO, *, as_json: bool = False
) -> structlog.stdlib.BoundLogger:
    configure(stream=shown, as_json=as_json, redaction=Redaction([SECRET]), file=file)
    made: structlog.stdlib.BoundLogger = structlog.get_logger("test")
    return made


def lines(file: RotatedLogFile) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.conformance("L-4")
def test_the_file_stands_below_the_root_and_nothing_is_made_before_the_first_line(
    tmp_path: Path, shown: io.StringIO
) -> None:
    file = RotatedLogFile(tmp_path / "deep" / "root")
    log = logger(file, shown)
    assert not (tmp_path / "deep").exists()
    log.info("hello", n=1)
    assert file.path == tmp_path / "deep" / "root" / "log" / "symphony.log"
    (line,) = lines(file)
    assert (line["event"], line["level"], line["n"]) == ("hello", "info", 1)
    assert str(line["timestamp"]).endswith("Z")
    assert "hello" in shown.getvalue()
    file.close()


def test_a_record_is_one_line_whatever_it_holds(tmp_path: Path, shown: io.StringIO) -> None:
    file = RotatedLogFile(tmp_path)
    log = logger(file, shown)
    try:
        raise ValueError(f"a\nb {SECRET}")  # noqa: TRY301 - the stack of it is wanted
    except ValueError:
        log.exception("broken", text=f"one\ntwo %s %d {SECRET}", odd="\ud800", wide="ä☃")
    (line,) = lines(file)
    assert "Traceback" in str(line["exception"])
    assert line["text"] == "one\ntwo %s %d ***"
    assert line["wide"] == "ä☃"
    assert SECRET not in file.path.read_text(encoding="utf-8") + shown.getvalue()
    assert shown.getvalue().count("\n") > 1, "people get the stack with its lines"
    file.close()


@pytest.mark.conformance("L-4")
def test_the_file_is_rotated_and_five_old_ones_are_kept(tmp_path: Path, shown: io.StringIO) -> None:
    assert (MAX_BYTES, BACKUPS) == (10 * 1024 * 1024, 5)
    file = RotatedLogFile(tmp_path, max_bytes=300)
    log = logger(file, shown)
    for number in range(40):
        log.info("line", number=number, filler="x" * 80)
    file.close()
    names = sorted(path.name for path in file.path.parent.iterdir())
    assert names == ["symphony.log", *(f"symphony.log.{number}" for number in range(1, 6))]
    assert all(path.stat().st_size <= 300 for path in file.path.parent.iterdir())
    assert lines(file)[-1]["number"] == 39


@pytest.mark.conformance("O-3")
def test_a_file_that_cannot_be_written_is_told_once_to_what_remains(
    tmp_path: Path, shown: io.StringIO
) -> None:
    (tmp_path / "log").write_text("a file stands in the way")
    file = RotatedLogFile(tmp_path)
    log = logger(file, shown, as_json=True)
    for number in range(3):
        log.info("line", number=number)
    told = [json.loads(line) for line in shown.getvalue().splitlines()]
    assert [line["event"] for line in told] == ["line", "log_sink_failed", "line", "line"]
    assert told[1]["path"] == str(file.path)
    assert told[1]["reason"]
    file.close()


@pytest.mark.conformance("O-3")
def test_a_file_that_cannot_be_opened_is_told_as_well(
    tmp_path: Path, shown: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log" / "symphony.log").mkdir(parents=True)
    file = RotatedLogFile(tmp_path)
    logger(file, shown, as_json=True).info("line")
    told = [json.loads(line) for line in shown.getvalue().splitlines()]
    assert [line["event"] for line in told] == ["line", "log_sink_failed"]
    assert capfd.readouterr().err == "", "the standard library prints a stack here unless it is told not to"
    file.close()


@pytest.mark.conformance("O-3")
def test_a_file_that_can_be_written_again_is_used_again(tmp_path: Path, shown: io.StringIO) -> None:
    blocker = tmp_path / "log"
    blocker.write_text("in the way")
    file = RotatedLogFile(tmp_path)
    log = logger(file, shown, as_json=True)
    log.info("lost")
    blocker.unlink()
    log.info("kept")
    assert [line["event"] for line in lines(file)] == ["kept"]
    file.close()
    file.path.unlink()
    file.path.parent.rmdir()
    blocker.write_text("in the way again")
    log.info("lost again")
    events = [json.loads(line)["event"] for line in shown.getvalue().splitlines()]
    assert events == ["lost", "log_sink_failed", "kept", "lost again", "log_sink_failed"]


@pytest.mark.conformance("O-3")
def test_a_dead_stream_does_not_keep_lines_from_the_file(tmp_path: Path, shown: io.StringIO) -> None:
    file = RotatedLogFile(tmp_path)
    log = logger(file, shown)
    shown.close()
    log.info("hello")
    assert [line["event"] for line in lines(file)] == ["hello"]
    file.close()
