"""How Forgejo and Gitea say no: by plain statuses. No limits are their own; a proxy may have some."""

from symphony.trackers.forgejo.config import Brand
from symphony.trackers.http import Dialect

__all__ = ["dialect_of"]


def dialect_of(brand: Brand) -> Dialect:
    """The dialect under the name that people know the service by."""
    return Dialect(
        service=brand.service,
        secret="tracker.provider.token",  # noqa: S106 - the name of a setting
        scope="tracker.provider.repo",
    )
