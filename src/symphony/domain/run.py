"""The facts of a run. Each fact is defined only here."""

from typing import Annotated

from msgspec import Meta, Struct

from symphony.domain.delivered import NO_WORK, WorkSize
from symphony.domain.usage import NO_TOKENS, Count, Tokens, Usage


class AgentChoice(Struct, frozen=True, kw_only=True):
    """The agent of an issue, or the agent that would get it if a run started now."""

    name: Annotated[str, Meta(description="Its name in WORKFLOW.md.")] = "codex"
    kind: Annotated[
        str | None,
        Meta(description="codex, claude, acp or command; null if WORKFLOW.md no longer has the agent."),
    ] = None
    model: Annotated[str | None, Meta(description="As configured; null leaves it to the agent.")] = None
    reason: Annotated[str, Meta(description="Why this agent was chosen, for people.")] = "the default"
    instead_of: Annotated[
        str | None, Meta(description="The agent that the rules name, if another one replaces it.")
    ] = None


class Phase(Struct, frozen=True, kw_only=True):
    """The phase of the work on an issue."""

    name: Annotated[str, Meta(description="As in agent.phases.")]
    reason: Annotated[str, Meta(description="Why the issue is in it, for people: `the label 'tests'`.")]


class SkillChanges(Struct, frozen=True, kw_only=True):
    """How the agent of a run changed the skills of the library, by name."""

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    proposals: Annotated[
        tuple[int, ...],
        Meta(description="Ids of the proposals of these changes. One that was proposed before makes none."),
    ] = ()


class RunFacts(Usage, frozen=True, kw_only=True):
    """What a run has done so far."""

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
