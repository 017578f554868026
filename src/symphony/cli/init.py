"""`symphony init`: the files that make a repository ready, never overwriting one that is there."""

import shlex
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import click

from symphony.cli.failures import CommandError

__all__ = ["init"]

_EPILOG = """\b
Examples:
  symphony init              in any directory of a git repository
  symphony init --dir app    in another one

Nothing that exists is overwritten; run it again to add what is missing.
"""
_SCAFFOLD = {
    "WORKFLOW.md": "WORKFLOW.md",
    "SYM-1.md": ".symphony/issues/SYM-1.md",
    "SKILL.md": ".symphony/skills/example/SKILL.md",
}


@click.command(epilog=_EPILOG, short_help="Make a git repository ready.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=".",
    help="A directory of the git repository (default: the current one).",
)
def init(directory: Path) -> None:
    """Make a git repository ready: WORKFLOW.md, a first issue and an example skill."""
    root = _repository(directory)
    for source, target in _SCAFFOLD.items():
        _write(root / target, _filled(source, root), shown=target)
    click.echo(_next_steps(root))


def _repository(directory: Path) -> Path:
    answer = _git(directory, "rev-parse", "--show-toplevel")
    if answer is None:
        raise CommandError.of(
            f"{directory.absolute()} is not in a git repository",
            hint="run `git init` there first, or go to your repository",
        )
    return Path(answer)


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        hint = "install git, then run `symphony init` again"
        raise CommandError.of("git is not installed", hint=hint) from error
    return done.stdout.strip() if done.returncode == 0 else None


def _filled(source: str, root: Path) -> str:
    # Imported here: only this command needs to know where state lives.
    from symphony.cli.paths import workspace_root_for

    text = (resources.files("symphony.cli") / "scaffold" / source).read_text(encoding="utf-8")
    branch = _git(root, "symbolic-ref", "--short", "HEAD") or "main"
    return text.replace("@WORKSPACE_ROOT@", workspace_root_for(root / "WORKFLOW.md")).replace(
        "@BASE_BRANCH@", branch
    )


def _write(target: Path, text: str, *, shown: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        click.echo(f"kept     {shown}")
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror}"
        raise CommandError.of(message, hint="check the permissions of the directory") from error
    else:
        click.echo(f"created  {shown}")


def _next_steps(root: Path) -> str:
    # Imported here, as above.
    from symphony.cli.paths import program

    lines = [] if Path.cwd().resolve() == root.resolve() else [f"cd {shlex.quote(str(root))}"]
    # Skills reach a session by way of the clone. The board does not: it stays in one place.
    lines.append("git add WORKFLOW.md .symphony/skills && git commit -m 'Add Symphony'")
    if shutil.which("codex") is None:
        lines.append("npm install -g @openai/codex && codex login    # the agent is not installed yet")
    return "\n".join(["", "Next:", *(f"  {line}" for line in [*lines, f"{program()} run"])])
