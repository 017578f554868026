"""The journal as `symphony clean` sees it."""

from dataclasses import dataclass
from pathlib import Path

from symphony.runtime.retention import Limits

__all__ = ["Trimmed", "claimed_issues", "trim_journal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """How many ended runs went, or would; `failure` says why none could."""

    runs: int
    reason: str
    failure: str | None = None


def claimed_issues(state_dir: Path) -> frozenset[str]:
    """Ids of issues on which the journal remembers a claim."""
    del state_dir
    return frozenset()


def trim_journal(state_dir: Path, limits: Limits, *, dry_run: bool) -> Trimmed | None:
    """Trim the journal of a daemon that is not running; null where there is none."""
    del state_dir, limits, dry_run
    return None
