"""What a rule is: a name, words, a source and a check; and a book of rules, in the order of their telling."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import cleandoc

from kit.simulator.books import Moment

__all__ = ["Broken", "Check", "Invariant", "Rules", "table"]


@dataclass(frozen=True, slots=True)
class Broken:
    """What is broken, in words, and the issue concerned where there is one."""

    message: str
    issue_id: str | None = None


Check = Callable[[Moment], Broken | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A rule: its stable name, its words, and where it comes from."""

    name: str
    rule: str
    source: str


class Rules:
    """Rules that can be checked at one moment."""

    def __init__(self) -> None:
        self._checks: list[tuple[Check, Invariant]] = []

    @property
    def checked(self) -> tuple[Invariant, ...]:
        """The rules, in order."""
        return tuple(invariant for _, invariant in self._checks)

    def invariant(self, name: str, source: str) -> Callable[[Check], Check]:
        """Make a check the rule that its docstring tells."""

        def register(check: Check) -> Check:
            words = " ".join(cleandoc(check.__doc__ or "").split())
            self._checks.append((check, Invariant(name=name, rule=words, source=source)))
            return check

        return register

    def first_broken(self, moment: Moment) -> tuple[Invariant, Broken] | None:
        """The first rule that this moment breaks, or null."""
        for check, invariant in self._checks:
            if broken := check(moment):
                return invariant, broken
        return None


def table(invariants: Iterable[Invariant]) -> str:
    """The rules as a Markdown table, for `docs/testing.md`."""
    rows = (f"| `{each.name}` | {each.rule} | {each.source} |" for each in invariants)
    return "\n".join(("| name | rule | source |", "|---|---|---|", *rows))
