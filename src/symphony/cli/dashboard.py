"""The live view of `symphony run`: `symphony status --watch` as a process, in front of the daemon's output.

A process of its own, so that a slow terminal, or one that is stopped with Ctrl-S, never holds up the daemon.
"""

import io
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

from typing_extensions import override

from symphony.config import ObservabilitySettings
from symphony.scheduler import Command, Event, State

_VARIABLES: Final = frozenset(
    {
        *("HOME", "PATH", "PYTHONPATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
        *("SYMPHONY_STATE_DIR", "STATE_DIRECTORY", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
    }
)
"""What the view inherits: where the daemon is and how the terminal draws, no secrets."""
_FOLLOWS: Final = "The view has ended; what the daemon logs follows. Ctrl-C ends the daemon."


class Dashboard(io.TextIOWrapper):
    """Replaces `sys.stderr` of a daemon with a live view: what is written while the view is shown is dropped.

    As an observer of the scheduler it starts the view with the first step, when the daemon answers.
    """

    def __init__(self, workflow: Path, settings: ObservabilitySettings) -> None:
        super().__init__(sys.stderr.buffer, sys.stderr.encoding, sys.stderr.errors, line_buffering=True)
        self._command = [
            *(sys.executable, "-P", "-m", "symphony", "status", "--watch", "--workflow", str(workflow)),
            *("--interval", str(max(0.1, settings.refresh_ms / 1_000))),
            *("--render-interval", str(settings.render_interval_ms / 1_000), "--parent", str(os.getpid())),
        ]
        self._view: subprocess.Popen[bytes] | None = None

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Start the view, once."""
        del before, fact, after, commands
        if self._view is None:
            environment = {name: value for name, value in os.environ.items() if name in _VARIABLES}
            self._view = subprocess.Popen(self._command, env=environment)
            Thread(target=self._announce_end, args=(self._view,), daemon=True).start()

    @override
    def write(self, text: str, /) -> int:
        """Write, unless the view is shown."""
        if self._view is not None and self._view.poll() is None:
            return len(text)
        return super().write(text)

    @override
    def close(self) -> None:
        """End the view; the stream below stays open."""
        view, self._view = self._view, None
        if view is not None:
            view.terminate()
            view.wait()
        with suppress(ValueError):  # it is detached already
            self.detach()

    def _announce_end(self, view: "subprocess.Popen[bytes]") -> None:
        """Say that only the view has ended, as after `q`."""
        if view.wait() == 0 and self._view is not None:
            super().write(f"{_FOLLOWS}\n")
