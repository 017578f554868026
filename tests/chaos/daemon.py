"""`python -m chaos.daemon --dice TEXT WORKFLOW.md`: the daemon, in bad weather and with a clock that jumps.

It is `symphony run` but for two things that are put in from outside: the tracker is behind a bad line, and
somebody sets the wall clock now and then. Lines of the log go to stderr as JSON.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import anyio
from typing_extensions import override

from chaos.weather import Weathered
from symphony.config import Workflow, WorkflowFile, WorkflowStore
from symphony.daemon.admission import admit
from symphony.daemon.clock import wall_ms
from symphony.daemon.context import RuntimeContext, redaction_for
from symphony.daemon.service import Service
from symphony.daemon.shutdown import serve_until_signalled
from symphony.daemon.state_dir import StateDirectory, instance_of, locate
from symphony.domain import SymphonyError
from symphony.observability.logs import configure
from symphony.processes.local import LocalHost
from symphony.processes.supervisor_program import become_subreaper

_HOUR_MS = 3_600_000
_SETTINGS_MS = (0, 2 * _HOUR_MS, -3 * _HOUR_MS, 72 * _HOUR_MS, -90 * 24 * _HOUR_MS)
_JUMPS = 0.02


class SetClock:
    """The wall clock of a machine on which somebody sets it, at the start and now and then."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._off_ms = dice.choice(_SETTINGS_MS)

    def __call__(self) -> int:
        if self._dice.random() < _JUMPS:
            self._off_ms = self._dice.choice(_SETTINGS_MS)
        return wall_ms() + self._off_ms


class StormyService(Service):
    """A service whose trackers are behind a bad line."""

    def weather(self, dice: Random) -> "StormyService":
        self._weather = dice
        return self

    @override
    def _build_context(self, workflow: Workflow) -> RuntimeContext:
        context = super()._build_context(workflow)
        return replace(context, tracker=Weathered(context.tracker, self._weather))


def _dice(seed: str) -> Random:
    return Random(seed)  # noqa: S311 - to be thrown again


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.daemon", description=__doc__)
    parser.add_argument("--dice", required=True, metavar="TEXT", help="what the dice are thrown from")
    parser.add_argument("workflow", type=Path, metavar="WORKFLOW.md")
    asked = parser.parse_args(arguments)
    environment = dict(os.environ)

    def parse(file: WorkflowFile) -> Workflow:
        return admit(file, environment=environment, acknowledged=False)

    store = WorkflowStore(asked.workflow.absolute(), parse)
    configure(stream=None, as_json=True, redaction=redaction_for(store.current(), environment))
    place = locate(asked.workflow.absolute(), environment)
    become_subreaper()
    service = StormyService(
        store=store,
        state_dir=StateDirectory(place),
        host=LocalHost(instance=instance_of(place), adopt_orphans=True),
        environment=environment,
        wall_ms=SetClock(_dice(f"{asked.dice} clock")),
    ).weather(_dice(f"{asked.dice} weather"))
    try:
        anyio.run(serve_until_signalled, service, True)  # noqa: FBT003 - positional by the interface of anyio
    except SymphonyError as error:
        print(error.failure.line, file=sys.stderr)  # noqa: T201 - a command
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
