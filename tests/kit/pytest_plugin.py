"""Fixtures over the kit (`-p kit.pytest_plugin`), and the seed of a simulation that failed."""

from __future__ import annotations

import shlex
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kit.model_server import ModelServer
from kit.model_server import Scenario as ModelScenario
from kit.simulator import Result, Scenario
from symphony.scheduler import StepFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import timedelta

    from kit.model_server import ModelServer
    from kit.model_server import Scenario as ModelScenario
    from kit.simulator import Result, Scenario
    from symphony.scheduler import StepFunction

__all__ = ["Simulations", "symphony_model_server", "symphony_simulation"]


_SECTION = "symphony simulation"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a run."""
    group = parser.getgroup("symphony", "Symphony's test kit")
    group.addoption(
        "--symphony-seed",
        type=int,
        default=None,
        metavar="SEED",
        help="seed of every simulation (default: the marker's, else one of the test's own name)",
    )
    group.addoption(
        "--symphony-schedules",
        type=int,
        default=25,
        metavar="N",
        help="how many seeds `symphony_simulation.many` tries (default: 25)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line("markers", "symphony_seed(seed): the seed of this test's simulations")


class Simulations:
    """Runs simulations for one test: call it for one, `many` for one per seed.

    The seed is `--symphony-seed`, else that of the marker `symphony_seed`, else one of the test's name.
    A broken rule fails the test with the trace, and the report of any test that fails shows seed and replay
    command of its last simulation.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        config = request.config
        marker = request.node.get_closest_marker("symphony_seed")
        asked = config.getoption("--symphony-seed")
        own = marker.args[0] if marker else zlib.crc32(request.node.nodeid.encode())
        self.seed: int = own if asked is None else asked
        self._count: int = 1 if asked is not None else config.getoption("--symphony-schedules")
        self._node: pytest.Item = request.node

    def __call__(
        self,
        scenario: Scenario,
        *,
        duration: timedelta,
        seed: int | None = None,
        step: StepFunction | None = None,
        check: bool = True,
    ) -> Result:
        """Simulate once; `check` lets a broken rule fail the test, `step` is another scheduler to judge."""
        from kit.simulator import simulate  # noqa: PLC0415 - the plugin is light until it is used

        seed = self.seed if seed is None else seed
        options = {} if step is None else {"step": step}
        result = simulate(scenario, seed=seed, duration=duration, **options)
        again = f"pytest {shlex.quote(self._node.nodeid)} --symphony-seed {result.seed}"
        lines = [f"seed:   {result.seed}", f"replay: {again}"]
        if result.replay_command:
            lines.append(f"   or:  {result.replay_command}")
        self._node.stash[_NOTE] = "\n".join(lines)
        return result.check() if check else result

    def many(self, scenario: Scenario, *, duration: timedelta) -> list[Result]:
        """Simulate with `--symphony-schedules` seeds; with `--symphony-seed` only with that one."""
        return [self(scenario, duration=duration, seed=self.seed + number) for number in range(self._count)]


_NOTE = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add seed and replay command to the report of a test that failed."""
    report = yield
    note = item.stash.get(_NOTE, None)
    if note is not None and report.when == "call" and report.failed:
        report.sections.append((_SECTION, note))
    return report


@pytest.fixture
def symphony_simulation(request: pytest.FixtureRequest) -> Simulations:
    """Simulate the real scheduler: `symphony_simulation(Scenario(...), duration=days(30))`."""
    return Simulations(request)


@pytest.fixture
def symphony_model_server() -> Iterator[Callable[..., ModelServer]]:
    """Start loopback model servers that end with the test: `symphony_model_server({"name": [...]})`."""
    from kit.model_server import ModelServer  # noqa: PLC0415 - as above

    with ExitStack() as stack:

        def start(
            scenarios: Mapping[str, ModelScenario] | None = None, *, headers: Mapping[str, str] | None = None
        ) -> ModelServer:
            return stack.enter_context(ModelServer(scenarios, headers=headers))

        yield start
