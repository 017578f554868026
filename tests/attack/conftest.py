"""Attacks on the program: a test for each fault that an outsider found, and generators of more.

A generator takes the fixture `rounds`. Every test run tries a few of its attacks; `make attack` tries as many
as fit into `ATTACK_S` seconds, shared out between the generators. `SEED` repeats a run.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

ATTACK_S = float(os.environ.get("ATTACK_S", "0"))
SEED = int(os.environ.get("SEED", "1"))
FEW = 25

Rounds = Callable[..., Iterator[Random]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    generators = [item for item in items if "rounds" in getattr(item, "fixturenames", ())]
    share_s = ATTACK_S / len(generators) if generators else 0.0
    for item in generators:
        item.user_properties.append(("share_s", share_s))
        item.add_marker(pytest.mark.timeout(share_s + 120))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Rounds:
    """`for random in rounds():` gives each attack its own source; without `ATTACK_S` there are `few`."""
    properties = request.node.user_properties
    share_s = dict(properties)["share_s"]

    def sources(few: int = FEW) -> Iterator[Random]:
        until = time.monotonic() + share_s
        made = 0
        while made < few or time.monotonic() < until:
            seed = SEED * 1_000_003 + made
            sys.stdout.write(f"round {made}: Random({seed})\n")  # pytest shows it where the round fails
            yield Random(seed)  # noqa: S311 - to be thrown again
            made += 1
        properties.append(("rounds", made))

    return sources


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many attacks each generator made."""
    if ATTACK_S == 0:
        return
    for report in terminalreporter.stats.get("passed", []):
        made = dict(report.user_properties).get("rounds")
        if made is not None:
            terminalreporter.write_line(f"{made:>8} rounds  {report.nodeid}")
