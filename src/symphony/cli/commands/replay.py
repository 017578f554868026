"""`symphony replay`: what a daemon was told, told to the scheduler again."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from symphony.cli.failures import CommandError, ExitCode, warn
from symphony.cli.options import json_option, print_json
from symphony.domain import Redaction, one_line

if TYPE_CHECKING:
    from symphony.replay import Recording, ReplayedStep


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
@json_option
def replay(*, file: Path, until: int | None, as_json: bool) -> int:
    """Take the decisions of a recorded daemon again."""
    from symphony.replay import replay as replayed

    recording = _read(file)
    if recording.cut:
        warn(f"the last line of {file} is half written, and is left out")
    steps = islice(replayed(recording), until)
    return _as_json(file, recording, steps) if as_json else _as_text(recording, steps)


def _read(file: Path) -> "Recording":
    from symphony.replay import RecordingError, read_recording

    hint = "a recording is made by `symphony run --record FILE`"
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise CommandError.of(f"{file} is too large to be a recording", hint=hint)
        return read_recording(file.read_bytes().decode("utf-8", "surrogatepass"))
    except OSError as error:
        raise CommandError.of(f"{file} cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CommandError.of(f"{file}: line {line}: not text", hint=hint) from error
    except RecordingError as error:
        raise CommandError.of(f"{file}: {error}", hint=hint) from error


def _as_text(recording: "Recording", steps: Iterable["ReplayedStep"]) -> int:
    from symphony.replay import describe_step

    count = wrong = unknown = 0
    for taken in steps:
        count += 1
        told = one_line(describe_step(taken.recorded.at_ms, taken.recorded.event, taken.commands), _MAX_CHARS)
        click.echo(f"{taken.number:6}  {told}")
        if taken.crashed is not None:
            click.echo(f"        crashed: {one_line(taken.crashed)}")
        unknown += taken.same is None
        if taken.same is False:
            wrong += 1
            for word in _names(taken.recorded.commands or []):
                click.echo(f"        recorded: {word}")
    click.echo(_verdict(count, len(recording.steps), wrong, unknown))
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


def _as_json(file: Path, recording: "Recording", steps: Iterable["ReplayedStep"]) -> int:
    from symphony.cli.documents import Replayed, ReplayedInput
    from symphony.replay import commands_as_json

    shown = tuple(
        ReplayedInput(
            number=taken.number,
            at_ms=taken.recorded.at_ms,
            input=type(taken.recorded.event).__name__,
            commands=tuple(commands_as_json(taken.commands, Redaction())),
            recorded=tuple(taken.recorded.commands or ()) if taken.same is False else None,
            same=taken.same,
            crashed=taken.crashed,
        )
        for taken in steps
    )
    wrong = tuple(row.number for row in shown if row.same is False)
    print_json(
        Replayed(
            recording=str(file),
            epoch=recording.epoch,
            inputs=len(recording.steps),
            cut=recording.cut,
            differences=wrong,
            steps=shown,
        )
    )
    return ExitCode.FAILURE if wrong else ExitCode.OK
