"""What the parts of one daemon share, so that none of them is given it piece by piece."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import anyio
import structlog

from symphony.api.observer import Observer
from symphony.daemon.clock import Timers
from symphony.daemon.context import RuntimeContext
from symphony.daemon.state_dir import StateDirectory
from symphony.scheduler import Command, Event, State

_log = structlog.get_logger(__name__)


class StepObserver(Protocol):
    """Sees every step of the scheduler, and nothing else; must not block."""

    def __call__(self, before: State, event: Event, after: State, commands: tuple[Command, ...], /) -> None:
        """See `Observer.__call__`."""
        ...


async def _nothing_to_record() -> None:
    await anyio.lowlevel.checkpoint()


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
        post: Callable[[Event], None],
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
        for observer in self._told:
            try:
                tell(observer)
            except Exception:  # noqa: BLE001 - as in `stepped`
                _log.exception("observer_failed")

    async def conversation_opened(self, run_id: str, thread_id: str) -> None:
        """Tell of a conversation, and return when a restart would know it."""
        for observer in self._told:
            await observer.conversation_opened(run_id, thread_id)

    @property
    def _told(self) -> list[Observer]:
        return [observer for observer in self.observers if isinstance(observer, Observer)]
