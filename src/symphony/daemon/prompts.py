"""The prompt and the system-level text of a session, for the run itself and for the preview."""

from dataclasses import dataclass

from anyio import to_thread

from symphony.api.documents import agent_document
from symphony.api.models import Prompt
from symphony.config import answer_section, answered_prompt, interrupted_prompt, restarted_prompt
from symphony.daemon.context import RuntimeContext
from symphony.daemon.skills import (
    RunCatalog,
    skills_foreseen,
)
from symphony.domain import Issue, Redaction
from symphony.observability.redaction import masked
from symphony.scheduler import (
    AgentChoice,
    Resume,
)


async def first_prompt(
    context: RuntimeContext, issue: Issue, attempt: int | None, resume: Resume | None = None
) -> str:
    """The prompt of the first turn of a session that starts cold; an answer of a person stands at its end.

    Raises:
        WorkflowError: `template_render_error` (PR7).
    """
    rendered = await to_thread.run_sync(context.workflow.template.render, issue, attempt)
    if resume is None or resume.answer is None:
        return rendered
    return f"{rendered.rstrip()}\n\n{answer_section(resume.question, resume.answer)}\n"


def resumed_prompt(resume: Resume, prompt: str) -> str:
    """The prompt of the first turn of a session that goes on with its thread.

    The task is already in the thread, unless the session was cut off before that was known: then `prompt`,
    which a cold start would be told, is told again.
    """
    if resume.thread is not None and not resume.thread.begun:
        return f"{restarted_prompt()}\n\n{prompt}"
    if resume.answer is not None:
        return answered_prompt(resume.question, resume.answer)
    return interrupted_prompt()


_GOES_ON = (
    "the session goes on with its thread; should the agent have forgotten it, or the workspace be gone, the "
    "whole prompt is sent instead"
)
_IN_FRONT = "{agent} takes no system-level text: the envelope stands in front of its first prompt"
_MASKED = "what looks like a secret is masked here; a session gets the texts as they are"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPreview:
    """The two texts of a session's start, and where its skills came from.

    Attributes:
        issue_identifier: whose session it would be.
        attempt: as the template would see it (PR3).
        envelope: the system-level text; null where nothing at all is sent.
        prompt: of the first turn.
        catalog: the skills that are listed and dropped, and what is wrong with files.
        note: why skills are missing that a dispatch might find, and how the texts travel; one line, or null.
        agent: who would get them.
    """

    issue_identifier: str
    attempt: int | None
    envelope: str | None
    prompt: str
    catalog: RunCatalog
    note: str | None = None
    agent: AgentChoice


async def preview_prompt(
    context: RuntimeContext,
    issue: Issue,
    attempt: int | None,
    resume: Resume | None = None,
    *,
    agent: AgentChoice,
) -> PromptPreview:
    """The texts that a run of an agent started now would get, made by the functions that a run uses.

    With `resume`, those of a run that goes on with what an earlier one began.

    Raises:
        SymphonyError: what would fail the run as well: the workspace's place, the repository, the template.
    """
    capabilities = context.agent(agent.name).capabilities
    catalog, note = await skills_foreseen(context, issue, agent.name)
    prompt = await first_prompt(context, issue, attempt, resume)
    envelope = catalog.block
    notes = [note]
    if resume is not None and resume.thread is not None and capabilities.resume:
        prompt = resumed_prompt(resume, prompt)
        notes.append(_GOES_ON)
    if envelope is not None and not capabilities.system_block_at_start:
        notes.append(_IN_FRONT.format(agent=agent.name))
    return PromptPreview(
        issue_identifier=issue.identifier,
        attempt=attempt,
        envelope=envelope,
        prompt=prompt,
        catalog=catalog,
        note="; ".join(filter(None, notes)) or None,
        agent=agent,
    )


def prompt_document(seen: PromptPreview, *, source: str, redaction: Redaction) -> Prompt:
    """The preview as a document (DESIGN 11a); `source` is `daemon`, or `files` where none runs.

    The two texts are as they would be sent, but for secrets; where one is masked the note says so.
    """
    envelope = None if seen.envelope is None else redaction.verbatim(seen.envelope)
    prompt = redaction.verbatim(seen.prompt)
    exact = (envelope, prompt) == (seen.envelope, seen.prompt)
    notes = [seen.note, None if exact else _MASKED]
    return Prompt(
        issue_identifier=redaction.text(seen.issue_identifier),
        source=source,
        attempt=seen.attempt,
        agent=agent_document(seen.agent),
        envelope=envelope,
        prompt=prompt,
        skills=masked(seen.catalog.skills, redaction.text),
        note=redaction.text("; ".join(filter(None, notes))) or None,
    )
