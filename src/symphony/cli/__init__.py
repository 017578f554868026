"""The command line. Each subcommand lives in its own module and is imported only when it is used."""

import io
import sys
from typing import Final

import click

from symphony.cli.lazy import LazyGroup

__all__ = ["SECTIONS", "main"]

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
        "init": ("symphony.cli.init:init", "Make a git repository ready."),
        "run": ("symphony.cli.run:run", "Work on the issues of a board as WORKFLOW.md says."),
        "demo": ("symphony.cli.demo:demo", "See the main job on a small repository."),
        "check": ("symphony.cli.check:check", "Tell everything that is wrong with a WORKFLOW.md."),
        "doctor": ("symphony.cli.doctor:doctor", "Check all that a daemon needs, and say how to mend it."),
        "service": ("symphony.cli.service:service", "Have systemd keep a daemon of a repository running."),
    },
    "Watch": {
        "status": ("symphony.cli.status:status", "Show what runs and what waits, and why."),
        "explain": ("symphony.cli.explain:explain", "Tell why an issue is running, or is not."),
        "logs": ("symphony.cli.logs:logs", "Show what happened to an issue, and what its agent said."),
        "diff": ("symphony.cli.diff:diff", "Show what the branch of an issue changes."),
        "prompt": ("symphony.cli.prompt:prompt", "Print what a dispatch of an issue would send."),
        "health": ("symphony.cli.health:health", "Tell by the exit code whether the daemon answers."),
    },
    "Steer": {
        "stop": ("symphony.cli.verbs:stop", "End the run of an issue, and keep it from starting."),
        "retry": ("symphony.cli.verbs:retry", "Have an issue tried now."),
        "unblock": ("symphony.cli.verbs:unblock", "Give a blocked issue a new budget, and have it tried."),
        "answer": ("symphony.cli.answer:answer", "Answer the question of an issue's agent."),
        "pause": ("symphony.cli.verbs:pause", "Have the daemon start nothing new."),
        "resume": ("symphony.cli.verbs:resume", "Have a paused daemon start issues again."),
        "drain": ("symphony.cli.drain:drain", "Have the daemon end once its present turns have."),
        "refresh": ("symphony.cli.refresh:refresh", "Have the daemon poll the tracker now."),
    },
    "Board": {
        "issue": ("symphony.cli.issue:issue", "Work with the issues of a Markdown board."),
        "tracker": ("symphony.cli.tracker:tracker", "Look at the tracker, and write to it from scripts."),
        "skills": ("symphony.cli.skills:skills", "Work with the skills of a repository."),
    },
    "Upkeep": {
        "clean": ("symphony.cli.clean:clean", "Remove what ended runs and issues have left."),
        "replay": ("symphony.cli.replay:replay", "Take the decisions of a recorded daemon again."),
        "completion": (
            "symphony.cli.completion:completion",
            "Print the script that completes `symphony` in a shell.",
        ),
        "help": ("symphony.cli.help:help_", "Show the help of a command."),
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
