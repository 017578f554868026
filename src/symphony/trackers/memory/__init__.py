"""A board that lives in this process (kind `memory`), for tests, demos and programs of others."""

from symphony.trackers.memory.kind import KIND
from symphony.trackers.memory.records import Record, issue_of, issues_of
from symphony.trackers.memory.tracker import DEFAULT_ACTIVE, DEFAULT_TERMINAL, PROVIDER_KEYS, MemoryTracker

__all__ = [
    "DEFAULT_ACTIVE",
    "DEFAULT_TERMINAL",
    "KIND",
    "PROVIDER_KEYS",
    "MemoryTracker",
    "Record",
    "issue_of",
    "issues_of",
]
