"""Reads `tracker.provider` for an adapter: `$VAR`, secrets, addresses; tells all mistakes (CF3-CF5, TR7)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from symphony.config import Secret, nearest_variable, reference_name, resolve_secret
from symphony.domain import Blame, Category, Failure, normalise_state
from symphony.trackers.base import ConfigProblem, TrackerConfigError
from symphony.trackers.http.client import is_loopback
from symphony.trackers.http.exchange import origin_of

INSECURE_HTTP = "insecure_http"
"""The key by which plain http is allowed beyond this machine."""

SCOPE = "scope"
"""The key that says what the agent's raw tool may reach."""

_CONTROL = re.compile(r"[\x00-\x20\x7f]")


class ProviderReader:
    """The keys of one provider. Each reading notes what is wrong with its key; `done` tells it all.

    Every method returns something of its type even so, so that one mistake does not hide another.
    """

    def __init__(self, kind: str, provider: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._kind = kind
        self._provider = provider
        self._environment = environment
        self._problems: list[ConfigProblem] = []
        self._insecure_http = self.flag(INSECURE_HTTP, default=False)

    def done(self) -> None:
        """Raise `TrackerConfigError` if anything was wrong."""
        if self._problems:
            raise TrackerConfigError(self._problems)

    def wrong(self, key: str, problem: str, *, hint: str | None = None, secret: bool = False) -> None:
        """Note that the key of the provider has a problem, a phrase that follows its name."""
        self.wrong_at(("tracker", "provider", key), problem, hint=hint, secret=secret)

    def wrong_at(
        self, location: tuple[str, ...], problem: str, *, hint: str | None = None, secret: bool = False
    ) -> None:
        """As `wrong`, for any key."""
        failure = Failure(
            category=Category.MISSING_TRACKER_SECRET if secret else Category.INVALID_TRACKER_CONFIG,
            blame=Blame.CONFIG,
            message=f"{'.'.join(location)} {problem}",
            retryable=False,
            hint=hint or f"docs/trackers/{self._kind}.md describes the settings",
        )
        self._problems.append(ConfigProblem(location=location, failure=failure))

    def given(self, key: str) -> bool:
        """Whether the key stands in the file."""
        return key in self._provider

    def text(self, key: str, *, variable: str | None = None, default: str | None = None) -> str | None:
        """A text, `$NAME` resolved; where it is left out or unset, `variable`, then the default."""
        value = self._provider.get(key)
        if isinstance(value, Secret):
            value = value.reveal()
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if value is not None and not isinstance(value, str):
            self.wrong(key, "must be a text")
            return default
        name = reference_name(value)
        if name is not None:
            value = self._environment.get(name)
        if value is None and variable is not None:
            value = self._environment.get(variable)
        return value.strip() if value and value.strip() else default

    def needed(
        self, key: str, *, variable: str | None = None, rule: re.Pattern[str] | None = None, must: str = ""
    ) -> str:
        """As `text`, for what there must be; `must` says the rule in words ("be owner/name")."""
        told = len(self._problems)
        value = self.text(key, variable=variable)
        if value is None and len(self._problems) > told:
            return ""
        if value is None:
            hint = f"set it, or the variable {variable}" if variable else None
            self.wrong(key, "is required", hint=hint)
            return ""
        if rule is not None and not rule.fullmatch(value):
            self.wrong(key, f"must {must}")
        return value

    def secret(self, key: str, *, variable: str) -> str:
        """The credential: of the file, by `$NAME`, or of the documented variable (CF4)."""
        value = self._provider.get(key)
        if value is not None and not isinstance(value, str | Secret):
            self.wrong(key, "must be a text")
            return ""
        found = resolve_secret(value, environment=self._environment, fallback=variable)
        if found is None:
            name = reference_name(value) or variable
            near = nearest_variable(name, self._environment)
            meant = "" if near is None else f"did you mean ${near}, which is set? Else "
            hint = f"{meant}set {name} where the daemon starts, and write ${name} here"
            self.wrong(key, "has no credential", hint=hint, secret=True)
            return ""
        secret = found.reveal()
        if _CONTROL.search(secret) or not secret.isascii():
            self.wrong(key, "holds characters that no credential has", secret=True)
        return secret

    def address(self, key: str, default: str, *, variable: str | None = None) -> str:
        """A base address without its last slash: https; plain http to this machine, or by `insecure_http`."""
        value = (self.text(key, variable=variable, default=default) or default).rstrip("/")
        parts = urlsplit(value)
        try:
            scheme, _, _ = origin_of(value)
        except ValueError as error:
            self.wrong(key, f"cannot be used: {error}")
            return default
        if parts.query or parts.fragment or _CONTROL.search(value):
            self.wrong(key, "must be an address without query, fragment or blanks")
            return default
        if scheme == "http" and not is_loopback(value) and not self._insecure_http:
            hint = f"use https, or accept that the credential can be read on the way: {INSECURE_HTTP}: true"
            self.wrong(key, "is plain http to another machine", hint=hint)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._provider.get(key, default)
        if isinstance(value, bool):
            return value
        self.wrong(key, "must be true or false")
        return default

    def whole(self, key: str, *, default: int | None = None) -> int | None:
        """A number greater than 0."""
        value = self._provider.get(key, default)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            return value
        self.wrong(key, "must be a number greater than 0")
        return default

    def choice(self, key: str, options: Sequence[str], *, default: str) -> str:
        """One of the options."""
        value = self.text(key, default=default)
        if value in options:
            return value or default
        self.wrong(key, f"must be one of {', '.join(options)}")
        return default

    def part(self, key: str) -> Mapping[str, Any]:
        """A map below the provider, empty where it is left out."""
        value = self._provider.get(key, {})
        if isinstance(value, Mapping):
            return value
        self.wrong(key, "must be a map")
        return {}

    def states(
        self, key: str, wanted: Sequence[str] | None, *, default: Sequence[str] | None
    ) -> tuple[str, ...]:
        """`active_states` or `terminal_states`, no blanks, no repeats; required where there is no default."""
        if wanted is None and default is None:
            self.wrong_at(("tracker", key), "must be set", hint=f"{self._kind} has no states of its own")
            return ()
        if wanted is None:
            return tuple(default or ())
        names: dict[str, str] = {}
        for name in wanted:
            if name.strip():
                names.setdefault(normalise_state(name), name.strip())
        return tuple(names.values())
