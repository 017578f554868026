"""A pytest plugin that remembers how the tests of real agents ended."""

import pytest

from real_agents.results import Result, agent_of

__all__ = ["Recorder"]


class Recorder:
    """Collects a result for each test that drives a real agent; has no others run than those of `only`."""

    def __init__(self, only: str | None = None) -> None:
        self._only = only
        self.results: list[Result] = []
        self._agents: dict[str, str] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Learn which agent each test drives."""
        for item in items:
            agent = agent_of((mark.name, mark.args) for mark in item.iter_markers())
            if agent is not None:
                self._agents[item.nodeid] = agent
        if self._only is not None:
            others = [item for item in items if self._agents.get(item.nodeid) != self._only]
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item not in others]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the call, or what kept a test from being called."""
        agent = self._agents.get(report.nodeid)
        if agent is None or (report.when != "call" and report.outcome == "passed"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        test = report.nodeid.rpartition("::")[2]
        self.results.append(
            Result(agent=agent, test=test, outcome=report.outcome, reason=reason.removeprefix("Skipped: "))
        )
