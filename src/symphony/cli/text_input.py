"""A text that a person gives: as an argument, from a file or on standard input; the same way everywhere."""

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

__all__ = ["from_a_file", "given_text"]

_BYTES_PER_CHAR: Final = 4
_Command = TypeVar("_Command", bound=Callable[..., Any])


def from_a_file(command: _Command) -> _Command:
    """Add `-F, --file FILE`."""
    return click.option(
        "-F",
        "--file",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        metavar="FILE",
        help="Read the text from a file; - is standard input.",
    )(command)


def given_text(text: str | None, file: str | None, *, what: str, most: int) -> str:
    """The text that was given as an argument, where `-` is standard input, or by `--file`.

    `what` is what a person calls it, such as `answer`; it has at most `most` characters.

    Raises:
        UsageError: not exactly one of the two was given, or it is empty, too long, not UTF-8 or unreadable.
    """
    if (text is None) == (file is None):
        raise click.UsageError(f"give the {what} as an argument or by --file, one of them")
    raw = _read(file or "-", most) if file is not None or text == "-" else _encoded(text or "")
    try:
        words = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        # What was cut off at the limit may end in the middle of a character.
        if len(raw) > _BYTES_PER_CHAR * most:
            raise _too_long(what, most) from error
        raise click.UsageError(f"the {what} is not UTF-8 text") from error
    if not words.strip():
        raise click.UsageError(f"the {what} is empty")
    if len(words) > most:
        raise _too_long(what, most)
    return words


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _read(file: str, most: int) -> bytes:
    if file == "-" and sys.stdin is None:
        raise click.UsageError("standard input is closed")
    try:
        with click.open_file(file, "rb") as source:
            read: bytes = source.read(_BYTES_PER_CHAR * most + 1)
            return read
    except OSError as error:
        raise click.UsageError(f"{'standard input' if file == '-' else file}: {error.strerror}") from error


def _too_long(what: str, most: int) -> click.UsageError:
    return click.UsageError(f"a text has at most {most} characters, and the {what} has more")
