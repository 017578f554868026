"""The client of each forge with the service in memory that it talks to."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from contract.forgejo import ForgejoVendor
from contract.github import GithubVendor
from contract.github_pulls import LOGS
from contract.gitlab import GitlabVendor
from contract.repository import Repository
from contract.vendor import Clock, Vendor
from symphony.http import RateLimiters, RawResponse, Send
from symphony.services.forgejo.pulls import ForgejoForge
from symphony.services.github.pulls import GithubForge
from symphony.services.gitlab.pulls import GitlabForge
from symphony.services.pulls import Forge


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeDesk:
    """A client and what it talks to."""

    kind: str
    repository: Repository
    vendor: Vendor
    clock: Clock
    forge: Forge


KINDS: dict[str, tuple[Any, Any]] = {
    "github": (GithubVendor, GithubForge),
    "gitlab": (GitlabVendor, GitlabForge),
    "forgejo": (ForgejoVendor, ForgejoForge),
}


def forge_desk(kind: str) -> ForgeDesk:
    """A service with an empty repository, and a client of it."""
    served, client = KINDS[kind]
    clock, repository = Clock(), Repository()
    vendor = served(clock, repository)
    forge = client(
        repository.name,
        vendor.secret,
        url=vendor.base,
        transport=vendor,
        logs=_LogTransport(vendor, repository),
        rate_limiters=RateLimiters(),
        now_ms=clock.now_ms,
        sleep=clock.sleep,
    )
    return ForgeDesk(kind=kind, repository=repository, vendor=vendor, clock=clock, forge=forge)


class _LogTransport:
    """Carries requests to the forge and to the host with the logs of CI, which never sees the credential."""

    def __init__(self, vendor: Vendor, repository: Repository) -> None:
        self._vendor, self._repository = vendor, repository

    @asynccontextmanager
    async def session(self, base: str) -> AsyncIterator[Send]:
        async def send(
            method: str, address: str, headers: Mapping[str, str], content: bytes | None
        ) -> RawResponse:
            assert (method, content) == ("GET", None)
            assert self._vendor.secret not in str(headers), "the credential stays with the forge"
            log = self._repository.log(int(urlsplit(address).path.strip("/")))
            return RawResponse(status=200 if log else 404, headers={}, content=log)

        if base == self._vendor.base:
            async with self._vendor.session(base) as own:
                yield own
        else:
            assert base.startswith(LOGS)
            yield send
