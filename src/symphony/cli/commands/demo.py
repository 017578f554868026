"""`symphony demo`: a demonstration on a small real repository, with an agent that needs no model."""

from pathlib import Path

import click

from symphony.cli.failures import CommandError, ExitCode
from symphony.cli.options import json_option

_EPILOG = """\b
Examples:
  symphony demo                     takes some seconds and costs nothing: no model is involved
  symphony demo --dir /var/tmp/d    keep the repository, the board and the log
  symphony demo --agent codex       use the Codex that is installed and logged in
  symphony demo --page              watch it in a browser; the page stays until you press a key
  symphony demo --learn             rate the work, and see a skill get better by it
  symphony demo --json              print one JSON object at the end
"""


@click.command(epilog=_EPILOG, short_help="Demonstrate Symphony on a small repository.")
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
@click.option(
    "--page", is_flag=True, help="Show the page in a browser, and keep it up until a key is pressed."
)
@click.option("--learn", is_flag=True, help="Give feedback on the work, and accept what is learned from it.")
@json_option
def demo(agent: str, directory: Path | None, *, page: bool, learn: bool, as_json: bool) -> int:
    """Demonstrate Symphony: four issues, three skills and one malformed skill become commits."""
    from symphony.cli.demo_run import run_demo

    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise CommandError.of(
            f"{directory} is not empty", hint="name a new or empty directory", code=ExitCode.USAGE
        )
    if page and learn:
        raise click.UsageError("--page and --learn cannot be combined")
    ok = run_demo(agent=agent, directory=directory, page=page, learn=learn, as_json=as_json)
    return ExitCode.OK if ok else ExitCode.FAILURE
