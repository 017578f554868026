"""Unexpected errors: each costs one step, and never the daemon."""

import structlog

from symphony.domain import Blame, Category, Failure

_log = structlog.get_logger(__name__)


def contained(
    event: str, error: BaseException, category: Category = Category.INTERNAL, blame: Blame = Blame.HOST
) -> Failure:
    """Log an unexpected error with its stack; the failure of the step that it ended.

    Args:
        event: the name of the line in the log, see docs/log-events.md.
        error: what was raised.
        category: what the step fails with.
        blame: what caused it.
    """
    _log.error(event, exc_info=error)
    return Failure(category=category, blame=blame, message=f"internal error: {error!r}")
