"""Signs browsers in: one-time links, cookies, and the CSRF values of forms.

Nothing is stored for a browser. Its cookie is `<expiry>.<nonce>.<signature>`, signed with a key of the state
directory, so it outlives a restart and is worthless for another daemon. Signing out replaces the key, which
ends the sign-in of all browsers.
"""

import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec
from anyio import to_thread
from msgspec import structs

COOKIE_S: Final = 14 * 24 * 3_600
"""How long a browser stays signed in."""
LINK_S: Final = 120.0
"""How long a one-time link can be used."""
_MAX_LINKS: Final = 32
_COOKIE_ATTRIBUTES: Final = "HttpOnly; SameSite=Strict; Path=/"


class BrowserKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a state directory keeps for the sign-in of browsers.

    Attributes:
        name: part of the cookie's name and of the host name in links; never changes.
        secret: signs cookies.
    """

    name: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    secret: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

    @classmethod
    def new(cls) -> "BrowserKey":
        """A random key."""
        return cls(name=secrets.token_hex(8), secret=secrets.token_hex(32))

    def replaced(self) -> "BrowserKey":
        """The key with another secret."""
        return structs.replace(self, secret=secrets.token_hex(32))


class LinkRefusedError(Exception):
    """A one-time link does not sign in; `used` says that it did once."""

    def __init__(self, *, used: bool) -> None:
        super().__init__()
        self.used = used


class BrowserSignIn:
    """The sign-in of browsers at one daemon.

    Args:
        key: signs cookies.
        save_key: keeps a replaced key; blocking.
        now_s: the wall clock, in seconds.
        uptime_s: the monotonic clock, in seconds.
    """

    def __init__(
        self,
        key: BrowserKey,
        *,
        save_key: Callable[[BrowserKey], None],
        now_s: Callable[[], float] = time.time,
        uptime_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key = key
        self._save_key = save_key
        self._now_s = now_s
        self._uptime_s = uptime_s
        self._links: dict[str, float] = {}
        self._used_links: deque[str] = deque(maxlen=_MAX_LINKS)

    @property
    def host(self) -> str:
        """A name of the loopback interface that is this daemon's own.

        Cookies do not tell ports apart: a browser sends the cookie of `localhost` to every server on this
        machine, also to one that an agent has started. It sends the cookie of this name to this daemon only.
        """
        return f"symphony-{self._key.name}.localhost"

    # --- links -------------------------------------------------------------------------------------------

    def new_link(self) -> str:
        """The secret of a link that signs one browser in, once, within `LINK_S`."""
        while len(self._links) >= _MAX_LINKS:
            del self._links[next(iter(self._links))]
        link = secrets.token_urlsafe(24)
        self._links[link] = self._uptime_s() + LINK_S
        return link

    def use_link(self, link: str) -> str:
        """Use up a link; the `Set-Cookie` header of the browser that is signed in now.

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
        return f"{self._cookie_name}={cookie}; Max-Age={COOKIE_S}; {_COOKIE_ATTRIBUTES}"

    # --- cookies -----------------------------------------------------------------------------------------

    def valid_cookie(self, cookies: Mapping[str, str]) -> str | None:
        """The value of this daemon's cookie if it is there and valid, else `None`."""
        value = cookies.get(self._cookie_name, "")
        content, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("cookie", content).encode()):
            return None
        return value if int(content.partition(".")[0]) > self._now_s() else None

    def csrf(self, cookie: str) -> str:
        """What a form must contain so that the browser with this cookie may post it."""
        return self._sign("csrf", cookie)

    async def sign_out(self) -> str:
        """End the sign-in of all browsers; the `Set-Cookie` header that removes this one's cookie."""
        self._key = self._key.replaced()
        self._links.clear()
        await to_thread.run_sync(self._save_key, self._key)
        return f"{self._cookie_name}=; Max-Age=0; {_COOKIE_ATTRIBUTES}"

    @property
    def _cookie_name(self) -> str:
        return f"symphony-{self._key.name}"

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.digest(self._key.secret.encode(), f"{purpose}:{text}".encode(), "sha256").hex()
