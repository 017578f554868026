"""Forgejo and Gitea as a service: their addresses and their header."""

from collections.abc import Mapping

from symphony.http import ServiceProfile


def api_address(url: str) -> str:
    """The address of the API at the address of the site, or of the API itself."""
    return f"{url.rstrip('/').removesuffix('/api/v1')}/api/v1"


def _headers(token: str) -> Mapping[str, str]:
    return {"authorization": f"token {token}"}


SERVICE = ServiceProfile(
    name="Forgejo",
    credential_key="tracker.provider.token",
    scope_key="tracker.provider.repo",
    address=api_address("https://codeberg.org"),
    headers=_headers,
)
