"""Who may ask.

Three ways in, three proofs:

- the control socket: the permission of its file is the permission;
- TCP on the loopback interface: being on this machine, and not being a web page. A page of another site is
  refused by the Host header it cannot forge (DNS rebinding) and, where it would write, by its origin;
- TCP anywhere else: a bearer token on every request. A browser never adds one by itself, so the name
  in the Host header, which may be any, proves nothing there and is not judged.

What an operator orders (stop, answer, pause ...) takes the token on any TCP port: agents are on this machine
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
    """The rule of one way in.

    Attributes:
        hosts: names that a Host header may give, lower case; null where any will do.
        token: what a bearer must show for anything at all; null where nothing is needed.
        order_token: what a bearer must show for the verbs of an operator; null where nothing is needed.
    """

    hosts: frozenset[str] | None
    token: str | None
    order_token: str | None

    @classmethod
    def tcp(cls, host: str, token: str) -> "Access":
        """The rule of a bound address: on the loopback interface the token is for orders only."""
        if is_loopback(host):
            return cls(hosts=_LOOPBACK_NAMES | {host.lower()}, token=None, order_token=token)
        return cls(hosts=None, token=token, order_token=token)

    def check(self, headers: Headers, *, writes: bool) -> None:
        """Let the request pass.

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

    def check_order(self, headers: Headers) -> None:
        """Let an order of an operator pass, which `check` has let pass as a write.

        Raises:
            RequestError: 401.
        """
        if self.order_token is not None:
            _check_token(headers, self.order_token)


CONTROL = Access(hosts=None, token=None, order_token=None)


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reached from this machine only; a name counts only as `localhost`."""
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
    """The name of a Host header, without port and brackets, lower case; empty where it is none."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["address"] or found["name"]).lower()


def _check_origin(headers: Headers) -> None:
    """No page of another origin may write: browsers tell where a request comes from."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    foreign = site is not None and site.lower() not in _OWN_SITE
    if origin is not None:
        host = headers.get("host", "").lower()
        foreign = foreign or origin.lower() not in {f"http://{host}", f"https://{host}"}
    if foreign:
        raise RequestError(403, "cross_origin", "a page of another origin may not do this")


def _check_type(headers: Headers) -> None:
    """A form could be sent by any page without being asked for permission first; JSON could not."""
    kind = headers.get("content-type")
    if kind is not None and kind.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "unsupported_media_type", "send JSON, as application/json, or no body")
