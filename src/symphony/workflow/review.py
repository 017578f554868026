"""What a look at a front matter finds: failures and warnings, each at the line of its key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symphony.domain.failures import Category, Failure
from symphony.workflow.errors import WorkflowWarning, config_failure
from symphony.workflow.settings import Settings

__all__ = ["FrontMatter", "Location", "Review", "dotted"]

Location = tuple[str | int, ...]
"""The keys and list indices that lead to a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """The root map of a file and where its keys stand.

    `first_line` is where the front matter begins; `present` is false where the file has none.
    """

    path: Path
    value: Mapping[str, Any]
    positions: Mapping[Location, tuple[int, int]]
    first_line: int
    present: bool = True

    def line(self, location: Location) -> int:
        """Line of a key, or of the nearest enclosing key that is in the file."""
        while location:
            if location in self.positions:
                return self.positions[location][0]
            location = location[:-1]
        return self.first_line

    def where(self, location: Location) -> str:
        """`path:line` of a key, as `line` finds it."""
        return f"{self.path}:{self.line(location)}"


@dataclass(slots=True, kw_only=True)
class Review:
    """Collects what is wrong (`failures`) and what is odd (`warnings`) while a front matter is looked at."""

    source: FrontMatter
    settings: Settings | None = None
    warnings: list[WorkflowWarning] = field(default_factory=list)
    _failures: list[tuple[int, Failure]] = field(default_factory=list)

    @property
    def failures(self) -> list[Failure]:
        """What is wrong, in the order of the file."""
        return [failure for _, failure in sorted(self._failures, key=lambda entry: entry[0])]

    def fail(
        self,
        location: Location,
        problem: str,
        *,
        category: Category = Category.INVALID_WORKFLOW_CONFIG,
        hint: str | None = None,
    ) -> None:
        """Record that the key at `location` has a `problem`, a phrase that follows the key's name."""
        failure = config_failure(
            f"{dotted(location)} {problem}",
            category=category,
            where=self.source.where(location),
            hint=hint,
        )
        self._failures.append((self.source.line(location), failure))

    def fail_variable(self, name: str, problem: str) -> None:
        """Record that an environment variable, which stands in no file, has a `problem`."""
        self._failures.append((self.source.first_line, config_failure(f"{name} {problem}")))

    def warn(self, location: Location, message: str, *, hint: str | None = None) -> None:
        """Record something odd at `location`."""
        self.warnings.append(WorkflowWarning(message=message, where=self.source.where(location), hint=hint))


def dotted(location: Location) -> str:
    """A location as people write it: `tracker.active_states[1]`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
