"""The result of a simulation: what happened, the figures, what was broken, and how to see it again."""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kit.simulator.recording import recording_of, write
from kit.simulator.referee import Life, Told, Violation
from kit.simulator.statistics import Statistics
from kit.simulator.trace import concerning
from symphony.replay import Recording, describe_step, moment_text

__all__ = ["Result", "SimulationFailedError"]

_LAST = 25


class SimulationFailedError(AssertionError):
    """A rule was broken; the message is the report, with the seed and the command that replays it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a simulation came to.

    Attributes:
        seed: gives the same history again with the same scenario and duration.
        replay_command: one line for a shell, or null where the scenario has no command-line options.
        violations: the broken rule, if there is one: the simulation ends there.
        lives: every life of the daemon, with every input and the commands that answered it.
    """

    seed: int
    replay_command: str | None
    violations: tuple[Violation, ...]
    statistics: Statistics
    lives: Sequence[Life]

    @property
    def history(self) -> Iterator[Told]:
        """Every input with the commands that answered it, in order, over all lives of the daemon."""
        return (told for life in self.lives for told in life.steps)

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """The inputs of each life, to be kept as a file (`write`)."""
        return tuple(recording_of(life) for life in self.lives)

    @property
    def digest(self) -> str:
        """A fingerprint of all inputs and commands: the same for the same history, on any machine."""
        found = hashlib.sha256()
        for life in self.lives:
            found.update(write(recording_of(life)).encode())
            for told in life.steps:
                found.update(describe_step(*told).encode())
        return found.hexdigest()

    def check(self) -> "Result":
        """This result, if no rule was broken.

        Raises:
            SimulationFailedError: one was.
        """
        if self.violations:
            raise SimulationFailedError(self.report())
        return self

    def trace(self, *, last: int = _LAST) -> list[str]:
        """The last steps before the end, of the issue concerned where a rule was broken for one."""
        issue_id = self.violations[0].issue_id if self.violations else None
        return [describe_step(*told) for told in deque(concerning(self.history, issue_id), maxlen=last)]

    def report(self, *, last: int = _LAST) -> str:
        """What people need: the broken rule, the trace, the seed and the replay."""
        lines = [f"seed {self.seed}: {self.statistics.inputs} inputs, no rule broken"]
        for found in self.violations:
            concerned = f", issue {found.issue_id}" if found.issue_id else ""
            lines = [
                f"broken: {found.invariant}: {found.message}",
                f"rule:   {found.rule}",
                f"where:  {moment_text(found.at_ms).strip()}, input {found.input_number}{concerned}",
                f"last {last} steps of it:",
                *(f"  {text}" for text in self.trace(last=last)),
                f"seed:   {self.seed}",
            ]
        return "\n".join([*lines, f"replay: {self.replay_words}"])

    @property
    def replay_words(self) -> str:
        """The replay command, or how a scenario without one is replayed."""
        return self.replay_command or f"simulate(<the same scenario>, seed={self.seed}, duration=<the same>)"

    def as_json(self) -> dict[str, Any]:
        """The shape of `--json`."""
        return {
            "seed": self.seed,
            "replay": self.replay_command,
            "digest": self.digest,
            "violations": [{**asdict(found), "trace": self.trace()} for found in self.violations],
            "statistics": asdict(self.statistics),
        }
