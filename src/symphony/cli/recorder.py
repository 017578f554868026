"""Writes down what a daemon decides on (`symphony run --record`), to be replayed by `symphony replay`."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog

from symphony.cli.failures import CommandError, ExitCode
from symphony.domain.redaction import Redaction
from symphony.replay import header_line, step_line
from symphony.scheduler import machine
from symphony.scheduler.commands import Command
from symphony.scheduler.inputs import Input, SettingsChanged
from symphony.scheduler.state import State

__all__ = ["Recorder", "recording_to"]

MAX_BYTES: Final = 256 * 1024 * 1024
_log = structlog.get_logger(__name__)


class Recorder:
    """Takes the steps of a daemon and writes each down.

    A recording that fails or has grown to `max_bytes` ends, which is logged once; an input that cannot be
    written is left out, which is logged too. The daemon goes on.
    """

    def __init__(
        self, path: Path, descriptor: int, *, redaction: Callable[[], Redaction], max_bytes: int = MAX_BYTES
    ) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        self._new_redaction = redaction
        self._redaction: Redaction | None = None
        self._left = max_bytes

    def step(self, state: State, fact: Input, now_ms: int) -> tuple[State, tuple[Command, ...]]:
        """One step of the scheduler, written down; one that raises counts as one without an answer."""
        commands: tuple[Command, ...] = ()
        try:
            after, commands = machine.step(state, fact, now_ms)
        finally:
            self._note(state, fact, now_ms, commands)
        return after, commands

    def _note(self, state: State, fact: Input, now_ms: int, commands: tuple[Command, ...]) -> None:
        if self._descriptor is None:
            return
        try:
            first = self._redaction is None
            if self._redaction is None or isinstance(fact, SettingsChanged):
                self._redaction = self._new_redaction()
            if first:
                self._write(header_line(state, self._redaction))
            line = self._line(now_ms, fact, commands, self._redaction)
            if line is not None:
                self._write(line)
        except Exception as error:  # noqa: BLE001 - a recording that fails must not stop the work
            self._end(str(error) or type(error).__name__)

    def _line(
        self, now_ms: int, fact: Input, commands: tuple[Command, ...], redaction: Redaction
    ) -> str | None:
        """The line of a step; null, which is logged, where the input cannot be written as JSON."""
        try:
            return step_line(now_ms, fact, commands, redaction)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            reason, name = str(error) or type(error).__name__, type(fact).__name__
            _log.warning("recording_skipped", path=str(self._path), input=name, reason=reason)
            return None

    def _write(self, line: str) -> None:
        data = f"{line}\n".encode("utf-8", "surrogatepass")
        if self._descriptor is None:
            return
        if len(data) > self._left:
            self._end("it has reached its largest size")
            return
        self._left -= len(data)
        written = os.write(self._descriptor, data)
        if written < len(data):
            os.write(self._descriptor, data[written:])  # a full disk says so now

    def _end(self, reason: str) -> None:
        _log.warning("recording_stopped", path=str(self._path), reason=reason)
        self.close()

    def close(self) -> None:
        """Close the file; steps are taken without being written down from now on."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def recording_to(path: Path, redaction: Callable[[], Redaction]) -> Iterator[Recorder]:
    """A recorder into a new file that only its owner can read.

    Raises:
        CommandError: the file is there already, or cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise CommandError.of(
            f"{path} is there already, and a recording replaces no file",
            hint="give --record another name, or remove the file",
            code=ExitCode.USAGE,
        ) from error
    except OSError as error:
        raise CommandError.of(
            f"{path} cannot be written: {error.strerror}", hint="give --record another place"
        ) from error
    recorder = Recorder(path, descriptor, redaction=redaction)
    try:
        yield recorder
    finally:
        recorder.close()
