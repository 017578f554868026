"""git as the commands use it on the user's own repository, without surprises from their configuration."""

import os
import subprocess
from pathlib import Path

from symphony.cli.failures import CommandError

__all__ = ["git"]


def git(
    directory: Path, *arguments: str, timeout_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run git in a directory; its exit code is the caller's to judge.

    What it prints is told as it is: a name may hold a carriage return, which is no end of a line.

    Raises:
        CommandError: git is not installed.
        subprocess.TimeoutExpired: `timeout_s` is over.
    """
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=directory,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=timeout_s,
        )
    except FileNotFoundError as error:
        hint = "install git, then run the command again"
        raise CommandError.of("git is not installed", hint=hint) from error
    stdout, stderr = os.fsdecode(done.stdout), os.fsdecode(done.stderr)
    return subprocess.CompletedProcess(done.args, done.returncode, stdout, stderr)
