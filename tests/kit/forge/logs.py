"""The host with the logs of CI, which must never see the credential of the forge."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from contract.vendor import Vendor
from kit.forge.repository import Repository
from symphony.trackers.http import Reply, Send

LOGS = "https://logs.example.test"


class LogTransport:
    """Carries requests to the forge and to the host of its logs."""

    def __init__(self, vendor: Vendor, repository: Repository) -> None:
        self._vendor, self._repository = vendor, repository

    @asynccontextmanager
    async def session(self, base: str) -> AsyncIterator[Send]:
        async def send(method: str, address: str, headers: Mapping[str, str], content: bytes | None) -> Reply:
            assert (method, content) == ("GET", None)
            assert self._vendor.secret not in str(headers), "the credential stays with the forge"
            log = self._repository.log(int(urlsplit(address).path.strip("/")))
            return Reply(status=200 if log else 404, headers={}, content=log)

        if base == self._vendor.base:
            async with self._vendor.session(base) as own:
                yield own
        else:
            assert base.startswith(LOGS)
            yield send
