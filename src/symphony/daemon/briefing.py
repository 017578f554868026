"""What a session is told at its start: one making of both texts, for the worker and for the preview."""

from anyio import to_thread

from symphony.agents.envelope import assemble
from symphony.config.prompts import (
    answer_section,
    answered_prompt,
    begun_anew_prompt,
    interrupted_prompt,
)
from symphony.daemon.bound import Bound
from symphony.daemon.catalog import RunCatalog
from symphony.domain.issue import Issue
from symphony.scheduler.inputs import Resume

__all__ = ["envelope", "prompt", "resumed_prompt"]


def envelope(catalog: RunCatalog) -> str | None:
    """The system-level text (DESIGN 9); null where there is nothing to say."""
    return assemble(skills_block=catalog.block)


async def prompt(bound: Bound, issue: Issue, attempt: int | None, resume: Resume | None = None) -> str:
    """The prompt of the first turn of a session that starts cold; an answer of a person stands at its end.

    Raises:
        WorkflowError: `template_render_error` (PR7).
    """
    rendered = await to_thread.run_sync(bound.workflow.template.render, issue, attempt)
    if resume is None or resume.answer is None:
        return rendered
    return f"{rendered.rstrip()}\n\n{answer_section(resume.question, resume.answer)}\n"


def resumed_prompt(resume: Resume, prompt: str) -> str:
    """The prompt of the first turn of a session that goes on with its thread.

    The task is already in the thread, unless the session was cut off before that was known: then `prompt`,
    which a cold start would be told, is told again.
    """
    if resume.thread is not None and not resume.thread.begun:
        return f"{begun_anew_prompt()}\n\n{prompt}"
    if resume.answer is not None:
        return answered_prompt(resume.question, resume.answer)
    return interrupted_prompt()
