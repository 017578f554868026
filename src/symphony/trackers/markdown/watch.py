"""A hint whenever an issue file changed: a low-latency wake-up, never a source of truth.

The folder itself is watched, not what is below it. Besides, the caller may name folders of comments: there a
new comment of a person is news, one of the daemon or of an agent is none. Temporary files are
filtered out. The folder's parent is watched as well, to notice when the folder is made, removed or replaced;
while neither is there, the nearest directory that is. A folder that was swapped without telling is noticed
within half a second.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
import structlog
import watchfiles

from symphony.trackers.markdown.names import is_issue_file, is_persons_comment

__all__ = ["folder_changes"]

_DEBOUNCE_MS = 50
_STEP_MS = 25
_RECHECK_MS = 500
_PAUSE_S = 30.0
_LOG = structlog.get_logger(__name__)


def _nowhere() -> frozenset[Path]:
    return frozenset()


async def folder_changes(
    folder: Path, comments: Callable[[], frozenset[Path]] = _nowhere, *, pause_s: float = _PAUSE_S
) -> AsyncGenerator[None, None]:
    """Yield when an issue file changed, and once whenever a watch begins, for what happened before it did.

    `comments` are folders in which a person's comment is news; the watch begins anew when they change.

    Ends only by cancellation. Where the system cannot watch (no more inotify watches, say) it says so once
    in the log and tries again after `pause_s` seconds; polling goes on meanwhile.
    """
    told = False
    while True:
        try:
            async with aclosing(_watched(folder, comments)) as hints:
                async for _ in hints:
                    told = False
                    yield
        except FileNotFoundError:
            await anyio.sleep(_RECHECK_MS / 1_000)
        except (OSError, RuntimeError) as error:
            if not told:
                _LOG.warning("board_watch_failed", board=str(folder), error=str(error))
            told = True
            await anyio.sleep(pause_s)


async def _watched(folder: Path, comments: Callable[[], frozenset[Path]]) -> AsyncGenerator[None, None]:
    """One watch, until the folder, or where comments are news, is another one than when it began."""
    first = await anyio.to_thread.run_sync(_look, folder, comments(), abandon_on_cancel=True)
    begun = False
    async with aclosing(_changes(folder, first)) as batches:
        async for names in batches:
            news = any(name.parent == folder or name.parent in first.comments for name in names)
            if first.place is not None and (news or not begun):
                yield
            begun = True
            now = await anyio.to_thread.run_sync(_look, folder, comments(), abandon_on_cancel=True)
            if folder in names or now != first:
                return


async def _changes(folder: Path, look: "_Look") -> AsyncGenerator[set[Path], None]:
    """Names of issue files, people's comments, the folder and what is beside it; empty when a look is due."""
    watching = watchfiles.awatch(
        *look.paths,
        *look.comments,
        watch_filter=lambda _, name: _is_news(folder, look.comments, Path(name)),
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        rust_timeout=_RECHECK_MS,
        yield_on_timeout=True,
        recursive=False,
    )
    async with aclosing(watching) as batches:
        async for batch in batches:
            yield {Path(name) for _, name in batch}


def _is_news(folder: Path, comments: frozenset[Path], path: Path) -> bool:
    if path.parent == folder:
        return is_issue_file(path.name)
    return path.parent not in comments or is_persons_comment(path.name)


class _Look(NamedTuple):
    """What there is: the folder's device and inode, null where there is no folder; and what to watch then."""

    place: tuple[int, int] | None
    paths: tuple[Path, ...]
    comments: frozenset[Path] = frozenset()


def _look(folder: Path, comments: frozenset[Path]) -> _Look:
    """Look at the disk, in a worker thread: a network file system may take its time."""
    try:
        found = folder.stat()
    except OSError:
        nearest = next((path for path in folder.parents if path.is_dir()), Path("/"))
        return _Look(place=None, paths=(nearest,))
    return _Look(
        place=(found.st_dev, found.st_ino),
        paths=(folder, folder.parent),
        comments=frozenset(path for path in comments if path.is_dir()),
    )
