"""How GitLab says no: in `message`, a text or a map, or in `error`; a limit is a 429."""

from symphony.trackers.http import Dialect

__all__ = ["GITLAB"]

GITLAB = Dialect(
    service="GitLab",
    secret="tracker.provider.api_key",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project_path",
)
