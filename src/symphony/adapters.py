"""Finds the installed adapters by their entry points, and loads one when it is used (docs/adapters.md).

The trackers and agents that come with the program are found in the same way as those of other packages. Names
are read from the metadata of installed packages; nothing of an adapter is imported before it is asked for, so
that a package that is broken does no harm to a workflow that does not use it.
"""

import configparser
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, distributions
from typing import Generic, TypeVar

from symphony.domain import Blame, Category, Failure, SymphonyError

T = TypeVar("T")

_FILE = "entry_points.txt"
_MAX_CHARS = 300


class AdapterError(SymphonyError):
    """An adapter that is installed cannot be used; the message names its package."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of an `entry_points.txt`, as it was written, and the name and version of its package."""

    name: str
    value: str
    package: str


class AdapterRegistry(Generic[T]):
    """The entry points of one group.

    Args:
        group: the name of the group, such as `symphony.trackers`.
        label: what a kind of this group is called in messages (`tracker`).
        check: raises `TypeError`, which says what is missing, for an object that is no such adapter.
    """

    def __init__(self, group: str, *, label: str, check: Callable[[object], T]) -> None:
        self._group = group
        self._label = label
        self._check = check

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds that are installed, in alphabetical order; whether they work is not known yet."""
        return tuple(sorted(self._installed))

    def load(self, kind: str) -> T:
        """The adapter of a kind; imports its module.

        Raises:
            KeyError: no package offers this kind.
            AdapterError: `broken_adapter`: it is no adapter, cannot be imported, or two packages offer it.
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
        """The error that says which package an adapter that does not work belongs to."""
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
    """The entry points of a group, of the first package of each name on the path, as imports find it.

    A package whose metadata cannot be read has none, so that it does not hide those of all others. The lines
    are read here, by configparser as the entry points specification says: `EntryPoint` of importlib_metadata,
    which takes over the finding where OpenTelemetry imports it, raises for one malformed value of many.
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
