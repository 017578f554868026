"""Hints that the board changed: a wake-up with little delay, not a source of truth.

The folder of the issues is watched, not recursively, and the folders of comments that the caller names, where
a new comment of a person counts and one of the daemon or of an agent does not. Temporary files are ignored.
The parent of the folder is watched to notice when the folder is created, removed or replaced; while there is
no parent, the nearest directory that exists. A replaced folder that causes no event is noticed within half a
second.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import anyio
import structlog
import watchfiles

from symphony import to_thread
from symphony.trackers.markdown.comments import is_persons_comment
from symphony.trackers.markdown.layout import is_issue_file

_DEBOUNCE_MS = 50
_STEP_MS = 25
_RECHECK_MS = 500
_PAUSE_S = 30.0
_LOG = structlog.get_logger(__name__)


class _Watched(NamedTuple):
    """What there is to watch; `folder_id` is device and inode of the folder, `None` without a folder."""

    folder_id: tuple[int, int] | None
    paths: tuple[Path, ...]
    comments: frozenset[Path] = frozenset()


async def folder_changes(
    folder: Path,
    comments: Callable[[], frozenset[Path]] = frozenset,
    *,
    pause_s: float = _PAUSE_S,
) -> AsyncGenerator[None, None]:
    """Yield when an issue file changed, and whenever a watch begins, for what happened before.

    Ends only by cancellation. If the system cannot watch (as without free inotify watches), logs it once and
    tries again after a pause; polling goes on meanwhile.

    Args:
        folder: the folder of the issues.
        comments: the folders in which a person's comment counts; a change restarts the watch.
        pause_s: the pause after a failure.
    """
    logged = False
    while True:
        try:
            async with aclosing(_watch(folder, comments)) as hints:
                async for _ in hints:
                    logged = False
                    yield
        except FileNotFoundError:
            await anyio.sleep(_RECHECK_MS / 1_000)
        except (OSError, RuntimeError) as error:
            if not logged:
                _LOG.warning("board_watch_failed", board=str(folder), error=str(error))
            logged = True
            await anyio.sleep(pause_s)


async def _watch(folder: Path, comments: Callable[[], frozenset[Path]]) -> AsyncGenerator[None, None]:
    """One watch, until the folder or the set of comment folders is another one."""

    async def look() -> _Watched:
        return await to_thread.run_sync(_to_watch, folder, comments(), abandon_on_cancel=True)

    watched = await look()

    def counts(_: watchfiles.Change, name: str) -> bool:
        path = Path(name)
        if path.parent == folder:
            return is_issue_file(path.name)
        return path.parent not in watched.comments or is_persons_comment(path.name)

    to_thread.require()
    batches = watchfiles.awatch(
        *watched.paths,
        *watched.comments,
        watch_filter=counts,
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        rust_timeout=_RECHECK_MS,
        yield_on_timeout=True,
        recursive=False,
    )
    begun = False
    async with aclosing(batches):
        async for batch in batches:
            paths = {Path(name) for _, name in batch}
            news = any(path.parent == folder or path.parent in watched.comments for path in paths)
            if watched.folder_id is not None and (news or not begun):
                yield
            begun = True
            if folder in paths or await look() != watched:
                return


def _to_watch(folder: Path, comments: frozenset[Path]) -> _Watched:
    """Look at the disk, in a worker thread: a network file system may be slow."""
    try:
        info = folder.stat()
    except OSError:
        nearest = next((path for path in folder.parents if path.is_dir()), Path("/"))
        return _Watched(folder_id=None, paths=(nearest,))
    return _Watched(
        folder_id=(info.st_dev, info.st_ino),
        paths=(folder, folder.parent),
        comments=frozenset(path for path in comments if path.is_dir()),
    )
