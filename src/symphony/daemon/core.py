"""The object that the parts of one daemon share."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import structlog

from symphony.agents.run_stats import Pricing
from symphony.api.observer import Observer
from symphony.daemon.clock import Timers
from symphony.daemon.context import RuntimeContext
from symphony.daemon.state_dir import StateDirectory
from symphony.scheduler import (
    Command,
    Event,
    OperatorAsked,
    Recovered,
    Refusal,
    State,
    already_done,
    refusal,
)

_log = structlog.get_logger(__name__)


class StepObserver(Protocol):
    """Observes only the steps of the scheduler; must not block."""

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        """See `Observer.__call__`."""
        ...


async def _nothing_to_record() -> None:
    await anyio.lowlevel.checkpoint()


@dataclass(slots=True, eq=False)
class ActionRequest:
    """An operator's action in the mailbox.

    The verdict depends on the state in which the scheduler takes the event, so of two people who answer the
    same question, one learns that it is too late.

    Attributes:
        event: the event for the scheduler.
        taken: set when the verdict is known.
        refused: why the action is refused.
        no_change: whether the action was already in effect.
    """

    event: OperatorAsked
    taken: anyio.Event = field(default_factory=anyio.Event)
    refused: Refusal | None = None
    no_change: bool = False

    def resolve(self, before: State) -> None:
        """Judge the action by the state in which the scheduler took its event."""
        self.refused = refusal(before, self.event.action, self.event.issue_id, self.event.text)
        self.no_change = already_done(before, self.event.action)
        self.taken.set()


class Part(Protocol):
    """A part of the daemon that stores something made from settings, or acts on new settings."""

    def reconfigure(self, context: RuntimeContext, /) -> None:
        """Apply the settings that are in force from now on. Must neither block nor fail."""
        ...


class Core:
    """State, context, mailbox, clocks and observers of one daemon.

    Code reads a setting from `in_force` when it needs it. A part that must act on new settings is one of
    `parts`.

    Args:
        state_dir: journal, lock, logs and control socket.
        environment: variables of the daemon.
        post: puts an event into the mailbox.
        now_ms: the monotonic clock.
        wall_ms: the wall clock.

    Attributes:
        state: the state of the scheduler; `None` until it includes what the previous daemon left. Before that
            a paused daemon would look like one at work.
        recovered: set once there is a state.
        context: the context in force; `None` until the daemon serves.
        parts: get each context that `reconfigure` puts in force.
        observers: get all events, in this order.
        recorded: waits until all decisions so far are in the journal, or cannot be.
    """

    def __init__(
        self,
        *,
        state_dir: StateDirectory,
        environment: Mapping[str, str],
        post: Callable[[Event | ActionRequest], None],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self.state_dir = state_dir
        self.environment = environment
        self.post = post
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.timers = Timers(post, now_ms)
        self.state: State | None = None
        self.recovered = anyio.Event()
        self.context: RuntimeContext | None = None
        self.parts: tuple[Part, ...] = ()
        self.observers: tuple[StepObserver, ...] = ()
        self.recorded: Callable[[], Awaitable[None]] = _nothing_to_record

    @property
    def in_force(self) -> RuntimeContext:
        """The context, for parts that live only while the daemon serves."""
        assert self.context is not None  # noqa: S101 - set before these parts are made
        return self.context

    def reconfigure(self, context: RuntimeContext) -> None:
        """Put a context in force."""
        self.context = context
        for part in self.parts:
            part.reconfigure(context)

    def pricing(self, agent: str) -> Pricing:
        """Prices the tokens of an agent by the context in force."""
        return lambda model, tokens: self.in_force.cost(agent, model, tokens)

    def mask(self, text: str) -> str:
        """The text with the secrets of the context masked."""
        return text if self.context is None else self.context.redaction.text(text)

    # --- what happens ------------------------------------------------------------------------------------

    def stepped(self, before: State, event: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Notify observers of a step. A broken observer must not stop the work."""
        if isinstance(event, Recovered):
            self.recovered.set()
        for observer in self.observers:
            try:
                observer(before, event, after, commands)
            except Exception:  # noqa: BLE001 - see above
                _log.exception("observer_failed")

    def publish(self, tell: Callable[[Observer], None]) -> None:
        """Notify observers of another event: `tell` calls one method of an observer."""
        for observer in self._full_observers:
            try:
                tell(observer)
            except Exception:  # noqa: BLE001 - as in `stepped`
                _log.exception("observer_failed")

    async def conversation_opened(self, run_id: str, thread_id: str) -> None:
        """Notify observers of a conversation, and return once a restart would know it."""
        for observer in self._full_observers:
            await observer.conversation_opened(run_id, thread_id)

    @property
    def _full_observers(self) -> list[Observer]:
        return [observer for observer in self.observers if isinstance(observer, Observer)]
