"""The instructions of a run, for the run itself and for its preview.

A source that fails costs log lines and never a run. The phase of a turn selects from the loaded modules.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from symphony.api import models
from symphony.daemon.context import RuntimeContext
from symphony.daemon.instruction_store import unavailable
from symphony.daemon.runs.skills import LOAD_DEADLINE_S, in_skill_thread
from symphony.domain import Issue
from symphony.skills import Composition, InstructionOrigin, Problem, Selector
from symphony.workspaces import Workspace

_log = structlog.get_logger(__name__)


async def load_run_instructions(context: RuntimeContext, workspace: Workspace) -> Selector | None:
    """The instructions for a session in a prepared workspace; `None` if none are configured. Logs problems.

    Waits at most `fetch_timeout_ms` for a server or for the base branch, and two seconds for files.
    """
    store, settings = context.instructions, context.settings.agent.instructions
    if store is None:
        return None
    if settings.source == "remote":
        fetched = await store.fetch()
        selector = await _read(lambda: store.load(fetched, shared=True), settings.path)
    elif settings.source == "local" and _from_base_branch(context):
        pinned = await _pin(context)
        selector = await _read(lambda: store.load(pinned, shared=True), settings.path)
    else:
        selector = await _read(lambda: store.load(workspace.path, shared=False), settings.path)
    for problem in selector.problems:
        _log.warning("instructions_problem", path=problem.where, code=problem.code, hint=problem.hint)
    if selector.origin is not InstructionOrigin.SOURCE:
        _log.warning("instructions_replaced", by=selector.origin.value)
    return selector


async def preview_run_instructions(context: RuntimeContext, issue: Issue) -> Selector | None:
    """The instructions that a session would get now, as far as they are known without fetching anything.

    Raises:
        SymphonyError: the run would fail with the same error.
    """
    store, settings = context.instructions, context.settings.agent.instructions
    if store is None:
        return None
    if settings.source != "local":
        unknown = unavailable(settings.url or settings.path, "no run has asked for it yet")
        return await _read(
            lambda: store.load(store.last_good() or unknown, shared=True, keep=False), settings.path
        )
    pinned = _from_base_branch(context)
    async with context.workspaces.preview(issue.identifier, (settings.path,), base=pinned) as seen:
        found = seen.tree or unavailable(settings.path, seen.note or "its files are not known")
        return await _read(lambda: store.load(found, shared=pinned, keep=False), settings.path)


def instructions_document(selector: Selector, composed: Composition) -> models.Instructions:
    """The instructions of a phase as a document of the API: names, digests and problems, without texts."""
    return models.Instructions(
        phase=composed.phase,
        origin=selector.origin.value,
        sha256=selector.sha256,
        modules=tuple(models.InstructionModule.of(one) for one in composed.modules),
        dropped=composed.dropped,
        chars=len(composed.text or ""),
        problems=selector.problems,
    )


def _from_base_branch(context: RuntimeContext) -> bool:
    return context.settings.agent.skills.source == "base_branch"


async def _pin(context: RuntimeContext) -> Path | Problem:
    settings = context.settings.agent.instructions
    try:
        timeout_s = settings.fetch_timeout_ms / 1_000
        return (await context.workspaces.pin((settings.path,), refresh_timeout_s=timeout_s)).root
    except Exception as error:  # noqa: BLE001 - a run does not fail because of instructions
        return unavailable(settings.path, context.redaction.text(str(error)) or type(error).__name__)


async def _read(read: Callable[[], Selector], place: str) -> Selector:
    """Read files in a thread; a dead disk or a bug means no instructions."""
    try:
        selector = await in_skill_thread(read, LOAD_DEADLINE_S)
        reason = f"no end within {LOAD_DEADLINE_S:g} seconds"
    except Exception as error:  # noqa: BLE001 - as above
        selector, reason = None, type(error).__name__
    if selector is None:
        return Selector(origin=InstructionOrigin.NOTHING, problems=(unavailable(place, reason),))
    return selector
