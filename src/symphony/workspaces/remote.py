"""The address of a repository, and the login that stood in it, kept apart.

An address with a password would stand in configurations, records and command lines, which agents and other
users of the machine can read. So everything works with the address alone, and git is told the login by a
credential helper, for one command, one scheme and one host: what is redirected elsewhere takes no login
along. The login is in the environment of that git and of what git starts, as long as they run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

__all__ = ["Login", "apart"]

_USER: Final = "SYMPHONY_REPO_USER"
_PASSWORD: Final = "SYMPHONY_REPO_PASSWORD"  # noqa: S105 - the name of a variable
_TOKEN_CHARS: Final = 20
_HELPER: Final = (
    f'!f() {{ test "$1" = get && printf \'username=%s\\npassword=%s\\n\' "${_USER}" "${_PASSWORD}"; }}; f'
)
# Up to the last @, as a password may hold one. With ssh the user belongs to the address, and a password is of
# no use.
_ADDRESS = re.compile(
    r"(?i)(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<login>[^/?#]*)@(?P<host>[^@/?#]*)(?P<rest>.*)", re.DOTALL
)
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]+")


@dataclass(frozen=True, slots=True)
class Login:
    """Who git is to one server; without a password git's own helpers are asked for it."""

    server: str
    user: str = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def options(self) -> tuple[str, ...]:
        """What git is told on its command line, where nothing secret stands."""
        key = f"credential.{self.server}"
        if self.password is None:
            return (f"--config-env={key}.username={_USER}",)
        # The empty one lets no other helper answer first, or keep what ours says.
        return ("-c", f"{key}.helper=", "-c", f"{key}.helper={_HELPER}")

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the options refer to."""
        return {_USER: self.user, _PASSWORD: self.password or ""}

    @property
    def secrets(self) -> Iterator[str]:
        """What must be shown nowhere; a long name is a token, as in `https://TOKEN:x-oauth-basic@host`."""
        if self.password:
            yield self.password
        if len(self.user) >= _TOKEN_CHARS:
            yield self.user


def apart(address: str) -> tuple[str, Login | None]:
    """The address without a login, and the login; an address of ssh keeps its user.

    A login that git's protocol for credentials cannot express (with a line break) is left out.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address, None
    scheme, host = found["scheme"], found["host"]
    user, colon, password = found["login"].partition(":")
    if scheme.lower() not in {"http", "https"}:
        return f"{scheme}://{user}@{host}{found['rest']}", None
    clean = f"{scheme}://{host}{found['rest']}"
    login = Login(f"{scheme.lower()}://{host}", unquote(user), unquote(password) if colon else None)
    told = f"{login.user}{login.password or ''}"
    return clean, login if told.isprintable() and _HOST.fullmatch(host) else None
