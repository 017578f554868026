"""What a session is told at its start: one making of both texts, for the worker and for the preview."""

from anyio import to_thread

from symphony.agents.envelope import assemble
from symphony.domain.issue import Issue
from symphony.runtime.bound import Bound
from symphony.runtime.catalog import RunCatalog

__all__ = ["envelope", "prompt"]


def envelope(catalog: RunCatalog) -> str | None:
    """The system-level text (DESIGN 9); null where there is nothing to say."""
    return assemble(skills_block=catalog.block)


async def prompt(bound: Bound, issue: Issue, attempt: int | None) -> str:
    """The prompt of the first turn.

    Raises:
        WorkflowError: `template_render_error` (PR7).
    """
    return await to_thread.run_sync(bound.workflow.template.render, issue, attempt)
