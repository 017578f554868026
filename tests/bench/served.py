"""The real daemon, as `symphony run` composes it, with an observer that writes down what the bench asks for.

    python -m bench.served WORKFLOW.md JOURNAL

Lines of the journal: `<monotonic ns> <event> <issue> <figures>`. `seen`: a poll brought the issue, and the
one before did not. `ended`: signs of life and total tokens that were counted for the run. `fetch`, `refresh`:
a request to the tracker, with the number of ids.
"""

import os
import sys
import time
from pathlib import Path

from symphony.cli.serving import serve
from symphony.daemon.state_dir import instance_of, locate
from symphony.processes import supervisor_program
from symphony.processes.local import LocalHost
from symphony.scheduler import (
    Command,
    Event,
    FetchCandidates,
    Polled,
    RefreshIssues,
    RunEnded,
    State,
)


class Recorder:
    """An observer that writes a line for what is rare and nothing for what is frequent."""

    def __init__(self, journal: Path) -> None:
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._seen = set[str]()

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...]) -> None:
        del after
        match event:
            case Polled():
                polled = {issue.id for issue in event.issues}
                for issue in polled - self._seen:
                    self._note("seen", issue)
                self._seen = polled
            case RunEnded():
                for run in before.running.values():
                    if run.run_id == event.run_id:
                        self._note(
                            "ended",
                            run.issue.id,
                            run.report.event_count,
                            run.report.facts.tokens.total_tokens,
                        )
            case _:
                pass
        for command in commands:
            if isinstance(command, FetchCandidates):
                self._note("fetch", "-")
            elif isinstance(command, RefreshIssues):
                self._note("refresh", "-", len(command.ids))

    def _note(self, event: str, issue: str, *figures: int) -> None:
        os.write(
            self._journal, " ".join(map(str, (time.monotonic_ns(), event, issue, *figures, "\n"))).encode()
        )


if __name__ == "__main__":
    workflow, environment = Path(sys.argv[1]), dict(os.environ)
    supervisor_program.become_subreaper()  # as `symphony run`, but its memory can be looked at
    serve(
        workflow,
        environment=environment,
        host=LocalHost(instance=instance_of(locate(workflow, environment)), adopt_orphans=True),
        once=False,
        log_format="json",
        observers=(Recorder(Path(sys.argv[2])),),
    )
