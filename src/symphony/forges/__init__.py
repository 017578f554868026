"""Clients of GitHub, GitLab and Forgejo for pull requests. Issues are the business of `symphony.trackers`."""

from typing import TYPE_CHECKING

from symphony.forges.base import Forge as Forge
from symphony.forges.base import ForgeAccess as ForgeAccess
from symphony.forges.base import ForgeError as ForgeError
from symphony.forges.base import Landing as Landing

if TYPE_CHECKING:
    from symphony.forges.forgejo import ForgejoForge
    from symphony.forges.github import GithubForge
    from symphony.forges.gitlab import GitlabForge


def forge_client(kind: str) -> "type[GithubForge | GitlabForge | ForgejoForge]":
    """Return the client of a `forge.kind`. Its module is loaded now, for most workflows have none of them.

    Raises:
        KeyError: there is no such kind.
    """
    match kind:
        case "github":
            from symphony.forges.github import GithubForge  # noqa: PLC0415 - see the docstring

            return GithubForge
        case "gitlab":
            from symphony.forges.gitlab import GitlabForge  # noqa: PLC0415 - as above

            return GitlabForge
        case "forgejo":
            from symphony.forges.forgejo import ForgejoForge  # noqa: PLC0415 - as above

            return ForgejoForge
    raise KeyError(kind)
