"""The command line: the root command, and groups whose commands are imported when they are used."""

import errno
import io
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from typing_extensions import override

from symphony.cli.failures import CommandError, ExitCode, report
from symphony.domain import SymphonyError, one_line
from symphony.revision import version_text

CHANGED_DIRECTORY: Final = "symphony.changed_directory"
"""Key in `Context.meta`, set if `-C` left the directory of the user's shell."""
HELP_NAMES: Final = ["-h", "--help"]
_INTERRUPTED = 130
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

Sections = Mapping[str, Mapping[str, tuple[str, str]]]


def _change_directory(ctx: click.Context, option: click.Parameter, directories: tuple[str, ...]) -> None:
    for directory in directories:
        try:
            os.chdir(directory)
            ctx.meta[CHANGED_DIRECTORY] = True
        except OSError as error:
            raise click.BadParameter(f"{directory!r}: {error.strerror}", param=option) from error


_DIRECTORY_OPTION: Final = click.Option(
    ["-C", "started_in"],
    metavar="DIR",
    type=click.Path(file_okay=False),
    multiple=True,
    is_eager=True,  # every other option is relative to this directory
    expose_value=False,
    callback=_change_directory,
    help="Act as if started in DIR.",
)


@click.pass_context
def _show_help(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class LazyGroup(click.Group):
    """A group that imports a command when it is used, and shows its commands in sections.

    Without a command and without a callback of its own, it prints its help.

    Args:
        sections: section title -> command name -> (`"module:attribute"` below `symphony.cli.commands`, help
            line). Commands that are added to the group itself are listed after these.
        hidden: command name -> `"module:attribute"`, for commands that programs start and no list shows.

    The group and all its commands accept `-h` and `-C DIR`. An unknown command name is reported with the
    closest known names. In standalone mode, a failure is reported as `error: ...` and `hint: ...` without a
    traceback, and gives the exit code that `symphony.cli.failures` defines.
    """

    def __init__(
        self,
        *args: Any,
        sections: Sections | None = None,
        hidden: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        attributes["context_settings"] = {
            "help_option_names": HELP_NAMES,
            **(attributes.get("context_settings") or {}),
        }
        super().__init__(*args, **{"invoke_without_command": True, "callback": _show_help, **attributes})
        self.params.append(_DIRECTORY_OPTION)
        self._sections = sections or {}
        self._lazy = {name: row for commands in self._sections.values() for name, row in commands.items()}
        self._hidden = hidden or {}

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command: click.Command | None
        if cmd_name in self._lazy or cmd_name in self._hidden:
            target = self._hidden.get(cmd_name) or self._lazy[cmd_name][0]
            module, _, attribute = target.partition(":")
            command = getattr(import_module(f"symphony.cli.commands.{module}"), attribute)
            if not isinstance(command, click.Command):
                raise TypeError(f"{target} is not a command")
        else:
            command = super().get_command(ctx, cmd_name)
        if command is not None and _DIRECTORY_OPTION not in command.params:
            command.params.append(_DIRECTORY_OPTION)
        return command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = get_close_matches(name.lower(), self.list_commands(ctx), n=3, cutoff=0.6)
            suggestions = ", ".join(f"`{ctx.command_path} {one}`" for one in near)
            hint = (
                f"did you mean {suggestions}?" if near else f"`{ctx.command_path} --help` lists the commands"
            )
            message = f"{ctx.command_path} has no command {one_line(name)!r}"
            raise CommandError.of(message, hint=hint, code=ExitCode.USAGE)
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {
            title: {name: line for name, (_, line) in rows.items()} for title, rows in self._sections.items()
        }
        eager = {
            name: command.get_short_help_str(100)
            for name in super().list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        }
        if eager:
            sections["Commands"] = {**sections.get("Commands", {}), **eager}
        width = max((len(name) for rows in sections.values() for name in rows), default=0)
        for title, rows in sections.items():
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
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            click.echo(nl=False)  # flushes stdout here, where an error can still be reported
        except (SymphonyError, click.ClickException) as error:
            sys.exit(report(error))
        except click.Abort:
            click.echo("stopped", err=True)
            sys.exit(_INTERRUPTED)
        except OSError as error:
            if error.filename is not None:
                message = f"{error.filename}: {error.strerror}"
                sys.exit(report(CommandError.of(message, hint="look at the file and its permissions")))
            if error.errno not in {*_NO_SPACE, errno.EPIPE}:
                raise
            # The interpreter flushes stdout again at exit, so the rest of the buffer goes to /dev/null.
            with suppress(OSError, ValueError):  # ValueError: stdout has no file descriptor
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, sys.stdout.fileno())
                os.close(null)
            if error.errno == errno.EPIPE:  # the reader, such as `head`, has closed the pipe
                sys.exit(ExitCode.FAILURE)
            message = f"the output cannot be written: {error.strerror}"
            sys.exit(report(CommandError.of(message, hint="check its destination and the free space there")))
        sys.exit(result if isinstance(result, int) else 0)


_EPILOG = """\b
Examples:
  symphony demo                     see the whole process, without an account or a model
  symphony init && symphony run     the same in your own repository
  symphony -C ../app status         in another directory
  symphony help tracker move        the help of a command

Symphony searches for WORKFLOW.md from the current directory up to the top of the git repository.
"""
SECTIONS: Final = {
    "Start": {
        "init": ("init:init", "Set up a git repository."),
        "run": ("run:run", "Work on issues as WORKFLOW.md describes."),
        "demo": ("demo:demo", "Demonstrate Symphony on a small repository."),
        "check": ("check:check", "Validate a WORKFLOW.md and list every problem."),
        "doctor": ("doctor:doctor", "Check everything a daemon needs, and suggest repairs."),
        "service": ("service:service", "Run the daemon of a repository as a systemd service."),
    },
    "Watch": {
        "status": ("status:status", "Show what runs and what waits, and why."),
        "open": ("open:open_", "Open the page of the daemon in a browser."),
        "explain": ("explain:explain", "Show why an issue runs or waits."),
        "logs": ("logs:logs", "Show what happened to an issue, and what its agent said."),
        "runs": ("runs:runs", "List runs with their outcome, tokens and cost."),
        "transcript": ("transcript:transcript", "Show what an agent got, said and did."),
        "diff": ("diff:diff", "Show what the branch of an issue changes."),
        "review": ("review:review", "Review finished work: send it back, or approve it."),
        "rehearse": ("rehearse:rehearse", "Show which finished branches merge, and which conflict."),
        "pr": ("pr:pr", "Show the pull request of an issue."),
        "prompt": ("prompt:prompt", "Print what a dispatch of an issue would send."),
        "health": ("health:health", "Report by the exit code whether the daemon answers."),
    },
    "Steer": {
        "stop": ("steer:stop", "End the runs of issues, and keep them from starting."),
        "retry": ("steer:retry", "Retry issues now."),
        "unblock": ("steer:unblock", "Give blocked issues a new budget and retry them."),
        "move": ("steer:move", "Move issues to another state of the tracker."),
        "verify": ("steer:verify", "Run the checks on the finished work of an issue."),
        "answer": ("steer:answer", "Answer the question of an issue's agent."),
        "comment": ("steer:comment", "Comment on an issue as a person."),
        "feedback": ("steer:feedback", "Rate the work on an issue to improve skills."),
        "pause": ("steer:pause", "Start nothing new; running sessions continue."),
        "resume": ("steer:resume", "Let a paused daemon start issues again."),
        "drain": ("steer:drain", "Let running turns end, then end the daemon."),
        "refresh": ("steer:refresh", "Poll the tracker now."),
    },
    "Board": {
        "issue": ("issue:issue", "Create issues, and work with those of a Markdown board."),
        "schedules": ("schedules:schedules", "Show recurring issues, and create one now."),
        "tracker": ("tracker:tracker", "Check the tracker, and write to it from scripts."),
        "forge": ("forge:forge", "Check the access to pull requests."),
        "skills": ("skills:skills", "Manage the skills of a repository."),
        "library": ("library:library", "Manage the library of skills."),
        "instructions": ("instructions:instructions", "Manage the instructions for phases of the work."),
    },
    "Upkeep": {
        "notify": ("notify:notify", "List and test the targets of notifications."),
        "outbox": ("outbox:outbox", "Show writes that have not arrived yet, and try them again."),
        "hosts": ("hosts:hosts", "Show, check and prepare the machines that run sessions."),
        "clean": ("clean:clean", "Remove the leftovers of ended runs and issues."),
        "replay": ("replay:replay", "Repeat the decisions of a recorded daemon."),
        "completion": ("help:completion", "Print the shell completion script."),
        "help": ("help:help_", "Show the help of a command."),
    },
}
"""The commands in the order of `symphony --help`. Help lines are repeated here: importing every command for
them would take 0.25 s."""

HIDDEN: Final = {"worker": "worker:worker"}


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - a click callback
    if wanted:
        click.echo(f"symphony {version_text()}")
        ctx.exit()


@click.group(cls=LazyGroup, sections=SECTIONS, hidden=HIDDEN, epilog=_EPILOG)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version, with the commit if it is known.",
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Turn tracker issues into supervised coding-agent sessions."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # so that a file name that is not text can be printed
        sys.stdout.reconfigure(errors="backslashreplace")
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def program_name() -> str:
    """The shell word that starts this program: `symphony`, or its quoted path if PATH does not lead to it."""
    called = Path(sys.argv[0])
    if shutil.which("symphony") is not None or called.name != "symphony":
        return "symphony"
    return shlex.quote(str(called.absolute()))
