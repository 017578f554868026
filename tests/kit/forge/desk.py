"""A client of each kind with the forge that it talks to."""

from dataclasses import dataclass
from typing import Any

from contract.vendor import Clock, Vendor
from kit.forge.forgejo import ForgejoForgeVendor
from kit.forge.github import GithubForgeVendor
from kit.forge.gitlab import GitlabForgeVendor
from kit.forge.logs import LogTransport
from kit.forge.repository import Repository
from symphony.forges import Forge, ForgejoForge, GithubForge, GitlabForge
from symphony.trackers.http import RateLimiters


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A client and what it talks to."""

    kind: str
    repository: Repository
    vendor: Vendor
    clock: Clock
    forge: Forge


KINDS: dict[str, tuple[Any, Any]] = {
    "github": (GithubForgeVendor, GithubForge),
    "gitlab": (GitlabForgeVendor, GitlabForge),
    "forgejo": (ForgejoForgeVendor, ForgejoForge),
}


def make_desk(kind: str) -> Desk:
    served, client = KINDS[kind]
    clock, repository = Clock(), Repository()
    vendor = served(clock, repository)
    forge = client(
        "octo-team/website",
        vendor.secret,
        url=vendor.base,
        transport=vendor,
        logs=LogTransport(vendor, repository),
        rate_limiters=RateLimiters(),
        now_ms=clock.now_ms,
        sleep=clock.sleep,
    )
    return Desk(kind=kind, repository=repository, vendor=vendor, clock=clock, forge=forge)
