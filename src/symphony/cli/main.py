"""The command line. Each subcommand lives in its own module and is imported only when it is used."""

import errno
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, Final

import click
from typing_extensions import override

from symphony.cli.failures import CommandError, ExitCode, report
from symphony.domain import SymphonyError, one_line

# The groups of the command line: commands are imported when used, failures are told in two lines.


ELSEWHERE: Final = "symphony.elsewhere"
"""In the meta of a context, where `-C` led away from the directory of the person's shell."""
HELP_NAMES: Final = ["-h", "--help"]
_INTERRUPTED = 130
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

Sections = Mapping[str, Mapping[str, tuple[str, str]]]


def _go_to(ctx: click.Context, option: click.Parameter, directories: tuple[str, ...]) -> None:
    """Make each directory the current one, as git, make and tar do: before anything else is looked at."""
    for directory in directories:
        try:
            os.chdir(directory)
            ctx.meta[ELSEWHERE] = True
        except OSError as error:
            raise click.BadParameter(f"{directory!r}: {error.strerror}", param=option) from error


_DIRECTORY: Final = click.Option(
    ["-C", "started_in"],
    metavar="DIR",
    type=click.Path(file_okay=False),
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_go_to,
    help="Act as if started in DIR.",
)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used; its help shows them in sections.

    `sections` are the commands by name below the title of their section, each as `"module:attribute"` and the
    line that the help of the group shows for it. Commands that are in none of them are shown behind them.

    The group and every command in it have `-h` and `-C DIR`. A name that is no command is answered with the
    nearest one. Run as a program it never shows a stack for a failure that has a `Failure`, is a wrong usage,
    or is an output that takes nothing more: one line `error: ...`, one line `hint: ...`, and the exit code of
    `symphony.cli.failures`.
    """

    def __init__(self, *args: Any, sections: Sections | None = None, **attributes: Any) -> None:
        attributes["context_settings"] = {
            "help_option_names": HELP_NAMES,
            **(attributes.get("context_settings") or {}),
        }
        super().__init__(*args, **attributes)
        self.params.append(_DIRECTORY)
        self._sections = sections or {}
        self._lazy = {name: row for commands in self._sections.values() for name, row in commands.items()}

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command: click.Command | None
        if cmd_name in self._lazy:
            target, _ = self._lazy[cmd_name]
            module, _, attribute = target.partition(":")
            command = getattr(import_module(module), attribute)
            if not isinstance(command, click.Command):
                raise TypeError(f"{target} is not a command")
        else:
            command = super().get_command(ctx, cmd_name)
        if command is not None and _DIRECTORY not in command.params:
            command.params.append(_DIRECTORY)
        return command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = get_close_matches(name.lower(), self.list_commands(ctx), n=3, cutoff=0.6)
            found = ", ".join(f"`{ctx.command_path} {one}`" for one in near)
            hint = f"did you mean {found}?" if near else f"`{ctx.command_path} --help` lists the commands"
            message = f"{ctx.command_path} has no command {one_line(name)!r}"
            raise CommandError.of(message, hint=hint, code=ExitCode.USAGE)
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {
            title: {name: line for name, (_, line) in rows.items()} for title, rows in self._sections.items()
        }
        eager = {
            name: command.get_short_help_str(100)
            for name in super().list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        }
        if eager:
            shown["Commands"] = {**shown.get("Commands", {}), **eager}
        width = max((len(name) for rows in shown.values() for name in rows), default=0)
        for title, rows in shown.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in rows.items()])

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
            if error.filename is not None:
                message = f"{error.filename}: {error.strerror}"
                sys.exit(report(CommandError.of(message, hint="look at the file and its permissions")))
            if error.errno not in {*_FULL, errno.EPIPE}:
                raise
            _forget_output()
            if error.errno == errno.EPIPE:  # whoever read it has seen enough
                sys.exit(ExitCode.FAILURE)
            message = f"the output cannot be written: {error.strerror}"
            sys.exit(report(CommandError.of(message, hint="see where it goes, and that there is room")))
        sys.exit(result if isinstance(result, int) else 0)


def _forget_output() -> None:
    """Send what stays in the buffer nowhere, or the interpreter would fail over it at its end."""
    with suppress(OSError, ValueError):  # the latter for an output that is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


_EPILOG = """\b
Examples:
  symphony demo                     see the whole way, without an account or a model
  symphony init && symphony run     the same in your own repository
  symphony -C ../app status         in another directory
  symphony help tracker move        the help of a command

