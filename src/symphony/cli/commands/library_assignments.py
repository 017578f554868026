"""`symphony library assign`, `unassign` and `assignments`: which skills an issue or an agent gets."""

from typing import TYPE_CHECKING, Any, Literal

import click

from symphony.cli.failures import warn
from symphony.cli.library_access import (
    OpenLibrary,
    author,
    change_library,
    complete_skill,
    library_options,
)
from symphony.cli.options import complete_issue, known_issues, print_json
from symphony.domain import issues_named, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

_ASSIGN_EPILOG = """\b
Examples:
  symphony library assign --issue SYM-7 release-notes style
  symphony library assign --agent codex style
  symphony library assign --issue SYM-8 --none          no skill of the library at all

What is assigned to an issue decides, with its labels `skill:<name>`; else what is assigned to the agent; else
`agents.<name>.library` of WORKFLOW.md; else sessions get all skills. It holds for sessions that start later.

Exit codes: 0 assigned, 1 the library has no such skill, 2 usage, 3 the workflow is invalid.
"""
_UNASSIGN_EPILOG = """\b
Examples:
  symphony library unassign --issue SYM-7

The next rule decides then: see `symphony library assign --help`.

Exit codes: 0 done, or there was no assignment, 1 the library cannot be written, 2 usage, 3 the workflow is
invalid.
"""
_LIST_EPILOG = """\b
Examples:
  symphony library assignments
  symphony library assignments --json | jq '.assignments[] | select(.kind == "issue")'

Labels of issues and `agents.<name>.library` of WORKFLOW.md are not listed.

Exit codes: 0 done, 1 the library cannot be read, 2 usage, 3 the workflow is invalid.
"""


def _target_options(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """Add `--issue` and `--agent`, of which one must be given."""
    for option in (
        click.option("--agent", metavar="NAME", help="An agent of `agents` in WORKFLOW.md."),
        click.option("--issue", metavar="ISSUE", shell_complete=complete_issue, help="An issue."),
    ):
        command = option(command)
    return command


@click.command(epilog=_ASSIGN_EPILOG, short_help="Let an issue or an agent have these skills only.")
@click.argument("skills", metavar="SKILL...", nargs=-1, shell_complete=complete_skill)
@_target_options
@click.option("--none", "nothing", is_flag=True, help="No skill of the library.")
@library_options
def assign(
    *,
    skills: tuple[str, ...],
    issue: str | None,
    agent: str | None,
    nothing: bool,
    library: OpenLibrary,
    as_json: bool,
) -> None:
    """Let an issue or an agent have exactly these skills of the library."""
    if nothing == bool(skills):
        raise click.UsageError("name skills, or give --none")
    _assign(library, issue, agent, skills, as_json=as_json)


@click.command(epilog=_UNASSIGN_EPILOG, short_help="Drop an assignment.")
@_target_options
@library_options
def unassign(*, issue: str | None, agent: str | None, library: OpenLibrary, as_json: bool) -> None:
    """Drop the assignment of an issue or an agent."""
    _assign(library, issue, agent, None, as_json=as_json)


@click.command(epilog=_LIST_EPILOG, short_help="List the assignments.")
@library_options
def assignments(*, library: OpenLibrary, as_json: bool) -> None:
    """List the assignments, and warn of names that the library does not have."""
    from symphony.api.library import assignments as all_assignments

    found = all_assignments(library.in_use)
    known = {one.name for one in library.in_use.store.skills()}
    for one in found.assignments:
        if missing := sorted(set(one.skills) - known):
            warn(f"{one.kind} {one.target}: the library has no {', '.join(missing)}")
    if as_json:
        print_json(found)
        return
    from symphony.cli.render.library import print_assignments, tell_count

    print_assignments(found)
    tell_count(len(found.assignments), "assignment")


def _assign(
    library: OpenLibrary,
    issue: str | None,
    agent: str | None,
    skills: tuple[str, ...] | None,
    *,
    as_json: bool,
) -> None:
    from symphony.api.models import LibraryAssign

    kind: Literal["issue", "agent"] = "agent" if issue is None else "issue"
    target = issue or agent
    if target is None or (issue and agent):
        raise click.UsageError("give --issue or --agent, one of them")
    if agent and library.agents and agent not in library.agents:
        warn(f"WORKFLOW.md has no agent {one_line(agent)}: its agents are {', '.join(library.agents)}")
    if issue is not None and len(meant := issues_named(issue, known_issues(library.workflow))) == 1:
        (target,) = meant
    change_library(library, LibraryAssign(kind=kind, target=target, skills=skills), author(), as_json=as_json)
