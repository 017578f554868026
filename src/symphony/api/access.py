"""Access to the API and the pages: who the caller is, and what that caller may do.

The rows in `routes` say what each route needs.

| caller | proof | may read | may order |
|---|---|---|---|
| owner | uses the control socket | yes | yes; by a form with its CSRF value |
| operator | sends the operator token | yes | yes |
| browser | sends its cookie below the path of its pages | yes | with the CSRF value of this cookie |
| anybody | none | only with `server.public_reads`, on the loopback interface | no |

Only its owner may open the file of the control socket. Everybody may request `/healthz`, sign in, and get the
files that pages load. Agents and other users share the loopback interface, so an address proves nothing.

On the loopback interface the Host header must be a name of this machine (against DNS rebinding). The control
socket also accepts names without a dot, because a port of another machine can be forwarded to it. Other
addresses accept any name: a browser sends the cookie only for the name with which it signed in, and never
adds the token. Orders by web pages of other origins are always refused.
"""

import hmac
import ipaddress
import re
from enum import Enum
from typing import Final

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from symphony.api.http import RequestError
from symphony.api.routes import ACTIONS_PATH, READING_METHODS, Needs, needs_of
from symphony.api.sign_in import BrowserSignIn

CSRF_HEADER: Final = "x-csrf-token"
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_OWN_SITE: Final = frozenset({"same-origin", "none"})
_BEARER: Final = "bearer "
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
_CONTROL: Final = "control"
_ROOT: Final = "symphony.root"  # in the scope of a request: the path of pages before its path
_FORMER_NAME: Final = re.compile(r"symphony-[0-9a-f]+\.localhost")
_FORMER_ROOT: Final = re.compile(rf"/~[0-9a-f]+(?={ACTIONS_PATH}/)")
# RFC 9110 7.2: an IPv6 address in brackets or a name, and a port of digits.
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:/?#@\s]+))(?::[0-9]{0,5})?", re.ASCII)


class Caller(Enum):
    """The kinds of callers; see the table of this module."""

    OWNER = "owner"
    OPERATOR = "operator"
    BROWSER = "browser"
    ANYBODY = "anybody"


