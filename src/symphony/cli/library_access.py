"""Opens the library of skills of a workflow, beside a daemon or without one."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from symphony.api.interface import LibraryInUse
from symphony.cli.failures import CommandError, ExitCode
from symphony.config import AgentSettings, WorkflowError, WorkspaceSettings, read_secrets, read_workflow_file
from symphony.daemon.admission import judge
from symphony.daemon.context import provider_redaction, redaction_for
from symphony.daemon.state_dir import locate
from symphony.library.store import Library, library_path


class OpenLibrary(Struct, frozen=True, kw_only=True):
    """The library of a workflow.

    Attributes:
        workflow: the workflow file, which need not exist.
        settings: those of `agent`.
        agents: the names of the agents of the workflow; empty if they are not known.
        workspace: the section, if it is known.
        in_use: the library, and what masks secrets in it.
    """

    workflow: Path
    settings: AgentSettings
    agents: tuple[str, ...]
    workspace: WorkspaceSettings | None
    in_use: LibraryInUse


def open_library(workflow: Path, environment: Mapping[str, str]) -> OpenLibrary:
    """The library of a workflow file, even if sections other than `agent` are invalid.

    Raises:
        CommandError: the workflow file cannot be read, or its `agent` is not valid.
    """
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
