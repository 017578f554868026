"""`symphony replay`: what a daemon was told, told to the scheduler again."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.cli.workflow_option import as_json, print_json
from symphony.domain.plain import one_line

if TYPE_CHECKING:
    from symphony.testing.simulator.tape import Replayed, Tape

__all__ = ["replay"]

_EPILOG = """\b
Examples:
  symphony run --record night.jsonl        write down what the daemon decides on
  symphony replay night.jsonl              every input, and what the scheduler says to it
  symphony replay night.jsonl --until 500  only the first 500
  symphony replay night.jsonl --json | jq '.differences'

Nothing is started, asked or changed: the scheduler is pure. Recordings of the simulator are read as well.

Exit codes: 0 the same decisions (or none were recorded), 1 others, or no recording.
"""
_MAX_BYTES: Final = 1024 * 1024 * 1024
_MAX_CHARS: Final = 4_000


@click.command(epilog=_EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Take only the first N inputs.")
@as_json
def replay(*, file: Path, until: int | None, as_json: bool) -> int:
    """Take the decisions of a recorded daemon again."""
    from symphony.testing.simulator.tape import replay_tape

    tape = _read(file)
    if tape.cut:
        warn(f"the last line of {file} is half written, and is left out")
    steps = islice(replay_tape(tape), until)
    return _as_json(file, tape, steps) if as_json else _as_text(tape, steps)


def _read(file: Path) -> "Tape":
    from symphony.testing.simulator.recording import RecordingError
    from symphony.testing.simulator.tape import read_tape

    hint = "a recording is made by `symphony run --record FILE`"
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise CommandError.of(f"{file} is too large to be a recording", hint=hint)
        return read_tape(file.read_bytes().decode("utf-8", "surrogatepass"))
    except OSError as error:
        raise CommandError.of(f"{file} cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CommandError.of(f"{file}: line {line}: not text", hint=hint) from error
    except RecordingError as error:
        raise CommandError.of(f"{file}: {error}", hint=hint) from error


def _as_text(tape: "Tape", steps: Iterable["Replayed"]) -> int:
    from symphony.testing.simulator.trace import line

    count = wrong = unknown = 0
    for taken in steps:
        count += 1
        told = one_line(line((taken.entry.at_ms, taken.entry.fact, taken.commands)), _MAX_CHARS)
        click.echo(f"{taken.number:6}  {told}")
        if taken.crashed is not None:
            click.echo(f"        crashed: {one_line(taken.crashed)}")
        unknown += taken.same is None
        if taken.same is False:
            wrong += 1
            for word in _names(taken.entry.commands or []):
                click.echo(f"        recorded: {word}")
    click.echo(_verdict(count, len(tape.entries), wrong, unknown))
    return ExitCode.FAILURE if wrong else ExitCode.OK


def _names(commands: list[Any]) -> Iterator[str]:
    """A recorded command as a line; nothing, where nothing was said."""
    if not commands:
        yield "nothing"
    for command in commands:
        fields = dict(command) if isinstance(command, dict) else {"command": command}
        name = fields.pop("command", "?")
        issue = fields.pop("issue", None)
        if isinstance(issue, dict):
            fields = {"issue": issue.get("identifier"), **fields}
        yield one_line(" ".join([str(name), *(f"{key}={value}" for key, value in fields.items())]), 300)


def _verdict(count: int, total: int, wrong: int, unknown: int) -> str:
    taken = f"{count} of {total} inputs" if count < total else f"{count} inputs"
    if wrong:
        return f"{taken}, {wrong} with other decisions than recorded"
    if unknown == count:
        return f"{taken}; the recording holds no decisions to compare with"
    return f"{taken}, the same decisions as recorded"


def _as_json(file: Path, tape: "Tape", steps: Iterable["Replayed"]) -> int:
    from symphony.domain.redaction import Redaction
    from symphony.testing.simulator.tape import said

    shown = [
        {
            "number": taken.number,
            "at_ms": taken.entry.at_ms,
            "input": type(taken.entry.fact).__name__,
            "commands": said(taken.commands, Redaction()),
            "recorded": taken.entry.commands if taken.same is False else None,
            "same": taken.same,
            "crashed": taken.crashed,
        }
        for taken in steps
    ]
    wrong = [row["number"] for row in shown if row["same"] is False]
    print_json(
        {
            "recording": str(file),
            "epoch": tape.epoch,
            "inputs": len(tape.entries),
            "cut": tape.cut,
            "differences": wrong,
            "steps": shown,
        }
    )
    return ExitCode.FAILURE if wrong else ExitCode.OK
