"""The system-level text of one session: the phase of the work, its instructions, and the skills."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import structlog

from symphony.agents.base import Briefing, Envelope, ListAgentSkills
from symphony.api.models import Instructions
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs.instructions import instructions_document, load_run_instructions
from symphony.daemon.runs.session_skills import SessionSkills
from symphony.domain import Phase
from symphony.workspaces import Workspace

if TYPE_CHECKING:
    from symphony.skills import Selector

_log = structlog.get_logger(__name__)


class SessionEnvelope:
    """The envelope of each turn of a session.

    `load` runs beside the start of the agent; `brief` waits for it.

    Args:
        context: the context of the run.
        skills: the skills of the session.
        phase: the phase of the first turn, or `None`.
        on_composed: called with the instructions of each phase that the session enters, if there are any.
    """

    def __init__(
        self,
        context: RuntimeContext,
        skills: SessionSkills,
        phase: Phase | None,
        *,
        on_composed: Callable[[Instructions], None],
    ) -> None:
        self._context = context
        self._skills = skills
        self._phase = phase
        self._on_composed = on_composed
        self._selector: Selector | None = None
        self._instructions: str | None = None
        self._loaded = anyio.Event()

    @property
    def phase(self) -> Phase | None:
        """The phase of the present turn."""
        return self._phase

    @property
    def current(self) -> Envelope:
        """The envelope of the present turn."""
        return Envelope(phase=_name(self._phase), instructions=self._instructions, skills=self._skills.block)

    async def load(self, workspace: Workspace) -> None:
        """Load the instructions and the skills of the run."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._skills.load, workspace)
            self._selector = await load_run_instructions(self._context, workspace)
            self._compose()
            self._loaded.set()

    async def brief(self, workspace: Workspace, list_agent_skills: ListAgentSkills) -> Briefing:
        """The envelope of the first turn, and the tools of the session."""
        await self._loaded.wait()
        briefing = await self._skills.brief(workspace, list_agent_skills)
        return replace(briefing, envelope=self.current.text)

    async def enter_phase(self, phase: Phase | None) -> None:
        """Use the instructions and the skills of a phase from the next turn on."""
        before, self._phase = self._phase, phase
        if _name(before) == _name(phase):
            return
        _log.info("phase_changed", phase=_name(phase), reason=None if phase is None else phase.reason)
        await self._skills.enter_phase(_name(phase))
        self._compose()

    def _compose(self) -> None:
        if self._selector is None:
            return
        composed = self._selector.compose(_name(self._phase))
        self._instructions = composed.text
        document = instructions_document(self._selector, composed)
        names = tuple(module.name for module in document.modules)
        _log.info(
            "instructions_composed",
            phase=document.phase,
            modules=names,
            chars=document.chars,
            dropped=document.dropped,
        )
        self._on_composed(document)


def _name(phase: Phase | None) -> str | None:
    return None if phase is None else phase.name