class Access(Struct, frozen=True, kw_only=True):
    """The access rule of one listener.

    Attributes:
        sign_in: checks the cookies of browsers.
        hosts: allowed names in the Host header besides that of `sign_in`, in lower case; `None` allows any.
        token: the operator token; `None` on the control socket, where every caller is the owner.
        public_reads: everybody may read, ask for a refresh, and give feedback from which nothing is learned.
    """

    sign_in: BrowserSignIn
    hosts: frozenset[str] | None = None
    token: str | None = None
    public_reads: bool = False

    @classmethod
    def tcp(cls, host: str, token: str, sign_in: BrowserSignIn, *, public_reads: bool = False) -> "Access":
        """The rule of a bound address; `public_reads` has an effect only on the loopback interface."""
        local = is_loopback(host)
        hosts = _LOOPBACK_NAMES | {host.lower()} if local else None
        return cls(sign_in=sign_in, hosts=hosts, token=token, public_reads=public_reads and local)

    def check(self, request: HTTPConnection) -> None:
        """Check a request before any other code uses it; `check_form` also checks forms.

        Raises:
            RequestError: 401 or 403; for an order also 415.
        """
        headers, method = request.headers, request.scope["method"]
        needs = needs_of(method, form_path(request.scope["path"]))
        if needs is Needs.NO_CHECK:
            return
        if not self._is_own_name(name := _name(headers.get("host", ""))):
            message = "the Host header does not name this daemon"
            if _FORMER_NAME.fullmatch(name):
                message = "this address has ended with a restart or a sign-out: the pages have another one"
            raise RequestError(403, "forbidden_host", message)
        if method not in READING_METHODS:
            _check_origin(headers)
            _check_type(headers, _FORM if needs in {Needs.FORM, Needs.SIGN_IN} else _JSON)
        if needs in {Needs.NOTHING, Needs.SIGN_IN}:
            return
        if self.public_reads and needs in {Needs.READ, Needs.VISIT}:
            return
        caller = self.caller(request)
        if caller is Caller.ANYBODY:
            message = (
                "this needs the bearer token in operator.token of the state directory, or a signed-in browser"
            )
            raise RequestError(401, "unauthorized", message, headers={"www-authenticate": "Bearer"})
        if caller is Caller.BROWSER and needs in {Needs.ORDER, Needs.VISIT}:
            self.check_form(request, headers.get(CSRF_HEADER, ""))

    def _is_own_name(self, name: str) -> bool:
        if self.token is None:
            return "." not in name or is_loopback(name) or name.endswith(".localhost")
        return self.hosts is None or name in self.hosts or name == self.sign_in.host

    def below_root(self, scope: Scope) -> Scope:
        """The request without the path of pages at the beginning of its path, if it is there."""
        root, path = self.sign_in.root, scope["path"]
        given, rest = path[: len(root)].encode(errors="replace"), path[len(root) :]
        if self.token is None or rest[:1] not in {"", "/"} or not hmac.compare_digest(given, root.encode()):
            return scope
        return {**scope, "path": rest or "/", _ROOT: root}

    def own_address(self, request: HTTPConnection) -> str | None:
        """The address with the daemon's own name, if the request used a name that all servers share."""
        host = request.headers.get("host", "")
        if self.token is None or self.hosts is None or _name(host) not in _LOOPBACK_NAMES:
            return None
        port = host.rpartition(":")[2]
        return f"http://{self.sign_in.host}{f':{port}' if port.isdecimal() else ''}"

    def check_form(self, request: HTTPConnection, csrf: str) -> None:
        """Check the CSRF value that came with a form.

        Raises:
            RequestError: 403.
        """
        if self.caller(request) is Caller.OPERATOR:
            return  # a browser never adds the token by itself
        expected = self.csrf(request)
        if expected is None or not hmac.compare_digest(csrf.encode(), expected.encode()):
            raise RequestError(
                403, "csrf", "this form is not of a page that this browser got; reload the page"
            )

    def may_order(self, request: HTTPConnection) -> bool:
        """Whether the caller has write access; a browser proves it with the CSRF value of its cookie."""
        match self.caller(request):
            case Caller.OWNER | Caller.OPERATOR:
                return True
            case Caller.BROWSER:
                expected, given = self.csrf(request), request.headers.get(CSRF_HEADER, "")
                return expected is not None and hmac.compare_digest(given.encode(), expected.encode())
            case Caller.ANYBODY:
                return False

    def csrf(self, request: HTTPConnection) -> str | None:
        """The CSRF value for the forms of a page; `None` if this caller cannot post forms."""
        if self.token is None:
            return self.sign_in.csrf(_CONTROL)
        cookie = self._cookie(request)
        return None if cookie is None else self.sign_in.csrf(cookie)

    def caller(self, request: HTTPConnection) -> Caller:
        """The kind of caller. A cookie does not make up for a wrong token."""
        if self.token is None:
            return Caller.OWNER
        if (given := request.headers.get("authorization")) is not None:
            scheme, value = given[: len(_BEARER)].lower(), given[len(_BEARER) :].strip()
            valid = scheme == _BEARER and hmac.compare_digest(value.encode(), self.token.encode())
            return Caller.OPERATOR if valid else Caller.ANYBODY
        return Caller.ANYBODY if self._cookie(request) is None else Caller.BROWSER

    def _cookie(self, request: HTTPConnection) -> str | None:
        """The valid cookie; it is valid only for pages, so that a stolen one is less useful."""
        is_below = root_of(request.scope) == self.sign_in.root
        return self.sign_in.valid_cookie(request.cookies) if is_below else None


def root_of(scope: Scope) -> str:
    """The path of pages before the path of a request, or empty: see `Access.below_root`."""
    return str(scope.get(_ROOT, ""))


def form_path(path: str) -> str:
    """The path of a form without the path of pages of a former daemon."""
    return _FORMER_ROOT.sub("", path)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; the only such name is `localhost`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name in a Host header, without port and brackets, in lower case; empty if it is malformed."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["address"] or found["name"]).lower()


def _check_origin(headers: Headers) -> None:
    """Refuse orders by web pages of another origin; browsers send these headers with each request."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    foreign = site is not None and site.lower() not in _OWN_SITE
    if origin is not None:
        host = headers.get("host", "").lower()
        foreign = foreign or origin.lower() not in {f"http://{host}", f"https://{host}"}
    if foreign:
        raise RequestError(403, "cross_origin", "a page of another origin may not do this")


def _check_type(headers: Headers, expected: str) -> None:
    """Refuse bodies of other types: forms of other origins are sent without a preflight."""
    kind = headers.get("content-type")
    if kind is not None and kind.partition(";")[0].strip().lower() != expected:
        raise RequestError(415, "unsupported_media_type", f"send {expected}, or no body")
