"""Spellings of older workflow files that are still understood (CF11)."""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["LINEAR_ALIASES", "adopt_aliases"]

LINEAR_ALIASES: Final = ("endpoint", "api_key", "project_slug", "assignee")
"""Keys that once stood directly below `tracker`, when Linear was the only one."""

Location = tuple[str | int, ...]


def adopt_aliases(raw: Mapping[str, Any]) -> Mapping[Location, Location]:
    """Move Linear's flat keys into `tracker.provider`, in place, where that does not have them already.

    Returns:
        where each value stands now, to where it stands in the file.
    """
    tracker = raw.get("tracker")
    if not isinstance(tracker, dict) or tracker.get("kind") != "linear":
        return {}
    flat = {name: tracker.pop(name) for name in LINEAR_ALIASES if name in tracker}
    provider = tracker.setdefault("provider", {}) if flat else None
    if not isinstance(provider, dict):
        return {}
    moved = {name: value for name, value in flat.items() if name not in provider}
    provider.update(moved)
    return {("tracker", "provider", name): ("tracker", name) for name in moved}
