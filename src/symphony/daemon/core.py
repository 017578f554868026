"""What the parts of one daemon share, as one object."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import structlog

from symphony.api.observer import Observer
from symphony.daemon.clock import Timers
from symphony.daemon.context import RuntimeContext
from symphony.daemon.state_dir import StateDirectory
from symphony.scheduler import Command, Event, OperatorAsked, Refusal, State, already_done, refusal

_log = structlog.get_logger(__name__)


class StepObserver(Protocol):
    """Sees every step of the scheduler, and nothing else; must not block."""

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        """See `Observer.__call__`."""
        ...


async def _nothing_to_record() -> None:
    await anyio.lowlevel.checkpoint()


@dataclass(slots=True, eq=False)
class ActionRequest:
    """An operator's action in the mailbox.

    The verdict is that of the state in which the scheduler takes the event: of two people who answer the same
    question, one learns that it is too late.

    Attributes:
        event: for the scheduler.
        taken: set when the verdict is known.
        refused: why the action does not fit.
        no_change: the daemon already was as the action asks for.
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


class Core:
    """State, context, mailbox, clocks and observers of one daemon.

    Args:
        state_dir: journal, lock, logs and control socket.
        environment: variables of the daemon.
        post: puts an event into the mailbox.
        now_ms: the monotonic clock.
        wall_ms: the wall clock.

    Attributes:
        state: of the scheduler; `None` before the first step.
        context: in force; `None` until the daemon serves.
        observers: told of everything in this order.
        recorded: returns when what was decided so far is in the journal, or cannot be.
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
        self.context: RuntimeContext | None = None
        self.observers: tuple[StepObserver, ...] = ()
        self.recorded: Callable[[], Awaitable[None]] = _nothing_to_record

    @property
    def in_force(self) -> RuntimeContext:
        """The context, for parts that live only while the daemon serves."""
        assert self.context is not None  # noqa: S101 - set before these parts are made
        return self.context

    def mask(self, text: str) -> str:
        """The text with the secrets of the context masked."""
        return text if self.context is None else self.context.redaction.text(text)

    # --- what happens ------------------------------------------------------------------------------------

    def stepped(self, before: State, event: Event, after: State, commands: tuple[Command, ...]) -> None:
        """Tell of a step. A broken display must not stop the work."""
        for observer in self.observers:
            try:
                observer(before, event, after, commands)
            except Exception:  # noqa: BLE001 - see above
                _log.exception("observer_failed")

    def publish(self, tell: Callable[[Observer], None]) -> None:
        """Tell of anything else: `tell` calls one method of an observer."""
        for observer in self._full_observers:
            try:
                tell(observer)
            except Exception:  # noqa: BLE001 - as in `stepped`
                _log.exception("observer_failed")

    async def conversation_opened(self, run_id: str, thread_id: str) -> None:
        """Tell of a conversation, and return when a restart would know it."""
        for observer in self._full_observers:
            await observer.conversation_opened(run_id, thread_id)

    @property
    def _full_observers(self) -> list[Observer]:
        return [observer for observer in self.observers if isinstance(observer, Observer)]