WORKFLOW.md is looked for from the current directory up to the top of the git repository.
"""
SECTIONS: Final = {
    "Start": {
        "init": ("symphony.cli.commands.init:init", "Make a git repository ready."),
        "run": ("symphony.cli.commands.run:run", "Work on the issues of a board as WORKFLOW.md says."),
        "demo": ("symphony.cli.commands.demo:demo", "See the main job on a small repository."),
        "check": ("symphony.cli.commands.check:check", "Tell everything that is wrong with a WORKFLOW.md."),
        "doctor": (
            "symphony.cli.commands.doctor:doctor",
            "Check all that a daemon needs, and say how to mend it.",
        ),
        "service": (
            "symphony.cli.commands.service:service",
            "Have systemd keep a daemon of a repository running.",
        ),
    },
    "Watch": {
        "status": ("symphony.cli.commands.status:status", "Show what runs and what waits, and why."),
        "explain": ("symphony.cli.commands.explain:explain", "Tell why an issue is running, or is not."),
        "logs": (
            "symphony.cli.commands.logs:logs",
            "Show what happened to an issue, and what its agent said.",
        ),
        "diff": ("symphony.cli.commands.diff:diff", "Show what the branch of an issue changes."),
        "prompt": ("symphony.cli.commands.prompt:prompt", "Print what a dispatch of an issue would send."),
        "health": (
            "symphony.cli.commands.health:health",
            "Tell by the exit code whether the daemon answers.",
        ),
    },
    "Steer": {
        "stop": ("symphony.cli.commands.steer:stop", "End the run of an issue, and keep it from starting."),
        "retry": ("symphony.cli.commands.steer:retry", "Have an issue tried now."),
        "unblock": (
            "symphony.cli.commands.steer:unblock",
            "Give a blocked issue a new budget, and have it tried.",
        ),
        "answer": ("symphony.cli.commands.steer:answer", "Answer the question of an issue's agent."),
        "pause": ("symphony.cli.commands.steer:pause", "Have the daemon start nothing new."),
        "resume": ("symphony.cli.commands.steer:resume", "Have a paused daemon start issues again."),
        "drain": ("symphony.cli.commands.steer:drain", "Have the daemon end once its present turns have."),
        "refresh": ("symphony.cli.commands.steer:refresh", "Have the daemon poll the tracker now."),
    },
    "Board": {
        "issue": ("symphony.cli.commands.issue:issue", "Work with the issues of a Markdown board."),
        "tracker": (
            "symphony.cli.commands.tracker:tracker",
            "Look at the tracker, and write to it from scripts.",
        ),
        "skills": ("symphony.cli.commands.skills:skills", "Work with the skills of a repository."),
    },
    "Upkeep": {
        "clean": ("symphony.cli.commands.clean:clean", "Remove what ended runs and issues have left."),
        "replay": ("symphony.cli.commands.replay:replay", "Take the decisions of a recorded daemon again."),
        "completion": (
            "symphony.cli.commands.help:completion",
            "Print the script that completes `symphony` in a shell.",
        ),
        "help": ("symphony.cli.commands.help:help_", "Show the help of a command."),
    },
}
"""The commands as `symphony --help` shows them. The lines are data: importing every command took 0.25 s."""


@click.group(cls=LazyGroup, sections=SECTIONS, invoke_without_command=True, epilog=_EPILOG)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    help="Show the version, with the commit where it is known.",
    callback=lambda ctx, _option, asked: _say_version(ctx) if asked else None,
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Turn tracker issues into supervised coding-agent sessions."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file name need not be text, and must not end a command
        sys.stdout.reconfigure(errors="backslashreplace")
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _say_version(ctx: click.Context) -> None:
    from symphony.revision import version_text  # asks git in a source tree

    click.echo(f"symphony {version_text()}")
    ctx.exit()
