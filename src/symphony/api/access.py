"""Access to the API, by listener.

- Control socket: the permissions of the socket file decide.
- TCP on the loopback interface: every process of this machine may read, and web pages of other sites may
  not. These are recognised by the Host header (against DNS rebinding) and, if they write, by their origin.
- TCP on any other address: every request needs a bearer token. The Host header is not checked there, because
  a browser never adds the token by itself.

Actions of an operator (stop, answer, pause ...) need the token on any TCP port: agents run on this machine
too, and must not answer their own questions.
"""

import hmac
import ipaddress
import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from symphony.api.http import RequestError

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_OWN_SITE = frozenset({"same-origin", "none"})
_BEARER = "bearer "
# RFC 9110 7.2: an IPv6 address in brackets or a name, and a port of digits.
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:/?#@\s]+))(?::[0-9]{0,5})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The access rule of one listener.

    Attributes:
        hosts: names that the Host header may have, in lower case; `None` allows any.
        token: needed for every request; `None` if no token is.
        action_token: needed for actions of an operator; `None` if no token is.
    """

    hosts: frozenset[str] | None
    token: str | None
    action_token: str | None

    @classmethod
    def tcp(cls, host: str, token: str) -> "Access":
        """The rule of a bound address: on the loopback interface the token is for actions only."""
        if is_loopback(host):
            return cls(hosts=_LOOPBACK_NAMES | {host.lower()}, token=None, action_token=token)
        return cls(hosts=None, token=token, action_token=token)

    def check(self, headers: Headers, *, writes: bool) -> None:
        """Check a request.

        Raises:
            RequestError: 401 or 403; for a write also 415.
        """
        if self.token is not None:
            _check_token(headers, self.token)
        if self.hosts is not None and _name(headers.get("host", "")) not in self.hosts:
            raise RequestError(403, "forbidden_host", "the Host header does not name this daemon")
        if writes:
            _check_origin(headers)
            _check_type(headers)

    def check_action(self, headers: Headers) -> None:
        """Check an action of an operator, in addition to `check`.

        Raises:
            RequestError: 401.
        """
        if self.action_token is not None:
            _check_token(headers, self.action_token)


CONTROL = Access(hosts=None, token=None, action_token=None)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only; of names, only `localhost` counts."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_token(headers: Headers, token: str) -> None:
    given = headers.get("authorization", "")
    scheme, value = given[: len(_BEARER)].lower(), given[len(_BEARER) :].strip()
    if scheme != _BEARER or not hmac.compare_digest(value.encode(), token.encode()):
        message = "a bearer token is needed here: the one in operator.token of the state directory"
        raise RequestError(401, "unauthorized", message, headers={"www-authenticate": "Bearer"})


def _name(host: str) -> str:
    """The name in a Host header, without port and brackets, in lower case; empty if it is malformed."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["address"] or found["name"]).lower()


def _check_origin(headers: Headers) -> None:
    """Refuse writes by web pages of another origin; browsers send these headers with each request."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    foreign = site is not None and site.lower() not in _OWN_SITE
    if origin is not None:
        host = headers.get("host", "").lower()
        foreign = foreign or origin.lower() not in {f"http://{host}", f"https://{host}"}
    if foreign:
        raise RequestError(403, "cross_origin", "a page of another origin may not do this")


def _check_type(headers: Headers) -> None:
    """Refuse what an HTML form can send: browsers send forms across origins without a preflight."""
    kind = headers.get("content-type")
    if kind is not None and kind.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "unsupported_media_type", "send JSON, as application/json, or no body")
