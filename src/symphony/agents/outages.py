"""Answers of a model's side that mean "not now": they say nothing about the issue or the settings. Pure."""

import re
from http import HTTPStatus
from typing import Final

_STATUSES: Final = r"(?:status|code|error|http(?:/[\d.]+)?)\W{0,12}5\d\d\b"
_PHRASES: Final = (
    r"\b5\d\d \W?(?:internal server error|bad gateway|service (?:temporarily )?unavailable|gateway time-?out)"
    r"|internal server error|bad gateway|service (?:temporarily )?unavailable|gateway time-?out|overloaded"
)
_CONNECTIONS: Final = (
    r"connection (?:error|refused|reset|closed|aborted|failed|timed? ?out|was closed)|connectionrefused"
    r"|(?:unable|failed) to connect|error sending request|fetch failed|socket hang up"
    r"|network (?:error|is unreachable)|(?:empty|malformed) response"
    r"|\bE(?:CONNREFUSED|CONNRESET|CONNABORTED|TIMEDOUT|AI_AGAIN|NOTFOUND|HOSTUNREACH|NETUNREACH|PIPE)\b"
    r"|request (?:timed out|timeout)|operation timed out|stream (?:disconnected|closed|ended)"
    r"|(?:dns|lookup|resolv\w+|resolution).{0,40}(?:fail|error|address|host)|getaddrinfo"
    r"|name or service not known"
)
OUTAGE: Final = re.compile(f"{_STATUSES}|{_PHRASES}|{_CONNECTIONS}", re.IGNORECASE)
"""An outage in the words of HTTP clients and of the system's resolver, as agents pass them on."""


def is_outage(status: int | None) -> bool:
    """Whether an HTTP status is an outage: a failure of the server (RFC 9110, 15.6), or a time-out."""
    return status is not None and (
        status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT
    )
