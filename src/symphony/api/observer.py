"""The events of a daemon for its observers. Each observer overrides the methods that it needs.

The daemon calls each observer for all events in their order. An observer must not block. Its errors are
logged and stop nothing.
"""

from symphony.api.models import Instructions, Skills
from symphony.domain import Issue
from symphony.journal.model import PullRequestRecord, ToldComment
from symphony.processes.base import Identity
from symphony.scheduler import Command, Event, State


class Observer:
    """Ignores every event; subclasses override the methods that they need."""

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        """One step was taken. A failed step has the same state before and after."""

    def agent_spawned(self, run_id: str, agent: Identity) -> None:
        """The process of a run's agent exists, and nothing was sent to it yet."""

    async def conversation_opened(self, run_id: str, thread_id: str) -> None:
        """The agent of a run has opened a conversation; return once a restart would know it."""

    def comments_told(self, issue_id: str, told: tuple[ToldComment, ...]) -> None:
        """These comments of people were in a prompt that the agent got."""

    def comment_written(self, issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
        """The daemon wrote a comment; `fingerprint` is a hash of its input."""

    def instructions_composed(self, issue_id: str, run_id: str, instructions: Instructions) -> None:
        """A run got these instructions for the phase that it enters."""

    def skills_loaded(self, issue_id: str, run_id: str, skills: Skills) -> None:
        """A run lists these skills; called again when it uses one of them."""

    def tool_called(self, agent: str, *, success: bool) -> None:
        """A call of a tool by an agent ended."""

    def transcript_incomplete(self, issue: Issue, run_id: str, reason: str) -> None:
        """Entries of the transcript of a run could not be written."""

    def pull_request_judged(self, record: PullRequestRecord, message: str) -> None:
        """The pull request of an issue waits for something else than before; `message` is masked."""
