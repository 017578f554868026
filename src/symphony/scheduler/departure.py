"""The way out: what runs comes to an end, what is claimed is left to a successor (SC16, CL6)."""

from symphony.scheduler import runs
from symphony.scheduler.commands import Exit, FinishReason, StopReason
from symphony.scheduler.inputs import RunStage, Timer, TimerKind
from symphony.scheduler.state import Drain
from symphony.scheduler.work import Work

__all__ = ["drain", "leave", "stop_all"]

_DRAIN = Timer(TimerKind.DRAIN)


def drain(work: Work, *, patient: bool = False) -> None:
    """Let turns come to their end and start nothing; after `drain_timeout_ms` what still runs is stopped.

    A patient drain, which an operator asks for, has no such end: a turn is bounded by its own limits. A
    signal that comes after it sets one.
    """
    first = work.state.drain is Drain.NO
    if first:
        work.update(drain=Drain.DRAINING, picks=frozenset())
        work.notify("info", "draining", running=len(work.state.running))
    if not patient and work.state.drain is Drain.DRAINING and _DRAIN not in work.state.timers:
        work.set_timer(_DRAIN, work.now_ms + work.state.settings.drain_timeout_ms)
    if first:
        for run in tuple(work.state.running.values()):
            if run.awaiting:
                runs.finish(work, run, FinishReason.DRAINING)
            elif run.report.stage not in {RunStage.STREAMING_TURN, RunStage.FINISHING}:
                runs.stop(work, run, StopReason.DRAINING)


def stop_all(work: Work) -> None:
    """End everything now."""
    if work.state.drain is Drain.NO:
        work.update(drain=Drain.DRAINING)
    for run in tuple(work.state.running.values()):
        runs.stop(work, run, StopReason.DRAINING)


def leave(work: Work) -> None:
    """Say goodbye once, when nothing runs any more."""
    if work.state.drain is Drain.DRAINING and not work.state.running:
        work.update(drain=Drain.EXITED)
        work.emit(Exit())
