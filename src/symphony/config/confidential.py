"""Secrets of a workflow file: known by the name of their key or by their shape, held masked (CF4, CF13)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from typing_extensions import override

from symphony.config.resolve import reference_name, referenced_variables
from symphony.domain.redaction import MASK, holds_credential

__all__ = ["Secret", "is_secret_key", "literal_secrets", "masked", "resolve_secret", "secret_values"]

_SECRET_KEY: Final = re.compile(
    r"(?i)(?:.*[_-])?(?:token|secret|passw(?:or)?d|pat|(?:api|access|private)[_-]?key|credentials?)s?"
)


class Secret:
    """A text that is shown nowhere: only `reveal` tells it, any form of it is a mask. Equal by its text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself."""
        return self._text

    @override
    def __str__(self) -> str:
        return MASK if self._text else ""

    @override
    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    @override
    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(self._text)


def is_secret_key(name: str) -> bool:
    """Whether a key is called like one whose value is a secret: `api_key`, `token`, `client_secret`."""
    return _SECRET_KEY.fullmatch(name) is not None


def masked(node: Any, *, secret: bool = False) -> Any:
    """A copy in which every literal below a secret key is a `Secret`; references stay what they are."""
    match node:
        case Mapping():
            return {key: masked(value, secret=secret or is_secret_key(key)) for key, value in node.items()}
        case list():
            return [masked(value, secret=secret) for value in node]
        case bool():
            return node
        case str() | int() | float() if secret and reference_name(node) is None:
            return Secret(str(node))
        case _:
            return node


def resolve_secret(
    value: object, *, environment: Mapping[str, str], fallback: str | None = None
) -> Secret | None:
    """The secret that an adapter's setting means, or null where there is none (CF4).

    Args:
        value: the setting: null where it is left out, `$NAME`, or the secret itself.
        environment: where variables are looked up.
        fallback: the variable that the adapter documents for a setting that is left out, or refers to a
            variable that is not set. One that is set but empty is a missing secret, no reason to fall back.
    """
    if isinstance(value, Secret):
        value = value.reveal()
    name = reference_name(value)
    if isinstance(value, str) and name is None:
        return _secret(value)
    if name is not None and name in environment:
        return _secret(environment[name])
    return None if fallback is None else _secret(environment.get(fallback, ""))


def _secret(text: str) -> Secret | None:
    return Secret(text.strip()) if text.strip() else None


def secret_values(node: object, environment: Mapping[str, str]) -> frozenset[str]:
    """What must be masked wherever it is shown: masked literals, and the values of referenced variables."""
    named = {environment[name] for name in referenced_variables(node) if environment.get(name)}
    return frozenset(named | set(_literals(node)))


def _literals(node: object) -> Iterator[str]:
    match node:
        case Secret():
            yield node.reveal()
        case Mapping():
            for value in node.values():
                yield from _literals(value)
        case list() | tuple():
            for value in node:
                yield from _literals(value)


def literal_secrets(node: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where secrets stand in the file as plain text, which every session can read (AG20).

    Below `tracker` a telling key is enough; anywhere else the text must have the shape of a credential.
    """
    match node:
        case Mapping():
            for key, value in node.items():
                yield from literal_secrets(value, (*at, key))
        case list():
            for index, value in enumerate(node):
                yield from literal_secrets(value, (*at, index))
        case str() if node.strip() and reference_name(node) is None:
            telling = at[0] == "tracker" and any(isinstance(key, str) and is_secret_key(key) for key in at)
            if telling or holds_credential(node):
                yield at
        case _:
            return
