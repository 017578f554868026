"""`python -m kit.crashing --at POINT [--nth N] -- WORKFLOW.md`: a real daemon that dies there.

It serves like `symphony run --once`, but kills itself with SIGKILL when it reaches a fault point for the n-th
time: no handler runs, no file is closed, as when the memory of the machine ran out. Started again without
this, the daemon has to mend what is left. Lines of the log go to stderr as JSON.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from symphony.config import Workflow, WorkflowFile, WorkflowStore
from symphony.daemon.admission import admit
from symphony.daemon.context import redaction_for
from symphony.daemon.service import Service
from symphony.daemon.shutdown import serve_until_signalled
from symphony.daemon.state_dir import StateDirectory, instance_of, locate
from symphony.domain import FaultPoint, SymphonyError
from symphony.observability.logs import configure
from symphony.processes.local import LocalHost

__all__ = ["DieAt", "main"]


class DieAt:
    """A fault that kills this process when a point is reached for the n-th time, counted from one."""

    def __init__(self, point: FaultPoint, nth: int = 1) -> None:
        self._point = point
        self._left = nth

    def __call__(self, point: FaultPoint) -> None:
        """Die if it is time."""
        if point is self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the point is reached, or until nothing is left to do: then 0; 1 where the start failed."""
    parser = argparse.ArgumentParser(prog="python -m kit.crashing", description=__doc__)
    points = {point.value: point for point in FaultPoint}
    parser.add_argument("--at", choices=points, required=True, metavar="POINT")
    parser.add_argument("--nth", type=int, default=1, metavar="N")
    parser.add_argument("workflow", type=Path, metavar="WORKFLOW.md")
    asked = parser.parse_args(arguments)
    try:
        anyio.run(
            serve_until_signalled, _service(asked.workflow.absolute(), DieAt(points[asked.at], asked.nth))
        )
    except SymphonyError as error:
        print(error.failure.line, file=sys.stderr)  # noqa: T201 - a command
        return 1
    return 0


def _service(path: Path, fault: DieAt) -> Service:
    environment = dict(os.environ)

    def parse(file: WorkflowFile) -> Workflow:
        return admit(file, environment=environment, acknowledged=False)

    store = WorkflowStore(path, parse)
    configure(stream=None, as_json=True, redaction=redaction_for(store.current(), environment))
    place = locate(path, environment)
    return Service(
        store=store,
        state_dir=StateDirectory(place),
        host=LocalHost(instance=instance_of(place)),
        environment=environment,
        once=True,
        fault=fault,
    )


if __name__ == "__main__":  # pragma: no cover - the entry of the process
    sys.exit(main())
