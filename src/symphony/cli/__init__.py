"""The command line. Each subcommand lives in its own module and is imported only when it is used."""

import io
import sys

import click

from symphony.cli.lazy import LazyGroup

__all__ = ["main"]

_EPILOG = """\b
Examples:
  symphony demo                     see the whole way, without an account or a model
  symphony init && symphony run     the same in your own repository
"""
COMMANDS = {
    "answer": "symphony.cli.answer:answer",
    "check": "symphony.cli.check:check",
    "clean": "symphony.cli.clean:clean",
    "completion": "symphony.cli.completion:completion",
    "demo": "symphony.cli.demo:demo",
    "doctor": "symphony.cli.doctor:doctor",
    "drain": "symphony.cli.drain:drain",
    "explain": "symphony.cli.explain:explain",
    "health": "symphony.cli.health:health",
    "init": "symphony.cli.init:init",
    "issue": "symphony.cli.issue:issue",
    "logs": "symphony.cli.logs:logs",
    "pause": "symphony.cli.verbs:pause",
    "prompt": "symphony.cli.prompt:prompt",
    "refresh": "symphony.cli.refresh:refresh",
    "replay": "symphony.cli.replay:replay",
    "resume": "symphony.cli.verbs:resume",
    "retry": "symphony.cli.verbs:retry",
    "run": "symphony.cli.run:run",
    "service": "symphony.cli.service:service",
    "skills": "symphony.cli.skills:skills",
    "status": "symphony.cli.status:status",
    "stop": "symphony.cli.verbs:stop",
    "tracker": "symphony.cli.tracker:tracker",
    "unblock": "symphony.cli.verbs:unblock",
}
HELPS = {
    "answer": "Answer the question of an issue's agent.",
    "check": "Tell everything that is wrong with a WORKFLOW.md.",
    "clean": "Remove what ended runs and issues have left.",
    "completion": "Print the script that completes `symphony` in a shell.",
    "demo": "See the main job on a small repository.",
    "doctor": "Check all that a daemon needs, and say how to mend it.",
    "drain": "Have the daemon end once its present turns have.",
    "explain": "Tell why an issue is running, or is not.",
    "health": "Tell by the exit code whether the daemon answers.",
    "init": "Make a git repository ready.",
    "issue": "Work with the issues of a Markdown board.",
    "logs": "Show what happened to an issue, and what its agent said.",
    "pause": "Have the daemon start nothing new.",
    "prompt": "Print what a dispatch of an issue would send.",
    "refresh": "Have the daemon poll the tracker now.",
    "replay": "Take the decisions of a recorded daemon again.",
    "resume": "Have a paused daemon start issues again.",
    "retry": "Have an issue tried now.",
    "run": "Work on the issues of a board as WORKFLOW.md says.",
    "service": "Have systemd keep a daemon of a repository running.",
    "skills": "Work with the skills of a repository.",
    "status": "Show what runs and what waits, and why.",
    "stop": "End the run of an issue, and keep it from starting.",
    "tracker": "Look at the tracker, and write to it from scripts.",
    "unblock": "Give a blocked issue a new budget, and have it tried.",
}
"""What `symphony --help` shows, as data: importing every command to ask it took a quarter of a second."""


@click.group(cls=LazyGroup, lazy=COMMANDS, helps=HELPS, invoke_without_command=True, epilog=_EPILOG)
@click.option(
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
