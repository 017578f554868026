"""Messages between the daemon and the worker program about workspaces on a host, outside of runs."""

from typing import Any

import msgspec

from symphony.daemon.frames import Site
from symphony.domain import DECODE_ERRORS

_ANSWER = "symphony-answer "


class RemovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of `symphony worker --remove`, which answers with a `Removal`."""

    site: Site
    issue_id: str
    identifier: str


class HostWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace on a host; `symphony worker --list` reads a `Site` and answers with all of them.

    Attributes:
        bytes: the size of its files.
        touched_s: when it was last changed, by the clock of the host.
        is_busy: whether a process works in it.
        kept_reason: why a removal would keep it, even if the issue has ended; `None` if it would not.
    """

    issue_id: str
    identifier: str
    path: str
    bytes: int
    touched_s: float
    is_busy: bool
    kept_reason: str | None


def answer_line(answer: object) -> str:
    """The line that the worker program prints."""
    return _ANSWER + msgspec.json.encode(answer).decode()


def decode_answer(output: str, kind: Any) -> Any:
    """The answer of this type in the output of the worker program; `None` if there is none.

    Raises:
        ValueError: it has another type.
    """
    lines = (line for line in output.splitlines() if line.startswith(_ANSWER))
    answer = next((line.removeprefix(_ANSWER) for line in lines), None)
    try:
        return None if answer is None else msgspec.json.decode(answer, type=kind)
    except DECODE_ERRORS as error:
        raise ValueError(str(error)) from error
