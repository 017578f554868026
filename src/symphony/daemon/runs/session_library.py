"""The library in a run: writes its skills into the workspace, and syncs the agent's changes.

An unusable library costs a log line, never a run.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypedDict

import structlog

from symphony import to_thread
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs import library_skills
from symphony.daemon.runs.skills import repository_skills
from symphony.library.model import Authorship, Evidence
from symphony.library.provenance import provenance
from symphony.library.sync import CollectedSkills, Synced, collect_skills, sync_collected, sync_skills
from symphony.library.workspace import write_skills
from symphony.scheduler import StartRun
from symphony.skills import LibraryFiles
from symphony.workspaces import Layout, Workspace

_log = structlog.get_logger(__name__)


class SessionLibrary:
    """The library in one run.

    Attributes:
        chosen: the skills that the run gets; empty before `write`.
        files: the written skills; `None` for none.

    Args:
        context: has the library; `None` counts as an empty one.
        command: the command that began the run.
        send: lets the daemon sync collected skills, if only its machine has the library.
    """

    def __init__(
        self,
        context: RuntimeContext,
        command: StartRun,
        *,
        send: Callable[[CollectedSkills], Awaitable[Synced | None]],
    ) -> None:
        self._send = send
        self._context = context
        self._command = command
        self.chosen = library_skills.ChosenSkills()
        self.files: LibraryFiles | None = None

    async def write(self, workspace: Workspace) -> None:
        """Write the skills of the run into its workspace, after a sync of the present files."""
        if not workspace.created_now:
            await self.sync(workspace)
        try:
            await self._write(workspace)
        except Exception as error:  # noqa: BLE001 - a run does not fail because of the library
            _log.warning("library_unavailable", **library_skills.reason_of(self._context, error))

    async def sync(self, workspace: Workspace) -> Synced | None:
        """Turn the agent's changes into proposals or versions; `None` if there was nothing to compare."""
        try:
            return await self._sync(workspace)
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("skills_sync_failed", **library_skills.reason_of(self._context, error))
        return None

    async def _write(self, workspace: Workspace) -> None:
        context, issue, agent = self._context, self._command.issue, self._command.agent
        directory = context.settings.agent.library.directory
        record = Layout(workspace.path.parent).written_skills(workspace.key)
        found = await library_skills.resolve_skills(context, issue, agent)
        if found is None:
            return
        if workspace.created_now:  # there may be a record of an earlier workspace with this name
            await to_thread.run_sync(partial(record.unlink, missing_ok=True))
        before = await to_thread.run_sync(library_skills.written_files, workspace.path, directory)
        if not found.skills and not before.names:
            return
        repository = await repository_skills(context, workspace, agent, before)
        chosen = await library_skills.choose_skills(context, issue, found, repository)
        if chosen is None:
            return
        tracked = await context.workspaces.tracked(workspace, directory)
        taken = await to_thread.run_sync(
            partial(write_skills, workspace.path, record, directory, chosen.data, tracked=tracked)
        )
        names = frozenset(chosen.data).difference(taken)
        self.chosen = replace(
            chosen,
            data={name: chosen.data[name] for name in sorted(names)},
            shadowed=tuple(sorted({*chosen.shadowed, *taken})),
        )
        self.files = LibraryFiles(base=workspace.path, path=directory, names=names, learned=chosen.learned)
        _log.info(
            "library_skills_written",
            versions=self.chosen.versions,
            reason=chosen.reason,
            shadowed=self.chosen.shadowed,
        )

    async def _sync(self, workspace: Workspace) -> Synced | None:
        context, command = self._context, self._command
        settings, record = context.settings.agent, Layout(workspace.path.parent).written_skills(workspace.key)
        if settings.library.sync == "off" or not settings.skills.enabled:
            return None
        if workspace.created_now and self.files is None:  # nothing was written into it
            return None
        before = await to_thread.run_sync(
            library_skills.written_files, workspace.path, settings.library.directory
        )
        if not before.names:
            return None
        tracked = await context.workspaces.tracked(workspace, settings.library.directory)
        if context.carried_skills is not None:
            collected = await to_thread.run_sync(
                partial(collect_skills, workspace.path, record, tracked=tracked)
            )
            return None if collected is None else await self._send(collected)
        if context.library is None or not await to_thread.run_sync(context.library.path.exists):
            return None
        library = context.library
        return await _logged(
            partial(sync_skills, library, workspace.path, record, tracked=tracked, **_terms(context, command))
        )


async def sync_from_host(
    context: RuntimeContext, command: StartRun, collected: CollectedSkills
) -> Synced | None:
    """Turn the skills that a worker on a host collected into proposals or versions.

    Raises:
        SymphonyError, OSError: as `sync_collected`.
    """
    library, settings = context.library, context.settings.agent
    if library is None or settings.library.sync == "off" or not settings.skills.enabled:
        return None
    return await _logged(partial(sync_collected, library, collected, **_terms(context, command)))


class _Terms(TypedDict):
    """The arguments of `sync_skills` that say how to store skills."""

    evidence: Evidence
    change: Authorship | None
    metadata: Mapping[str, str]
    mask: Callable[[str], str]


def _terms(context: RuntimeContext, command: StartRun) -> _Terms:
    model = context.workflow.agents[command.agent].settings.model
    change = Authorship(author=command.agent, reason="sync after a run", run_id=command.run_id)
    return _Terms(
        evidence=Evidence(
            run_id=command.run_id, issue_id=command.issue.id, issue_identifier=command.issue.identifier
        ),
        change=change if context.settings.agent.library.sync == "apply" else None,
        metadata=provenance(run_id=command.run_id, agent=command.agent, model=model),
        mask=context.redaction.text,
    )


async def _logged(sync: Callable[[], Synced | None]) -> Synced | None:
    synced = await to_thread.run_sync(sync)
    if synced is not None:
        _log.info(
            "skills_synced",
            created=synced.created,
            updated=synced.updated,
            unchanged=synced.unchanged,
            proposals=synced.proposals,
            malformed=synced.problems,
        )
    return synced
