"""`symphony init`: the files that make a repository ready, never overwriting one that is there."""

import json
import re
import shlex
import shutil
from importlib import resources
from pathlib import Path

import click

from symphony.cli.failures import CommandError
from symphony.cli.git import git

__all__ = ["init"]

_EPILOG = """\b
Examples:
  symphony init              in any directory of a git repository
  symphony init --dir app    in another one

Nothing that exists is overwritten; run it again to add what is missing.
"""
_PLAIN = re.compile(r"[A-Za-z_/][\w./+-]*|~/[\w./+-]*", re.ASCII)
_SCAFFOLD = {
    "WORKFLOW.md": "WORKFLOW.md",
    "SYM-1.md": ".symphony/issues/SYM-1.md",
    "SKILL.md": ".symphony/skills/example/SKILL.md",
}
_COMMITTED = ("WORKFLOW.md", ".symphony/skills")


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
    answer = _asked(directory, "rev-parse", "--show-toplevel")
    if answer is None:
        raise CommandError.of(
            f"{directory.absolute()} is not in a git repository",
            hint="run `git init` there first, or go to your repository",
        )
    return Path(answer)


def _asked(directory: Path, *arguments: str) -> str | None:
    done = git(directory, *arguments)
    return done.stdout.strip() if done.returncode == 0 else None


def _filled(source: str, root: Path) -> str:
    # Imported here: only this command needs to know where state lives.
    from symphony.cli.paths import workspace_root_for

    text = (resources.files("symphony.cli") / "scaffold" / source).read_text(encoding="utf-8")
    branch = _asked(root, "symbolic-ref", "--short", "HEAD") or "main"
    workspaces = workspace_root_for(root / "WORKFLOW.md")
    return text.replace("@WORKSPACE_ROOT@", _scalar(workspaces)).replace("@BASE_BRANCH@", _scalar(branch))


def _scalar(text: str) -> str:
    """The text as a YAML scalar: quoted where YAML could take it for something else than this text."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in {"true", "false", "null"}
    return text if plain else json.dumps(text, ensure_ascii=False)


def _write(target: Path, text: str, *, shown: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = target.exists() or target.is_symlink()
        if not kept:
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror}"
        raise CommandError.of(message, hint="look at the directory and its permissions") from error
    click.echo(f"{'kept' if kept else 'created':8} {shown}")


def _next_steps(root: Path) -> str:
    # Imported here, as above.
    from symphony.cli.paths import program

    lines = [] if Path.cwd().resolve() == root.resolve() else [f"cd {shlex.quote(str(root))}"]
    # Skills reach a session by way of the clone. The board does not: it stays in one place.
    if _asked(root, "status", "--porcelain", "--", *_COMMITTED) != "":
        lines.append(f"git add {' '.join(_COMMITTED)} && git commit -m 'Add Symphony'")
    if shutil.which("codex") is None:
        lines.append("npm install -g @openai/codex && codex login    # the agent is not installed yet")
    symphony = program()
    lines += [
        f"{symphony} check             # what is still wrong, if anything",
        f"{symphony} run",
        f"{symphony} status --watch    # in another terminal",
    ]
    return "\n".join(["", "Next:", *(f"  {line}" for line in lines)])
