"""A command group that imports a subcommand only when it is used, and reports every failure in two lines."""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import click
from typing_extensions import override

from symphony.cli.failures import CommandError, report
from symphony.domain.failures import SymphonyError

__all__ = ["LazyGroup"]

_INTERRUPTED = 130
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class LazyGroup(click.Group):
    """A group whose subcommands are named as `"module:attribute"`.

    `helps` are the lines that the help of the group shows for them; a command without one is imported for it.
    Run as a program it never shows a stack for a failure that has a `Failure`, is a wrong usage, or is an
    output that takes nothing more: one line `error: ...`, one line `hint: ...`, and the exit code of
    `symphony.cli.failures`.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, str] | None = None,
        helps: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._lazy = dict(lazy or {})
        self._helps = dict(helps or {})

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
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._short_help(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _short_help(self, ctx: click.Context, name: str) -> str:
        if name in self._helps:
            return self._helps[name]
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str()

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
            click.echo(nl=False)  # what is still buffered goes out now, where its failure can be told
        except (SymphonyError, click.ClickException) as error:
            sys.exit(report(error))
        except click.Abort:
            click.echo("stopped", err=True)
            sys.exit(_INTERRUPTED)
        except OSError as error:
            if error.errno not in _FULL or error.filename is not None:
                raise
            sys.exit(report(_unwritten(error)))
        sys.exit(result if isinstance(result, int) else 0)


def _unwritten(error: OSError) -> CommandError:
    """The error; what stays in the buffer goes nowhere, or the interpreter would fail over it at its end."""
    with suppress(OSError, ValueError):  # the latter for an output that is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    message = f"the output cannot be written: {error.strerror}"
    return CommandError.of(message, hint="see where it goes, and that there is room")
