"""Signs browsers in: one-time links, cookies, and the CSRF values of forms.

Nothing is stored for a browser. Its cookie is `<expiry>.<nonce>.<signature>`, signed with a key that each
daemon makes at its start. Browsers share cookies between ports, and an agent can start a server on another
port. So a signed-in browser needs three things that come from the key:

- the host name, which only this daemon has, while all servers on the machine share the machine's names;
- the path below which all pages are. A browser sends the cookie only there, so a page on another port of this
  name, which does not know the path, never gets it. A cookie is valid only below this path;
- the cookie.

Signing out, and the end of the daemon, replace all of them, which ends the sign-in of all browsers.
"""

import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from cachetools import FIFOCache

COOKIE_S: Final = 14 * 24 * 3_600
"""How long a browser stays signed in at most."""
LINK_S: Final = 120.0
"""How long a one-time link can be used."""
_MAX_LINKS: Final = 32
_COOKIE_ATTRIBUTES: Final = "HttpOnly; SameSite=Strict"
_ROOT_DIGITS: Final = 32


class BrowserKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key of the sign-in of browsers.

    Attributes:
        name: a part of the cookie's name and of the host name in links.
        secret: signs cookies, and determines the path of pages.
    """

    name: str
    secret: str

    @classmethod
    def new(cls) -> "BrowserKey":
        """A random key."""
        return cls(name=secrets.token_hex(8), secret=secrets.token_hex(32))


class LinkRefusedError(Exception):
    """A one-time link is invalid; `used` means that it was used before."""

    def __init__(self, *, used: bool) -> None:
        super().__init__()
        self.used = used


class BrowserSignIn:
    """The sign-in of browsers at one daemon.

    Args:
        key: by default a new one.
        now_s: the wall clock, in seconds.
        uptime_s: the monotonic clock, in seconds.
    """

    def __init__(
        self,
        key: BrowserKey | None = None,
        *,
        now_s: Callable[[], float] = time.time,
        uptime_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key = key or BrowserKey.new()
        self._now_s = now_s
        self._uptime_s = uptime_s
        self._links: FIFOCache[str, float] = FIFOCache(_MAX_LINKS)
        self._used_links: deque[str] = deque(maxlen=_MAX_LINKS)

    @property
    def host(self) -> str:
        """The name of the loopback interface that only this daemon has."""
        return f"symphony-{self._key.name}.localhost"

    @property
    def root(self) -> str:
        """The path below which a signed-in browser finds all pages."""
        return f"/~{self._sign('root', '')[:_ROOT_DIGITS]}"

    # --- links -------------------------------------------------------------------------------------------

    def new_link(self) -> str:
        """The secret of a link that signs one browser in, once, within `LINK_S`."""
        link = secrets.token_urlsafe(24)
        self._links[link] = self._uptime_s() + LINK_S
        return link

    def is_open(self, link: str) -> bool:
        """Whether a link can be used."""
        return self._links.get(link, -1.0) >= self._uptime_s()

    def use_link(self, link: str) -> str:
        """Use up a link; return the `Set-Cookie` header that signs the browser in.

        Raises:
            LinkRefusedError: the link was used before, is too old, or never existed.
        """
        deadline = self._links.pop(link, None)
        if deadline is None:
            raise LinkRefusedError(used=link in self._used_links)
        if deadline < self._uptime_s():
            raise LinkRefusedError(used=False)
        self._used_links.append(link)
        content = f"{int(self._now_s()) + COOKIE_S}.{secrets.token_urlsafe(12)}"
        cookie = f"{content}.{self._sign('cookie', content)}"
        return f"{self._cookie_name}={cookie}; Max-Age={COOKIE_S}; {_COOKIE_ATTRIBUTES}; Path={self.root}"

    # --- cookies -----------------------------------------------------------------------------------------

    def valid_cookie(self, cookies: Mapping[str, str]) -> str | None:
        """The value of this daemon's cookie if it is there and valid, else `None`."""
        value = cookies.get(self._cookie_name, "")
        content, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("cookie", content).encode()):
            return None
        return value if int(content.partition(".")[0]) > self._now_s() else None

    def csrf(self, cookie: str) -> str:
        """The value that a form must contain so that the browser with this cookie may post it."""
        return self._sign("csrf", cookie)

    def sign_out(self) -> str:
        """End the sign-in of all browsers; return the `Set-Cookie` header that removes this one's cookie."""
        removed = f"{self._cookie_name}=; Max-Age=0; {_COOKIE_ATTRIBUTES}; Path={self.root}"
        self._key = BrowserKey.new()
        self._links.clear()
        return removed

    @property
    def _cookie_name(self) -> str:
        return f"symphony-{self._key.name}"

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.digest(self._key.secret.encode(), f"{purpose}:{text}".encode(), "sha256").hex()
