"""How Redmine says no: often without a body. It has no limits of its own; a proxy before it may have some.

Where the server formats text as Textile it knows no fences.
"""

from symphony.trackers.http import Dialect

__all__ = ["REDMINE"]

REDMINE = Dialect(
    service="Redmine",
    secret="tracker.provider.api_key",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project",
    fences=False,
)
