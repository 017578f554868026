"""Finds the installed adapters by their entry points, and loads one when it is used (docs/adapters.md).

Built-in trackers and agents are found in the same way as those of other packages. Names come from the
metadata of installed packages. An adapter is imported only when it is used, so a broken package does no harm
to a workflow that does not use it.
"""

import configparser
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, distributions
from typing import Generic, TypeVar

from msgspec import Struct

from symphony.domain import Blame, Category, Failure, SymphonyError

T = TypeVar("T")

_FILE = "entry_points.txt"
_MAX_CHARS = 300


class AdapterError(SymphonyError):
    """An adapter that is installed cannot be used; the message names its package."""


class _Entry(Struct, frozen=True):
    """A line of an `entry_points.txt` as written, and the name and version of its package."""

    name: str
    value: str
    package: str


class AdapterRegistry(Generic[T]):
    """The entry points of one group.

    Args:
        group: the name of the group, such as `symphony.trackers`.
        label: the word for a kind of this group in messages (`tracker`).
        check: raises `TypeError`, which says what is missing, if an object is not such an adapter.
    """

    def __init__(self, group: str, *, label: str, check: Callable[[object], T]) -> None:
        self._group = group
        self._label = label
        self._check = check

    @property
    def names(self) -> tuple[str, ...]:
        """The installed kinds, in alphabetical order. They are not loaded, so one of them may be broken."""
        return tuple(sorted(self._installed))

    def load(self, kind: str) -> T:
        """The adapter of a kind; imports its module.

        Raises:
            KeyError: no package offers this kind.
            AdapterError: `broken_adapter`: it is not an adapter, it cannot be imported, or two packages offer
                it.
        """
        entry, *others = self._installed[kind]
        if others:
            packages = " and ".join(sorted(one.package for one in (entry, *others)))
            raise self._broken(kind, f"is offered by two packages, {packages}", hint="uninstall one of them")
        try:
            return self._check(EntryPoint(kind, entry.value, self._group).load())
        except Exception as error:
            raise self.broken(kind, "cannot be loaded", error) from error

    def broken(self, kind: str, problem: str, error: Exception) -> AdapterError:
        """The error for an adapter that does not work; it names the package of the adapter."""
        package = self._installed[kind][0].package
        told = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_CHARS]
        return self._broken(
            kind, f"of the package {package} {problem}: {told}", hint=f"repair or uninstall {package}"
        )

    @cached_property
    def _installed(self) -> dict[str, list[_Entry]]:
        found: dict[str, list[_Entry]] = {}
        for entry in _entries(self._group):
            found.setdefault(entry.name, []).append(entry)
        return found

    def _broken(self, kind: str, problem: str, *, hint: str) -> AdapterError:
        failure = Failure(
            category=Category.BROKEN_ADAPTER,
            blame=Blame.CONFIG,
            message=f"the {self._label} {kind} {problem}",
            retryable=False,
            hint=hint,
        )
        return AdapterError(failure)


def _entries(group: str) -> Iterator[_Entry]:
    """The entry points of a group.

    Of packages with the same name, the first one on the path counts, as for imports. A package with
    unreadable metadata has no entry points, so that it does not hide those of the others. This function reads
    the lines itself with configparser, as the entry points specification describes. `EntryPoint` of
    importlib_metadata, which replaces the standard one where OpenTelemetry imports it, raises if one of many
    values is malformed.
    """
    seen: set[str] = set()
    for distribution in distributions():
        try:
            text = distribution.read_text(_FILE) or ""
            if group not in text:
                continue
            sections = configparser.ConfigParser(delimiters=("=",), interpolation=None)
            sections.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
            sections.read_string(text)
            lines = sections.items(group) if sections.has_section(group) else []
            package = f"{distribution.name} {distribution.version}"
            name = re.sub(r"[-_.]+", "-", distribution.name).lower()
        except Exception:  # noqa: BLE001, S112 - metadata of others, in whatever state
            continue
        if name not in seen:
            seen.add(name)
            yield from (_Entry(key, value, package) for key, value in lines)
