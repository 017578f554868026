"""What an agent wrote to stderr, fit to be shown: masked, and without what steers a terminal."""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from symphony.cli.failures import CommandError
from symphony.daemon.state_dir import StateDirectory
from symphony.domain.plain import one_line
from symphony.domain.redaction import mask_credentials

__all__ = ["stderr_lines"]

_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_CHARS: Final = 4_000


def stderr_lines(state_dir: Path, run_ids: Sequence[str], *, limit: int | None) -> Iterator[str]:
    """The last lines of the first of these runs that left a log; at most its last 16 MiB are read.

    Raises:
        CommandError: none of them did, or it cannot be read.
    """
    path = next((path for path in _logs(state_dir, run_ids) if path.is_file()), None)
    if path is None:
        raise CommandError.of(
            "there is no stderr of " + (f"run {run_ids[0]}" if len(run_ids) == 1 else "any of its runs"),
            hint="agents that wrote nothing leave none, and old ones are removed (`retention`)",
        )
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _MAX_BYTES, 0))
            text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise CommandError.of(
            f"{path} cannot be read: {error.strerror}", hint="run this as the user of the daemon"
        ) from error
    for line in deque(text.split("\n")[: -1 if text.endswith("\n") else None], maxlen=limit):
        yield one_line(mask_credentials(line), _MAX_CHARS)


def _logs(state_dir: Path, run_ids: Sequence[str]) -> Iterator[Path]:
    """The logs of runs by their ids, of which none may lead out of the directory."""
    place = StateDirectory(state_dir)
    return (place.stderr_log(run_id) for run_id in run_ids if "/" not in run_id and "\0" not in run_id)
