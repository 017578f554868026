"""`symphony replay`: feeds a recording of a daemon to the scheduler again and compares the decisions."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from symphony.cli.documents import Replayed, ReplayedInput
from symphony.cli.failures import CommandError, ExitCode, printable, warn
from symphony.cli.options import json_option, print_json
from symphony.domain import Redaction, one_line, plural
from symphony.replay import (
    Recording,
    RecordingError,
    ReplayedStep,
    commands_as_json,
    describe_step,
    read_recording,
)
from symphony.replay import replay as replay_steps

_EPILOG = """\b
Examples:
  symphony run --record night.jsonl        record all decisions of a daemon
  symphony replay night.jsonl              every input, and the commands of the scheduler
  symphony replay night.jsonl --until 500  only the first 500
  symphony replay night.jsonl --json | jq '.differences'

Starts nothing, sends no request and changes nothing. Reads recordings of the simulator as well.

Exit codes: 0 the same decisions (or none are recorded), 1 other decisions, or the file is not a recording.
"""
_MAX_BYTES: Final = 1024 * 1024 * 1024


@click.command(epilog=_EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Replay only the first N inputs.")
@json_option
def replay(*, file: Path, until: int | None, as_json: bool) -> int:
    """Repeat the decisions of a recorded daemon."""
    recording = _read(file)
    if recording.cut:
        warn(f"the last line of {file} is incomplete and is left out")
    steps = islice(replay_steps(recording), until)
    differences = _print_json(file, recording, steps) if as_json else _print_text(recording, steps)
    return ExitCode.FAILURE if differences else ExitCode.OK


def _read(file: Path) -> Recording:
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


def _print_text(recording: Recording, steps: Iterable[ReplayedStep]) -> int:
    """Print each step when it is taken; return the number of differences."""
    count = differences = compared = 0
    for step in steps:
        count += 1
        text = describe_step(step.recorded.at_ms, step.recorded.event, step.commands)
        click.echo(f"{step.number:6}  {printable(text)}")
        if step.crashed is not None:
            click.echo(f"        crashed: {one_line(step.crashed)}")
        compared += step.same is not None
        if step.same is False:
            differences += 1
            for command in step.recorded.commands or [{"command": "nothing"}]:
                click.echo(f"        recorded: {_command_line(command)}")
    total = len(recording.steps)
    inputs = f"{count} of {total} inputs" if count < total else plural(count, "input")
    if differences:
        click.echo(f"{inputs}, {differences} with other decisions than recorded")
    elif compared:
        click.echo(f"{inputs}, the same decisions as recorded")
    else:
        click.echo(f"{inputs}; the recording has no decisions to compare")
    return differences


def _command_line(command: Any) -> str:
    """A recorded command, which is untrusted JSON, on one line."""
    fields = dict(command) if isinstance(command, dict) else {"command": command}
    name = fields.pop("command", "?")
    issue = fields.pop("issue", None)
    if isinstance(issue, dict):
        fields = {"issue": issue.get("identifier"), **fields}
    return one_line(" ".join([str(name), *(f"{key}={value}" for key, value in fields.items())]), 300)


def _print_json(file: Path, recording: Recording, steps: Iterable[ReplayedStep]) -> int:
    inputs = tuple(
        ReplayedInput(
            number=step.number,
            at_ms=step.recorded.at_ms,
            input=type(step.recorded.event).__name__,
            commands=tuple(commands_as_json(step.commands, Redaction())),
            recorded=tuple(step.recorded.commands or ()) if step.same is False else None,
            same=step.same,
            crashed=step.crashed,
        )
        for step in steps
    )
    differences = tuple(row.number for row in inputs if row.same is False)
    print_json(
        Replayed(
            recording=str(file),
            epoch=recording.epoch,
            inputs=len(recording.steps),
            cut=recording.cut,
            differences=differences,
            steps=inputs,
        )
    )
    return len(differences)
