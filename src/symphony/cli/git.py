"""git as the commands use it on the user's own repository, without surprises from their configuration."""

import subprocess
from pathlib import Path

from symphony.cli.failures import CommandError

__all__ = ["git"]


def git(
    directory: Path, *arguments: str, timeout_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run git in a directory; its exit code is the caller's to judge.

    Raises:
        CommandError: git is not installed.
        subprocess.TimeoutExpired: `timeout_s` is over.
    """
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=timeout_s,
        )
    except FileNotFoundError as error:
        hint = "install git, then run the command again"
        raise CommandError.of("git is not installed", hint=hint) from error
