"""A pytest plugin: what the tests of a session claim to show, and how they ended.

It knows a test by place and name without parameters, `tests/unit/test_a.py::test_b`, as the report does.
Tests that the table of choices names are marked here, so that `-m conformance` runs them too. Under xdist
every worker collects and the controller hears of the results, so each half works where it can.
"""

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from conformance.choices import CHOICES, Choice
from conformance.skips import reason_of

MARKER = "conformance"
OPTION = "--conformance-results"
BEFORE = "--conformance-before"
_OUTPUT = "conformance_claims"


class Outcome(StrEnum):
    """How one run of a test ended."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Result:
    """Some run of a test ended so; `reason` is why it was skipped, else empty."""

    test: str
    outcome: Outcome
    reason: str = ""


def name_of(nodeid: str) -> str:
    """A test's place and name, without the parameters of this one run of it."""
    return nodeid.partition("[")[0]


class Claims:
    """Collects which tests there are and what they claim: rows by marks, choices by the table of choices.

    `errors` are modules that could not be looked into, because those may hide claims.
    """

    def __init__(self, choices: tuple[Choice, ...] = CHOICES) -> None:
        self.tests: set[str] = set()
        self.errors: list[str] = []
        self._claimed: dict[str, set[str]] = defaultdict(set)
        self._chosen: dict[str, list[str]] = defaultdict(list)
        for choice in choices:
            for test in choice.tests:
                self._chosen[test].append(choice.id)

    @property
    def claimed(self) -> dict[str, tuple[str, ...]]:
        """The tests of each id, in order."""
        return {claimed_id: tuple(sorted(tests)) for claimed_id, tests in sorted(self._claimed.items())}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Look at every item before any is deselected."""
        for item in items:
            test = name_of(item.nodeid)
            if chosen := self._chosen.get(test):
                item.add_marker(pytest.mark.conformance(*chosen))
            self.tests.add(test)
            for mark in item.iter_markers(MARKER):
                for claimed_id in mark.args:
                    self._claimed[str(claimed_id)].add(test)

    @classmethod
    def of(cls, told: dict[str, Any]) -> "Claims":
        """Those that `as_dict` told."""
        claims = cls(())
        claims.tests, claims.errors = set(told["tests"]), told["errors"]
        claims._claimed = {claimed_id: set(tests) for claimed_id, tests in told["claimed"].items()}
        return claims

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {"tests": sorted(self.tests), "errors": self.errors, "claimed": self.claimed}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell them to the controller of xdist, which collects nothing: one worker does."""
        worker = getattr(session.config, "workerinput", {}).get("workerid")
        if worker == "gw0" and session.config.getoption(OPTION) is not None and whole(session.config):
            output: dict[str, Any] = getattr(session.config, "workeroutput")  # noqa: B009 - xdist adds it
            output[_OUTPUT] = self.as_dict()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be imported, and what was skipped as a whole."""
        if not report.passed:
            words = str(report.longrepr).strip().splitlines() or [report.outcome]
            self.errors.append(f"{report.nodeid}: {words[-1]}")


def whole(config: pytest.Config) -> bool:
    """Whether a session looks at all tests."""
    return {Path(argument).resolve() for argument in config.args} == {config.rootpath / "tests"}


class LeftOut:
    """Leaves out unit tests that passed in an earlier session; `results` are how these ended.

    What was skipped in it runs again, and only its new end counts.
    """

    def __init__(self, earlier: frozenset[Result]) -> None:
        others = {result.test for result in earlier if result.outcome is not Outcome.PASSED}
        unit = {result for result in earlier if result.test.startswith("tests/unit/")}
        self.results = frozenset(result for result in unit if result.test not in others)
        self._tests = {result.test for result in self.results}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """A variant that is `slow` did not run in the earlier session, which is that of `make test`."""
        done = [
            item
            for item in items
            if name_of(item.nodeid) in self._tests and item.get_closest_marker("slow") is None
        ]
        if done:
            config.hook.pytest_deselected(items=done)
            left = {*items} - {*done}
            items[:] = [item for item in items if item in left]


class Recorder:
    """Writes how the tests ended to a file, and what they claim where the session collected all of them.

    `results` are those of tests that are left out, which count too.
    """

    def __init__(self, file: Path, results: frozenset[Result]) -> None:
        self._file = file
        self._results = set(results)
        self._claims: dict[str, Any] | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Hear of claims from a worker of xdist."""
        self._claims = getattr(node, "workeroutput", {}).get(_OUTPUT, self._claims)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of set-up and tear-down only the bad news counts."""
        if report.when == "call" or not report.passed:
            reason = reason_of(report) if report.skipped else ""
            test = name_of(report.nodeid)
            self._results.add(Result(test=test, outcome=Outcome(report.outcome), reason=reason))

    def pytest_sessionfinish(self) -> None:
        """Write them, in a stable order."""
        rows = [asdict(result) for result in sorted(self._results)]
        told = {"claims": self._claims, "results": rows}
        self._file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def read_results(file: Path) -> tuple[Claims | None, frozenset[Result]]:
    """What a session wrote: the claims, unless it did not collect all tests, and the results.

    Raises OSError where there is no file, ValueError where it is another one.
    """
    told: Any = json.loads(file.read_text(encoding="utf-8"))
    try:
        results = frozenset(
            Result(test=row["test"], outcome=Outcome(row["outcome"]), reason=row["reason"])
            for row in told["results"]
        )
        return None if told["claims"] is None else Claims.of(told["claims"]), results
    except (KeyError, TypeError) as error:
        raise ValueError(f"{file} does not hold results of tests") from error


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file of results."""
    text = "write how each test ended to FILE, for `python -m conformance --from FILE`"
    group = parser.getgroup("conformance")
    group.addoption(OPTION, metavar="FILE", type=Path, help=text)
    text = "leave out unit tests that passed by this FILE, which an earlier session of `make test` wrote"
    group.addoption(BEFORE, metavar="FILE", type=Path, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Look at claims always; at results where a file for them is named, but not in a worker of xdist."""
    if not any(isinstance(plugin, Claims) for plugin in config.pluginmanager.get_plugins()):
        config.pluginmanager.register(Claims(), "conformance-claims")
    file: Path | None = config.getoption(OPTION)
    earlier: Path | None = config.getoption(BEFORE)
    left_out = LeftOut(frozenset() if earlier is None else read_results(earlier)[1])
    if left_out.results:
        config.pluginmanager.register(left_out, "conformance-left-out")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(file, left_out.results), "conformance-recorder")
