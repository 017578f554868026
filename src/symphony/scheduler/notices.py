"""How a log line of the scheduler reads where people look back: one way for memory, journal and documents."""

from typing import Final

from symphony.domain.plain import one_line
from symphony.scheduler.commands import Notify

__all__ = ["SILENT", "words"]

SILENT: Final = frozenset({"dispatch_skipped", "block_settled"})
"""Events that say nothing about what happened to an issue."""


def words(notice: Notify) -> str:
    """The reason, or else the other facts of a log line, on one line; attempts as people count them."""
    told = notice.fields
    attempt = f"attempt {told.get('attempt_number')} of {told.get('attempt_limit')}"
    match notice.event:
        case "run_started":
            return one_line(f"{attempt}, by {told.get('agent')}: {told.get('agent_reason')}")
        case "run_retrying":
            return one_line(f"{attempt} after: {told.get('reason')}")
        case _:
            pass
    if reason := notice.fields.get("reason"):
        return one_line(str(reason))
    facts = ((name, value) for name, value in notice.fields.items() if value is not None)
    return one_line(" ".join(f"{name}={value}" for name, value in facts))
