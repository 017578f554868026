"""The workflow in force: the last file content that was good, and how a newer one takes its place (CF8)."""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import watchfiles

from symphony.config.agents import AgentKinds
from symphony.config.document import Workflow, WorkflowFile, parse_workflow, read_workflow_file
from symphony.config.errors import WorkflowError
from symphony.domain.failures import Failure, SymphonyError

__all__ = ["Rejected", "Reloaded", "WorkflowStore"]

_DEBOUNCE_MS: Final = 50
_STEP_MS: Final = 10
_WATCH_ROUND_MS: Final = 500
_SETTLED_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The file changed and its new content is in force: settings and prompt together."""

    workflow: Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The file changed and cannot be used; what was in force stays in force."""

    failures: tuple[Failure, ...]


class WorkflowStore:
    """Holds the last known good workflow and notices changes of its file.

    A change is judged once: neither an unchanged file nor a broken one that stays as it is gives a second
    answer. The store belongs to one task; its methods read at most one small file and never wait.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[WorkflowFile], Workflow],
        *,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Read the file for the first time.

        Args:
            path: the workflow file.
            parse: makes a workflow of a content, or raises a `SymphonyError`; whoever composes the daemon
                adds the adapter's own validation here, so that nothing is swapped before it passed.
            wall_ns: wall clock in nanoseconds, as file times use it.

        Raises:
            WorkflowError: the file cannot be read.
            SymphonyError: what `parse` raises.
        """
        self._path = path.absolute()
        self._parse = parse
        self._wall_ns = wall_ns
        self._failures: tuple[Failure, ...] = ()
        self._probe = self._look()
        file = read_workflow_file(self._path)
        self._seen: str = file.stamp.sha256
        self._current = parse(file)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        environment: Mapping[str, str],
        tracker_kinds: Collection[str],
        agent_kinds: AgentKinds,
    ) -> "WorkflowStore":
        """A store whose contents are judged by `parse_workflow` alone; arguments and errors as there."""

        def parse(file: WorkflowFile) -> Workflow:
            return parse_workflow(
                file, environment=environment, tracker_kinds=tracker_kinds, agent_kinds=agent_kinds
            )

        return cls(path, parse)

    def current(self) -> Workflow:
        """The last workflow that was good."""
        return self._current

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What is wrong with the file as it is now; empty while it is the one in force (CF7)."""
        return self._failures

    def reload_if_changed(self) -> Reloaded | Rejected | None:
        """Look at the file and take a change in; null where there is none. Cheap: one `stat` as a rule."""
        probe = self._look()
        if probe is not None and probe == self._probe:
            return None
        self._probe = probe
        try:
            file = read_workflow_file(self._path)
        except WorkflowError as error:
            return self._reject(error.failure.message, error.failures)
        if file.stamp.sha256 == self._seen:
            return None
        self._seen = file.stamp.sha256
        return self._judge(file)

    def _judge(self, file: WorkflowFile) -> Reloaded | Rejected:
        try:
            workflow = self._parse(file)
        except WorkflowError as error:
            self._failures = error.failures
        except SymphonyError as error:
            self._failures = (error.failure,)
        else:
            self._failures = ()
            self._current = workflow
            return Reloaded(workflow=workflow)
        return Rejected(failures=self._failures)

    def _reject(self, cause: str, failures: tuple[Failure, ...]) -> Rejected | None:
        """An unreadable file is one rejected change, however often it is looked at."""
        if self._seen == cause:
            return None
        self._seen = cause
        self._failures = failures
        return Rejected(failures=failures)

    def _look(self) -> "_Probe | None":
        """What `stat` says; null where that proves nothing: no file, or one written a moment ago.

        Times of a file advance in steps, so a second write within a step could leave no trace.
        """
        try:
            status = self._path.stat()
        except OSError:
            return None
        newest = max(status.st_mtime_ns, status.st_ctime_ns)
        if self._wall_ns() - newest < _SETTLED_NS:
            return None
        return _Probe(
            device=status.st_dev,
            inode=status.st_ino,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
        )

    async def changes(self) -> AsyncGenerator[None, None]:
        """Yield soon after the file may have changed: a hint to call `reload_if_changed`, never the proof.

        Watches the directory, since editors replace the file. Ends in silence where watching is not
        possible; ends within half a second after its task is cancelled.
        """

        def is_ours(_: object, path: str) -> bool:
            return Path(path).name == self._path.name

        try:
            async for _ in watchfiles.awatch(
                self._path.parent,
                watch_filter=is_ours,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                rust_timeout=_WATCH_ROUND_MS,
                recursive=False,
            ):
                yield None
        except OSError:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    """What `stat` tells of a file that has settled."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
