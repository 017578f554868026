"""The facts of a run: each is defined here, and nowhere else.

Reports of workers, the journal, the API, the page and the command line have them as a whole.
"""

from typing import Annotated

from msgspec import Meta

from symphony.domain.delivered import NO_WORK, WorkSize
from symphony.domain.usage import NO_TOKENS, Count, Tokens, Usage


class RunFacts(Usage, frozen=True, kw_only=True):
    """What a run did so far."""

    turn_count: Annotated[Count, Meta(description="Turns that started in the run.")] = 0
    session_id: str | None = None
    thread_id: Annotated[
        str | None, Meta(description="The agent's conversation, which a later run may resume.")
    ] = None
    model: Annotated[
        str | None,
        Meta(description="As the agent named it, else as configured; null if neither is known."),
    ] = None
    workspace_path: Annotated[str | None, Meta(description="Absolute; null until the workspace exists.")] = (
        None
    )
    branch: str | None = None
    work: Annotated[WorkSize, Meta(description="Of the branch, measured at the end of the run.")] = NO_WORK
    reviewer_tokens: Annotated[
        Tokens, Meta(description="The part of the tokens that the agent of verify.reviewer used.")
    ] = NO_TOKENS

    @property
    def thread_tokens(self) -> Tokens:
        """The part of the tokens that the run's own conversation used."""
        return self.tokens.above(self.reviewer_tokens)


NO_FACTS = RunFacts()
