"""Clients of GitHub, GitLab and Forgejo for pull requests. Issues are the business of `symphony.trackers`."""

from symphony.forges.base import Forge, ForgeAccess, ForgeError, Landing
from symphony.forges.forgejo import ForgejoForge
from symphony.forges.github import GithubForge
from symphony.forges.gitlab import GitlabForge

__all__ = ["Forge", "ForgeAccess", "ForgeError", "ForgejoForge", "GithubForge", "GitlabForge", "Landing"]
