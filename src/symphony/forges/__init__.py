"""Clients of GitHub, GitLab and Forgejo for pull requests. Issues are the business of `symphony.trackers`."""

from collections.abc import Mapping
from typing import Final

from symphony.forges.base import Forge, ForgeAccess, ForgeError, Landing
from symphony.forges.forgejo import ForgejoForge
from symphony.forges.github import GithubForge
from symphony.forges.gitlab import GitlabForge

__all__ = [
    "FORGES",
    "Forge",
    "ForgeAccess",
    "ForgeError",
    "ForgejoForge",
    "GithubForge",
    "GitlabForge",
    "Landing",
]

FORGES: Final[Mapping[str, type[GithubForge | GitlabForge | ForgejoForge]]] = {
    "github": GithubForge,
    "gitlab": GitlabForge,
    "forgejo": ForgejoForge,
}
"""The clients by the kinds of `forge.kind`."""
