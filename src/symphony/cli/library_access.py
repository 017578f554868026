"""Opens the library of skills of a workflow, beside a daemon or without one."""

import getpass
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from symphony.cli.failures import CommandError, ExitCode, require_person
from symphony.cli.options import json_option, nearest_workflow, print_json, workflow_option
from symphony.domain import SymphonyError, one_line

if TYPE_CHECKING:
    from symphony.api.interface import LibraryInUse
    from symphony.api.routes import Edit
    from symphony.config import AgentSettings, WorkspaceSettings
    from symphony.library.store import Library

_MAX_REASON_CHARS: Final = 500  # MAX_REASON_CHARS of library.model, which is slow to import


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLibrary:
    """The library of a workflow.

    Attributes:
        workflow: the workflow file, which need not exist.
        settings: those of `agent`.
        agents: the names of the agents of the workflow; empty if they are not known.
        workspace: the section, if it is known.
        in_use: the library, and what masks secrets in it.
    """

    workflow: Path
    settings: "AgentSettings"
    agents: tuple[str, ...]
    workspace: "WorkspaceSettings | None"
    in_use: "LibraryInUse"


def library_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json` and `--workflow`; the command gets the library as `library`."""

    @wraps(command)
    def run(*args: Any, workflow: Path, **options: Any) -> Any:
        from symphony.api.interface import ConflictError, UnknownError

        library = open_library(workflow, os.environ)
        if not workflow.exists() and not library.in_use.store.path.exists():
            raise CommandError.of(
                f"there is no {workflow}, and no library of it",
                hint="go to the repository, or name it with -C DIR or --workflow FILE; "
                "`symphony init` makes one",
                code=ExitCode.CONFIGURATION,
            )
        try:
            return command(*args, library=library, **options)
        except (ConflictError, UnknownError) as error:
            hint = error.hint or "`symphony library list` names the skills"
            raise CommandError.of(error.message, hint=hint) from error

    return json_option(workflow_option(run))


def skill_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument NAME: a skill of the library."""
    return click.argument("name", shell_complete=complete_skill)(command)


def complete_skill(ctx: click.Context, _argument: click.Parameter, incomplete: str) -> list[str]:
    """Names of skills that begin with `incomplete`, for shell completion; never fails, and makes no file."""
    return _completed(ctx, incomplete, lambda library: (one.name for one in library.skills()))


def complete_proposal(ctx: click.Context, _argument: click.Parameter, incomplete: str) -> list[str]:
    """Ids of the proposals that wait for a person; as `complete_skill`."""
    return _completed(ctx, incomplete, lambda library: (str(one.id) for one in library.proposals()))


def _completed(ctx: click.Context, incomplete: str, names: "Callable[[Library], Iterable[str]]") -> list[str]:
    workflow = ctx.params.get("workflow") or nearest_workflow()
    try:
        library = open_library(Path(workflow), os.environ).in_use.store
        found = list(names(library)) if library.path.exists() else []
    except (SymphonyError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


def reason_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--reason TEXT`."""

    def check(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
        if value is not None and len(value) > _MAX_REASON_CHARS:
            raise click.BadParameter(f"at most {_MAX_REASON_CHARS} characters", param=option)
        return value

    return click.option("--reason", metavar="TEXT", callback=check, help="Why; it is kept.")(command)


def change_library(library: OpenLibrary, edit: "Edit", by: str, *, as_json: bool, name: str = "") -> None:
    """Change the library as the API does, and print what was done.

    Args:
        library: to change.
        edit: what to do.
        by: who does it.
        as_json: print the document.
        name: the skill that a new file is of, if it is no new one.

    Raises:
        ConflictError: the edit was based on another version than the newest one.
        UnknownError: there is no such skill, version or proposal.
        LibraryError: the library refuses it, or cannot be used.
    """
    from symphony.api.library import change

    done = change(library.in_use, edit, by, name)
    if as_json:
        print_json(done)
        return
    from symphony.cli.render.library import finding_line

    for finding in done.findings:
        click.echo(finding_line(finding, coloured=sys.stderr.isatty()), err=True)
    click.echo(one_line(done.message))


def show_both(library: OpenLibrary, name: str, base: int, mine: str) -> None:
    """Show what was changed since a version of a skill, and the change that was based on it, on stderr.

    `base` is 0 for a change that would have made the skill.
    """
    from symphony.api.library import diff, skill
    from symphony.cli.render.library import print_diff

    newest = skill(library.in_use, name).skill.version
    if base:
        click.echo(f"Changed meanwhile, from version {base} to {newest}:", err=True)
        print_diff(diff(library.in_use, name, base, newest).diff, err=True)
    else:
        click.echo(f"Added meanwhile: {name}, now at version {newest}", err=True)
    click.echo("The change that is refused:", err=True)
    print_diff(mine, err=True)


def open_library(workflow: Path, environment: Mapping[str, str]) -> OpenLibrary:
    """The library of a workflow file, whatever is wrong with other sections than `agent`.

    Raises:
        CommandError: the workflow file cannot be read, or its `agent` is not valid.
    """
    # Imported here: `--help` of any command stays fast.
    from symphony.api.interface import LibraryInUse
    from symphony.config import (
        AgentSettings,
        WorkflowError,
        WorkspaceSettings,
        read_secrets,
        read_workflow_file,
    )
    from symphony.daemon.admission import judge
    from symphony.daemon.context import provider_redaction, redaction_for
    from symphony.daemon.state_dir import locate
    from symphony.library.store import Library, library_path

    environment = read_secrets(environment).environment
    state_dir = locate(workflow, environment)
    settings, redaction = AgentSettings(), provider_redaction({}, environment)
    agents: tuple[str, ...] = ()
    workspace: WorkspaceSettings | None = None
    if workflow.exists():
        try:
            judgement = judge(read_workflow_file(workflow), environment=environment, acknowledged=None)
        except WorkflowError as error:
            raise CommandError(error.failure, code=ExitCode.CONFIGURATION) from error
        agent = judgement.sections.get("agent")
        if not isinstance(agent, AgentSettings):
            raise CommandError(judgement.failures[0], code=ExitCode.CONFIGURATION)
        settings = agent
        if judgement.workflow is not None:
            redaction = redaction_for(judgement.workflow, environment)
            agents = tuple(judgement.workflow.agents)
            workspace = judgement.workflow.settings.workspace
    return OpenLibrary(
        workflow=workflow,
        settings=settings,
        agents=agents,
        workspace=workspace,
        in_use=LibraryInUse(
            store=Library(library_path(state_dir, settings.library.path)), mask=redaction.text
        ),
    )


def author() -> str:
    """Who changes the library: the name of this user.

    Raises:
        CommandError: the command was started by an agent.
    """
    hint = "write the skill into the skills directory of the workspace; a person gets it as a proposal"
    require_person("change the library", hint=hint)
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "operator"
