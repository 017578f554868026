"""What the daemon and the worker program say to each other about workspaces on a host, apart from runs."""

import msgspec

from symphony.daemon.frames import Site

_ANSWER = "symphony-answer "


class RemovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What `symphony worker --remove` reads; it answers with a `Removal`."""

    site: Site
    issue_id: str
    identifier: str


class HostWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace on a host; `symphony worker --list` reads a `Site` and answers with all of them.

    Attributes:
        bytes: of its files.
        touched_s: when it was changed last, by the clock of the host.
        is_busy: a process works in it.
        kept_reason: why a removal would keep it, whatever became of the issue; `None` if it would not.
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


def find_answer(output: str) -> str | None:
    """The answer in what the worker program printed, as JSON; `None` for none."""
    lines = (line for line in output.splitlines() if line.startswith(_ANSWER))
    return next((line.removeprefix(_ANSWER) for line in lines), None)
