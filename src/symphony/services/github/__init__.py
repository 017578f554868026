"""GitHub as a service: its addresses, its headers, and how it reports a rate limit."""

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from symphony.http import FORBIDDEN, THROTTLED, HttpResponse, ServiceProfile, plain_message, plain_status
from symphony.http.graphql import error_codes


def graphql_address(api_url: str) -> str:
    """The address of the GraphQL API: GitHub Enterprise Server has `/api/v3` and `/api/graphql`."""
    parts = urlsplit(api_url)
    path = parts.path.removesuffix("/v3") if parts.path.endswith("/api/v3") else parts.path
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/graphql", "", ""))


def _headers(token: str) -> Mapping[str, str]:
    return {
        "authorization": f"Bearer {token}",
        "accept": "application/vnd.github+json",
        "x-github-api-version": "2022-11-28",
    }


def _status(answer: HttpResponse) -> int:
    """The status; also 429 for a secondary rate limit, which GitHub may report only in words."""
    if error_codes(answer) & {"rate_limited", "rate_limit"}:
        return THROTTLED
    if answer.status == FORBIDDEN and "rate limit" in plain_message(answer.body).lower():
        return THROTTLED
    return plain_status(answer)


SERVICE = ServiceProfile(
    name="GitHub",
    credential_key="tracker.provider.token",
    scope_key="tracker.provider.repo",
    address="https://api.github.com",
    headers=_headers,
    status=_status,
    resource_header="x-ratelimit-resource",
    write_gap_ms=1_000,
)
