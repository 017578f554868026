"""The daemon, for commands that are nothing without one; they never fall back to the files."""

from collections.abc import Mapping
from pathlib import Path

from symphony.cli import client
from symphony.cli.control import absence, unreachable
from symphony.cli.failures import warn

__all__ = ["needed_daemon"]


def needed_daemon(workflow: Path, environment: Mapping[str, str], *, hint: str) -> client.Client:
    """The daemon of a workflow file, ready to be asked; `hint` is what to do where there is none.

    Raises:
        UnreachableError: there is none, or it cannot be asked.
    """
    found = client.reach(workflow, environment)
    if found is not None:
        return found
    if not workflow.exists():
        raise unreachable(
            f"no daemon is running for {workflow}, and there is no such file",
            hint="go to the repository, or name its file with --workflow; `symphony init` makes one",
        )
    if notice := absence(workflow, environment):
        warn(notice)
    raise unreachable(f"no daemon is running for {workflow}", hint=hint)
