"""A command group that imports a subcommand only when it is used, and reports every failure in two lines."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import click
from typing_extensions import override

from symphony.cli.failures import report
from symphony.domain.failures import SymphonyError

__all__ = ["LazyGroup"]

_INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose subcommands are named as `"module:attribute"`.

    Run as a program it never shows a stack for a failure that has a `Failure` or is a wrong usage: one line
    `error: ...`, one line `hint: ...`, and the exit code of `symphony.cli.failures`.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._lazy = dict(lazy or {})

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self._lazy[cmd_name]} is not a command")
        return command

    @override
    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        run: Callable[[], Any] = partial(
            super().main, args, prog_name, complete_var, standalone_mode=False, **extra
        )
        if not standalone_mode:
            return run()
        try:
            result = run()
        except (SymphonyError, click.ClickException) as error:
            sys.exit(report(error))
        except click.Abort:
            click.echo("stopped", err=True)
            sys.exit(_INTERRUPTED)
        sys.exit(result if isinstance(result, int) else 0)
