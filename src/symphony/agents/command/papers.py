"""The files that a one-shot agent is given: the prompt of a turn, and the envelope; for this user alone."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

from symphony.agents.base import AgentError
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["Papers", "papers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Papers:
    """A directory of one session, outside of its workspace: a file there would be work of the agent."""

    directory: Path

    @property
    def prompt_file(self) -> Path:
        """The prompt of the turn that runs."""
        return self.directory / "prompt.md"

    @property
    def envelope_file(self) -> Path:
        """The system-level text; empty where there is none."""
        return self.directory / "envelope.md"

    async def write(self, *, prompt: str, envelope: str) -> None:
        """Write both files anew.

        Raises:
            AgentError: `state_directory`.
        """
        for path, text in ((self.prompt_file, prompt), (self.envelope_file, envelope)):
            try:
                await to_thread.run_sync(_write, path, text)
            except OSError as error:
                raise AgentError(_unwritable(error)) from error


@asynccontextmanager
async def papers() -> AsyncIterator[Papers]:
    """The directory, mode 0700, removed at the end with all that is in it.

    Raises:
        AgentError: `state_directory`: it cannot be made.
    """
    try:
        made = await to_thread.run_sync(partial(tempfile.mkdtemp, prefix="symphony-"))
    except OSError as error:
        raise AgentError(_unwritable(error)) from error
    try:
        yield Papers(directory=Path(made))
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(shutil.rmtree, made, ignore_errors=True))


def _write(path: Path, text: str) -> None:
    """A new file each time: what the agent put into its place, or may still hold open, is not written to."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
        file.write(text)


def _unwritable(error: OSError) -> Failure:
    return Failure(
        category=Category.STATE_DIRECTORY,
        blame=Blame.HOST,
        message=f"the prompt could not be written to a file: {error.strerror or error}",
        hint="see that TMPDIR names a directory that the daemon may write to, with room in it",
    )
