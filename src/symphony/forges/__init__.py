"""Clients of GitHub, GitLab and Forgejo for pull requests. Issues are the business of `symphony.trackers`."""

from collections.abc import Mapping
from typing import Final

from symphony.forges.base import Forge as Forge
from symphony.forges.base import ForgeAccess as ForgeAccess
from symphony.forges.base import ForgeError as ForgeError
from symphony.forges.base import Landing as Landing
from symphony.forges.forgejo import ForgejoForge as ForgejoForge
from symphony.forges.github import GithubForge as GithubForge
from symphony.forges.gitlab import GitlabForge as GitlabForge

FORGES: Final[Mapping[str, type[GithubForge | GitlabForge | ForgejoForge]]] = {
    "github": GithubForge,
    "gitlab": GitlabForge,
    "forgejo": ForgejoForge,
}
"""The clients by the kinds of `forge.kind`."""
