"""Reads the proxies and certificates that the environment names.

No message of this module contains a value, because the address of a proxy may have a password.
"""

import os
import ssl
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

_SCHEMES: Final = frozenset({"http", "https", "socks5", "socks5h"})
_PORTS: Final = {"http": 80, "https": 443}


class EnvironmentVariableError(Exception):
    """A variable cannot be used. The text is one line with its name and without its value."""


class Proxy(Struct, frozen=True):
    """A proxy and the variable that names it."""

    variable: str
    url: str


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine."""
    host = (urlsplit(address).hostname or "").lower()
    found = _address(host)
    return host == "localhost" or (found is not None and found.is_loopback)


def proxy_for(address: str, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for an address; `None` without one, and always for this machine.

    As in curl, a lower-case name comes before its upper-case form, and `ALL_PROXY` comes last.

    Raises:
        EnvironmentVariableError: a variable that applies to this address cannot be used.
    """
    if is_loopback(address):
        return None
    for scheme in (urlsplit(address).scheme, "all"):
        variable, value = _variable(f"{scheme}_proxy", environment)
        if value:
            return None if _is_exempt(address, environment) else _proxy(variable, value)
    return None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _variable(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    variable = name if name in environment else name.upper()
    return variable, environment.get(variable, "").strip()


def _proxy(variable: str, value: str) -> Proxy:
    url = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise EnvironmentVariableError(f"{variable} has an address with an invalid host or port") from error
    if parts.scheme not in _SCHEMES:
        schemes = ", ".join(sorted(_SCHEMES))
        raise EnvironmentVariableError(f"{variable} has an address of an unknown kind, not one of {schemes}")
    if not parts.hostname:
        raise EnvironmentVariableError(f"{variable} has an address without a host")
    return Proxy(variable, url)


def _is_exempt(address: str, environment: Mapping[str, str]) -> bool:
    variable, value = _variable("no_proxy", environment)
    parts = urlsplit(address)
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
    entries = value.lower().replace(",", " ").split()
    return any(_matches(entry, host, port, variable) for entry in entries)


def _matches(entry: str, host: str, port: int | None, variable: str) -> bool:
    """Whether an entry of `NO_PROXY` (`*`, a name, an address or a network) matches a host."""
    if entry == "*":
        return True
    if "://" not in entry and "/" in entry:
        try:
            network = ip_network(entry.replace("[", "").replace("]", ""), strict=False)
        except ValueError as error:
            raise EnvironmentVariableError(f"{variable} has an invalid network") from error
        found = _address(host)
        return found is not None and found in network
    if wanted := _address(entry.strip("[]")):
        return wanted == _address(host)
    try:
        parts = urlsplit(entry if "://" in entry else f"all://{entry}")
        name, only_port = parts.hostname or "", parts.port
    except ValueError as error:
        raise EnvironmentVariableError(f"{variable} has an invalid host or port") from error
    if only_port is not None and only_port != port:
        return False
    name = name.removeprefix("*")
    return bool(name) and (host == name or host.endswith(name if name[0] == "." else f".{name}"))


def check_certificates(environment: Mapping[str, str]) -> None:
    """Check `SSL_CERT_FILE`, or without it `SSL_CERT_DIR`. Blocks.

    Raises:
        EnvironmentVariableError: it is missing, cannot be read, or holds no certificate.
    """
    if file := environment.get("SSL_CERT_FILE"):
        try:
            ssl.create_default_context(cafile=file)
        except ssl.SSLError as error:
            raise EnvironmentVariableError("SSL_CERT_FILE names a file without a PEM certificate") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a path"
            raise EnvironmentVariableError(
                f"SSL_CERT_FILE names a file that cannot be read ({reason})"
            ) from error
        return
    folders = environment.get("SSL_CERT_DIR")
    if folders and not any(Path(each).is_dir() for each in folders.split(os.pathsep)):
        raise EnvironmentVariableError("SSL_CERT_DIR names no folder")
