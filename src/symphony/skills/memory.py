"""Remembers what earlier loads read, within bounds, so that a file is parsed again only when it has changed.

By content, for all workspaces: a fresh clone has new inodes and times, and the same bytes. By status, for a
workspace that is loaded again: an unchanged file is not even opened.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from symphony.skills.parse import Parsed, Sheet

__all__ = ["SHARED", "Lru", "Memory", "Remembered", "Status"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_ENTRIES: Final = 4_096
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_STATUS_BYTES: Final = 2 * _MAX_BYTES
_SETTLED_S: Final = 2.0

# Device, inode, mtime_ns, ctime_ns, size: what tells one state of a file from another; no program can set the
# fourth back.
Status: TypeAlias = tuple[int, int, int, int, int]


class Remembered(NamedTuple):
    """What a file gave when it had this status; `size` is about what it costs, in bytes."""

    status: Status
    parsed: Parsed
    size: int


class Lru(Generic[K, V]):
    """A map that forgets what was not asked for the longest; safe to use from several threads."""

    __slots__ = ("_bytes", "_entries", "_lock", "_max_bytes", "_max_entries")

    def __init__(self, *, max_entries: int, max_bytes: int) -> None:
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value; `size` is about what it costs, in bytes."""
        with self._lock:
            _, old = self._entries.pop(key, (None, 0))
            self._entries[key] = (value, size)
            self._bytes += size - old
            while self._entries and (len(self._entries) > self._max_entries or self._bytes > self._max_bytes):
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed

    def __len__(self) -> int:
        return len(self._entries)


class Memory:
    """What loads share. One for the whole process is the default; `Memory(max_entries=0)` remembers nothing.

    Attributes:
        sheets: by the bytes of the front matter.
        roots: by a root, its rules and its name in the catalog: the files below it that have settled.
        settled_ns: a file that changed less than this before it was read may change again within one tick of
            the file system's clock, so its status proves nothing yet.
    """

    __slots__ = ("roots", "settled_ns", "sheets")

    def __init__(
        self,
        *,
        max_entries: int = _MAX_ENTRIES,
        max_bytes: int = _MAX_BYTES,
        max_status_bytes: int = _MAX_STATUS_BYTES,
        settled_s: float = _SETTLED_S,
    ) -> None:
        self.sheets: Lru[bytes, Sheet] = Lru(max_entries=max_entries, max_bytes=max_bytes)
        self.roots: Lru[Hashable, Mapping[str, Remembered]] = Lru(
            max_entries=max_entries, max_bytes=max_status_bytes
        )
        self.settled_ns = int(settled_s * 1e9)


SHARED: Final = Memory()
