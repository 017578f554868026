"""Chooses the library skills of a run. An unusable library costs a log line, never a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import structlog

from symphony import to_thread
from symphony.daemon.context import RuntimeContext, skill_options
from symphony.daemon.frames import CarriedSkills
from symphony.domain import Issue, SymphonyError
from symphony.library.model import Origin, Resolution
from symphony.library.store import Library
from symphony.library.workspace import read_written
from symphony.skills import FILE_NAME, LibraryFiles, ParseOptions, SkillOptions, parse_bytes
from symphony.workspaces import Layout

MAX_SKILLS: Final = 200
"""How many skills are written into a workspace at most."""
_DEADLINE_S: Final = 10.0
_log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSkills:
    """The skills of the library that a run gets.

    Attributes:
        data: version and file, by name.
        learned: names of skills that an agent wrote.
        reason: why these skills, for people.
        shadowed: names of skills that the repository has too; the run gets them from there.
        for_people: names of skills that are reserved for people and not written.
    """

    data: Mapping[str, tuple[int, bytes]] = field(default_factory=dict)
    learned: frozenset[str] = frozenset()
    reason: str = ""
    shadowed: tuple[str, ...] = ()
    for_people: tuple[str, ...] = ()

    @property
    def versions(self) -> dict[str, int]:
        """The versions of the skills, by name."""
        return {name: version for name, (version, _) in self.data.items()}


async def resolve_skills(context: RuntimeContext, issue: Issue, agent: str) -> Resolution | None:
    """The assigned skills; `None` if there is no library, or it cannot be used."""
    library, labels = context.library, issue.labels
    if context.carried_skills is not None:
        return context.carried_skills.resolution
    if library is None or not context.settings.agent.skills.enabled:
        return None
    configured = context.workflow.agents[agent].settings.library

    def resolve() -> Resolution | None:
        if not library.path.exists():
            return None
        return library.resolve(issue=issue.identifier, labels=labels, agent=agent, configured=configured)

    found = await _in_time(context, resolve)
    if found is not None and found.unknown:
        _log.warning("library_skills_unknown", names=found.unknown, reason=found.reason)
    return found


async def choose_skills(
    context: RuntimeContext, issue: Issue, found: Resolution, repository: frozenset[str]
) -> ChosenSkills | None:
    """The assigned skills that the run gets; `None` if the library cannot be used.

    Args:
        context: has the library.
        issue: the issue, whose labels may call for skills that are reserved for people.
        found: the assigned skills.
        repository: names of usable skills from outside the library.
    """
    chosen = tuple(one.name for one in found.skills if one.name not in repository)
    if len(chosen) > MAX_SKILLS:
        _log.warning("library_skills_left_out", count=len(chosen) - MAX_SKILLS, limit=MAX_SKILLS)
    data: Mapping[str, tuple[int, bytes]] | None = None
    if context.carried_skills is not None:
        carried = context.carried_skills.data
        data = {name: carried[name] for name in chosen[:MAX_SKILLS] if name in carried}
    elif context.library is not None:
        data = await _in_time(context, partial(_read, context.library, chosen[:MAX_SKILLS]))
    if data is None:
        return None
    options = replace(skill_options(context.settings.agent.skills), labelled=frozenset(issue.called_skills))
    hidden = frozenset(name for name, (_, file) in data.items() if _is_hidden(file, name, options))
    return ChosenSkills(
        data={name: one for name, one in data.items() if name not in hidden},
        learned=frozenset(one.name for one in found.skills if one.origin is Origin.LEARNED),
        reason=found.reason,
        shadowed=tuple(one.name for one in found.skills if one.name in repository),
        for_people=tuple(name for name in data if name in hidden),
    )


def _is_hidden(file: bytes, name: str, options: SkillOptions) -> bool:
    skill = parse_bytes(file, name, FILE_NAME, ParseOptions()).skill
    return skill is not None and options.hides(skill)


async def carry_skills(context: RuntimeContext, issue: Issue, agent: str) -> CarriedSkills | None:
    """The assigned skills of a run on a host; `None` for none."""
    found = await resolve_skills(context, issue, agent)
    if found is None or context.library is None:
        return None
    names = tuple(one.name for one in found.skills)[:MAX_SKILLS]
    data = await _in_time(context, partial(_read, context.library, names))
    return None if data is None else CarriedSkills(resolution=found, data=data)


def written_files(workspace: Path, directory: str) -> LibraryFiles:
    """The skills of the library that an earlier attempt wrote into a workspace; blocking."""
    written = read_written(Layout(workspace.parent).written_skills(workspace.name))
    names = frozenset[str]() if written is None else frozenset(written.skills)
    return LibraryFiles(base=workspace, path=directory, names=names)


def reason_of(context: RuntimeContext, error: Exception) -> dict[str, str | None]:
    """Why the library is not used, with secrets masked: `reason` and `hint` of a log event."""
    if isinstance(error, SymphonyError):
        failure = context.redaction.failure(error.failure)
        return {"reason": failure.message, "hint": failure.hint}
    return {"reason": context.redaction.text(str(error)) or type(error).__name__, "hint": None}


def _read(library: Library, names: tuple[str, ...]) -> dict[str, tuple[int, bytes]]:
    return {one.name: (one.version, one.text.file()) for one in library.named(names)}


async def _in_time(context: RuntimeContext, work: Callable[[], T]) -> T | None:
    """The result of reading the library; `None` with a log line if it fails or takes too long."""
    try:
        with anyio.fail_after(_DEADLINE_S):
            return await to_thread.run_sync(work, abandon_on_cancel=True)
    except TimeoutError:
        _log.warning("library_unavailable", reason="it could not be read in time", hint=None)
    except Exception as error:  # noqa: BLE001 - a run does not fail because of the library
        _log.warning("library_unavailable", **reason_of(context, error))
    return None
