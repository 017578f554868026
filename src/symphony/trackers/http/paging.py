"""Pages without end and pages of others: the guards that every listing passes (TR8)."""

import re
from collections.abc import Mapping
from typing import Any

from symphony.trackers.base import TrackerError
from symphony.trackers.http.dialect import Dialect
from symphony.trackers.http.failures import paging
from symphony.trackers.http.model import Answer, Request, origin_of

__all__ = ["MAX_PAGES", "Trail", "next_link"]

MAX_PAGES = 500
MAX_ITEMS = 50_000
_LINK = re.compile(r"<([^<>]{1,8000})>\s*((?:;[^,<]*)+)")
_NEXT = re.compile(r";\s*rel\s*=\s*\"?(?:[^\";]*\s)?next(?:\s[^\";]*)?\"?\s*(?:;|$)", re.IGNORECASE)


def next_link(headers: Mapping[str, str]) -> str | None:
    """The address of the next page by the `Link` header, or null on the last one."""
    for address, parameters in _LINK.findall(headers.get("link", "")):
        if _NEXT.search(parameters):
            return str(address)
    return None


class Trail:
    """The way through one listing; each method raises `TrackerError` where it goes wrong."""

    def __init__(self, dialect: Dialect, request: Request, base: str) -> None:
        self._dialect, self._request = dialect, request
        self._origin = origin_of(base)
        self._seen: set[str] = {request.address(base)}
        self._items = 0

    def count(self, items: int) -> None:
        """Take note of what a page held."""
        self._items += items
        if self._items > MAX_ITEMS:
            raise self._lost(f"more than {MAX_ITEMS} records; narrow the scope")

    def cursor(self, value: Any) -> str:
        """The cursor of the next page, when the server says that there is one."""
        if not isinstance(value, str | int) or isinstance(value, bool) or not str(value):
            raise self._lost("there is a next page, and no cursor that leads to it")
        return self._once(str(value), "the same cursor twice")

    def link(self, answer: Answer) -> str | None:
        """The address of the next page on the same host, or null where this was the last."""
        address = next_link(answer.headers)
        if address is None:
            return None
        try:
            same = origin_of(address) == self._origin
        except ValueError:
            same = False
        if not same:
            raise self._lost("the next page is on another host, where the credential must not go")
        return self._once(address, "the same page twice")

    def _once(self, key: str, problem: str) -> str:
        if key in self._seen:
            raise self._lost(problem)
        if len(self._seen) >= MAX_PAGES:
            raise self._lost(f"more than {MAX_PAGES} pages")
        self._seen.add(key)
        return key

    def _lost(self, problem: str) -> TrackerError:
        return paging(self._dialect, self._request, problem)
