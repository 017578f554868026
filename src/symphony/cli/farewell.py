"""What a person at the terminal is told when the daemon begins to end."""

import click

from symphony.domain.ids import by_number
from symphony.scheduler.commands import Command
from symphony.scheduler.inputs import Input, OperatorAsked
from symphony.scheduler.state import Drain, State

__all__ = ["Farewell"]


class Farewell:
    """An observer that says, once, what is waited for and how not to wait for it."""

    def __call__(self, before: State, fact: Input, after: State, commands: tuple[Command, ...]) -> None:
        """Speak when a step begins the drain while turns are running."""
        del commands
        if before.drain is Drain.NO and after.drain is Drain.DRAINING and after.running:
            names = ", ".join(sorted((run.issue.identifier for run in after.running.values()), key=by_number))
            limit = f" (at most {after.settings.drain_timeout_ms // 1000} s)"
            bound = "" if isinstance(fact, OperatorAsked) else limit
            text = f"The turns of {names} may end first{bound}; Ctrl-C stops them now."
            click.echo(text, err=True)
