"""`symphony demo`: the main job on a small real repository, with an agent that needs no model."""

import sys
from pathlib import Path

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.options import json_option

_EPILOG = """\b
Examples:
  symphony demo                     a minute of nobody's money: no model is involved
  symphony demo --dir /var/tmp/d    keep the repository, the board and the log
  symphony demo --agent codex       the same with the Codex that is installed and logged in
  symphony demo --json              one JSON object at the end, for machines
"""


@click.command(epilog=_EPILOG, short_help="See the main job on a small repository.")
@click.option(
    "--agent",
    type=click.Choice(["scripted", "codex"]),
    default="scripted",
    show_default=True,
    help="scripted: follows a script, no model is involved. codex: the real agent.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep everything in this new or empty directory.",
)
@json_option
def demo(agent: str, directory: Path | None, *, as_json: bool) -> None:
    """Show the main job: four issues, three skills and one malformed skill become commits."""
    # Imported here: `--help` of any command stays fast.
    from symphony.cli import demo_run

    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise CommandError.of(
            f"{directory} is not empty",
            hint="name a new directory, so that nothing of yours is touched",
            code=ExitCode.USAGE,
        )
    ok = demo_run.show(agent=agent, directory=directory, as_json=as_json)
    sys.exit(ExitCode.OK if ok else ExitCode.FAILURE)
