"""Listings of several pages, with limits on their number and size, that never leave the host."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from symphony.domain import ServiceError
from symphony.http.exchange import Flow, HttpResponse, Request, origin_of
from symphony.http.service import ServiceProfile

MAX_PAGES = 500
MAX_RECORDS = 50_000
_LINK = re.compile(r"<([^<>]{1,8000})>\s*((?:;[^,<]*)+)")
_NEXT = re.compile(r";\s*rel\s*=\s*\"?(?:[^\";]*\s)?next(?:\s[^\";]*)?\"?\s*(?:;|$)", re.IGNORECASE)

Page = tuple[Sequence[Any], Request | None]
"""The records of a page, and the request for the next one."""


def next_link(headers: Mapping[str, str]) -> str | None:
    """The address of the next page in the `Link` header; `None` on the last page."""
    for address, parameters in _LINK.findall(headers.get("link", "")):
        if _NEXT.search(parameters):
            return str(address)
    return None


class PageGuard:
    """Guards one listing. Each method raises `ServiceError` (`tracker_pagination`) when a limit is broken."""

    def __init__(self, service: ServiceProfile, request: Request, base: str) -> None:
        self._service, self._request = service, request
        self._origin = origin_of(base)
        self._seen: set[str] = {request.address(base)}
        self._records = 0

    def count(self, records: int) -> None:
        """Add the records of a page."""
        self._records += records
        if self._records > MAX_RECORDS:
            raise self._error(f"more than {MAX_RECORDS} records; narrow the scope")

    def cursor(self, value: Any) -> str:
        """The cursor of the next page, if the server says that there is one."""
        if not isinstance(value, str | int) or isinstance(value, bool) or not str(value):
            raise self._error("there is a next page, but no cursor for it")
        return self._once(str(value), "the same cursor twice")

    def link(self, answer: HttpResponse) -> str | None:
        """The address of the next page, which must be on the same host; `None` on the last page."""
        address = next_link(answer.headers)
        if address is None:
            return None
        try:
            same = origin_of(address) == self._origin
        except ValueError:
            same = False
        if not same:
            raise self._error("the next page is on another host, where the credential must not go")
        return self._once(address, "the same page twice")

    def _once(self, key: str, problem: str) -> str:
        if key in self._seen:
            raise self._error(problem)
        if len(self._seen) >= MAX_PAGES:
            raise self._error(f"more than {MAX_PAGES} pages")
        self._seen.add(key)
        return key

    def _error(self, problem: str) -> ServiceError:
        return self._service.bad_pagination(self._request, problem)


def all_pages(
    service: ServiceProfile, base: str, first: Request, read: Callable[[HttpResponse, PageGuard], Page]
) -> Flow[list[Any]]:
    """All records of a listing; `read` reads one page from an answer."""
    pager = PageGuard(service, first, base)
    records: list[Any] = []
    request: Request | None = first
    while request is not None:
        answer = yield request
        page, request = read(answer, pager)
        pager.count(len(page))
        records += page
    return records
