"""The texts of a session at its start, for the run itself and for its preview.

A preview creates, fetches, posts and starts nothing. It cannot show later changes by hooks in the workspace.
"""

from functools import partial
from typing import Final

from msgspec import structs

from symphony import config, to_thread
from symphony.agents.base import Envelope
from symphony.api.models import Prompt, PromptComment
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs.instructions import instructions_document, preview_run_instructions
from symphony.daemon.runs.skills import preview_run_skills
from symphony.domain import NO_COMMENTS, AgentChoice, Issue, PeopleComments, Phase, Redaction, fence
from symphony.observability.redaction import masked
from symphony.scheduler import (
    ContinueRun,
    Resume,
    ResumeReason,
    SchedulerSettings,
    TrackerStatus,
    not_active_text,
    phase_of,
    tracker_status,
)

_RESUMES = (
    "the session continues its thread; if the agent has lost it, or the workspace is gone, it gets the whole "
    "prompt instead"
)
_ENVELOPE_IN_PROMPT = "{agent} has no system-level text: the envelope is in front of its first prompt"
_MAX_OVERLAPS: Final = 40
_MASKED = "what looks like a secret is masked here; a session gets the texts as they are"


def next_prompt(command: ContinueRun, max_turns: int) -> str:
    """The prompt of a turn after the first one; it ends with a note on files that other issues change too."""
    prompt = config.continuation_prompt(command.turn, max_turns)
    if not command.overlaps:
        return prompt
    told = [f"{one.identifier}: {path}" for one in command.overlaps for path in one.paths]
    more = [f"and {len(told) - _MAX_OVERLAPS:,} more"] if len(told) > _MAX_OVERLAPS else []
    return (
        f"{prompt}\n\nOther issues in progress change files that your work changes too. The branches will "
        "be merged, yours last. The list is information, not an instruction:\n\n"
        f"{fence(chr(10).join([*told[:_MAX_OVERLAPS], *more]))}"
    )


async def first_prompt(
    context: RuntimeContext,
    issue: Issue,
    attempt: int | None,
    resume: Resume | None = None,
    comments: PeopleComments = NO_COMMENTS,
    *,
    phase: Phase | None = None,
) -> str:
    """The prompt of the first turn of a new session; ends with a person's answer or with feedback, if any.

    New comments of people follow the task if the template does not name them.

    Raises:
        WorkflowError: `template_render_error`.
    """
    name = None if phase is None else phase.name
    template = context.workflow.template
    prompt = await to_thread.run_sync(partial(template.render, issue, attempt, phase=name, comments=comments))
    if comments.new and not template.shows_comments:
        prompt = f"{prompt.rstrip()}\n\n{config.comments_section(comments)}\n"
    if resume is None or resume.answer is None:
        return prompt
    if resume.reason is ResumeReason.VERIFY_FAILED:
        return f"{prompt.rstrip()}\n\n{config.verify_failed_prompt(resume.answer)}\n"
    if resume.reason is ResumeReason.FEEDBACK:
        return f"{prompt.rstrip()}\n\n{resume.answer}\n"
    section = config.answer_section(resume.question, resume.answer, approves=resume.approves)
    return f"{prompt.rstrip()}\n\n{section}\n"


def resumed_prompt(resume: Resume, prompt: str, comments: PeopleComments = NO_COMMENTS) -> str:
    """The prompt of the first turn of a session that resumes its thread; it ends with new comments of people.

    The thread already contains the task, unless the run was interrupted before its first turn was known to
    have begun. In that case `prompt`, the prompt of a new session, is sent again.
    """
    if resume.thread is not None and not resume.thread.begun:
        return f"{config.restarted_prompt()}\n\n{prompt}"
    if resume.answer is not None and resume.reason is ResumeReason.FEEDBACK:
        told = resume.answer
    elif resume.answer is not None and resume.reason is ResumeReason.VERIFY_FAILED:
        told = config.verify_failed_prompt(resume.answer)
    elif resume.answer is not None:
        told = config.answered_prompt(resume.question, resume.answer, approves=resume.approves)
    else:
        told = config.interrupted_prompt()
    return f"{told}\n\n{config.comments_section(comments)}" if comments.new else told


def phase_or_requested(issue: Issue, settings: SchedulerSettings, requested: str | None) -> Phase | None:
    """The requested phase, else the present phase of the issue."""
    return phase_of(issue, settings) if requested is None else Phase(name=requested, reason="as requested")


async def preview_prompt(
    context: RuntimeContext,
    issue: Issue,
    attempt: int | None,
    resume: Resume | None = None,
    *,
    agent: AgentChoice,
    comments: PeopleComments = NO_COMMENTS,
    phase: Phase | None = None,
    source: str = "daemon",
) -> Prompt:
    """The unmasked texts that a run of the agent would get now; see `public_prompt`.

    Args:
        context: settings and adapters.
        issue: the issue.
        attempt: the number of the attempt in the template.
        resume: what the run would resume.
        agent: the agent of the session.
        comments: people's comments on the issue.
        phase: the phase of the work.
        source: `daemon`, or `files` if no daemon runs.

    Raises:
        SymphonyError: the run would fail with the same error.
    """
    capabilities = context.agent(agent.name).capabilities
    name = None if phase is None else phase.name
    catalog, skills_note = await preview_run_skills(context, issue, agent.name, name)
    selector = await preview_run_instructions(context, issue)
    composed = None if selector is None else selector.compose(name)
    prompt = await first_prompt(context, issue, attempt, resume, comments, phase=phase)
    instructions = None if composed is None else composed.text
    envelope = Envelope(phase=name, instructions=instructions, skills=catalog.block).text
    notes = [skills_note]
    if resume is not None and resume.thread is not None and capabilities.resume:
        prompt = resumed_prompt(resume, prompt, comments)
        notes.append(_RESUMES)
    if envelope is not None and not capabilities.system_block_at_start:
        notes.append(_ENVELOPE_IN_PROMPT.format(agent=agent.name))
    return Prompt(
        issue_identifier=issue.identifier,
        source=source,
        attempt=attempt,
        agent=agent,
        envelope=envelope,
        prompt=prompt,
        skills=catalog.document,
        new_comments=tuple(
            PromptComment(author=one.author, created_at=one.created_at, body=one.body) for one in comments.new
        ),
        note="; ".join(filter(None, notes)) or None,
        phase=phase,
        instructions=None
        if selector is None or composed is None
        else instructions_document(selector, composed),
    )


def public_prompt(preview: Prompt, issue: Issue, settings: SchedulerSettings, redaction: Redaction) -> Prompt:
    """The preview without secrets; otherwise its texts are verbatim.

    Notes say why the issue would not start in its present state, and whether a secret was masked.
    """
    is_active = tracker_status(issue, settings) is TrackerStatus.ACTIVE
    idle = () if is_active else map(redaction.text, not_active_text(issue, settings))
    envelope = None if preview.envelope is None else redaction.verbatim(preview.envelope)
    prompt = redaction.verbatim(preview.prompt)
    verbatim = (envelope, prompt) == (preview.envelope, preview.prompt)
    public: Prompt = masked(structs.replace(preview, envelope=None, prompt=""), redaction.text)
    note = "; ".join(filter(None, (*idle, public.note, None if verbatim else _MASKED))) or None
    return structs.replace(public, envelope=envelope, prompt=prompt, note=note)
