from dataclasses import dataclass, field
from typing import cast

import pytest

from harness.rings import mark_variants


@dataclass
class Case:
    """As much of a collected test as the rule looks at."""

    nodeid: str
    marks: list[str] = field(default_factory=list)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.name)


def _slow(*cases: Case) -> list[str]:
    mark_variants(cast("list[pytest.Item]", cases))
    return [case.nodeid for case in cases if "slow" in case.marks]


def test_all_cases_but_the_first_are_slow_outside_the_unit_tests() -> None:
    cases = [
        Case(f"tests/{place}::test_it[{name}]") for place in ("attack/a.py", "unit/b.py") for name in "xy"
    ]
    assert _slow(*cases, Case("tests/attack/a.py::test_other")) == ["tests/attack/a.py::test_it[y]"]


def test_marks_of_some_cases_choose() -> None:
    chosen = [
        Case("tests/attack/a.py::test_it[x]", ["slow"]),
        *map(Case, ("tests/attack/a.py::test_it[y]",) * 2),
    ]
    assert _slow(*chosen) == ["tests/attack/a.py::test_it[x]"]
