"""How Asana says no: by plain statuses. A limit is a 429 with a time; nothing tells what is left of it.

Comments are plain text in which addresses become links, and those of people mentions.
"""

from symphony.trackers.http import Dialect

__all__ = ["ASANA"]

ASANA = Dialect(
    service="Asana",
    secret="tracker.provider.api_key",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project_gid",
    fences=False,
)
