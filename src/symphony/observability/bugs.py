"""Contains unexpected errors: each costs one step, and never the daemon."""

import structlog

from symphony.domain import Blame, Category, Failure

_log = structlog.get_logger(__name__)


def contained(
    event: str, error: BaseException, category: Category = Category.INTERNAL, blame: Blame = Blame.HOST
) -> Failure:
    """Log an unexpected error with its stack; return the failure of the step that it ended.

    Args:
        event: the name of the log event, see docs/log-events.md.
        error: the exception.
        category: the category of the failure.
        blame: the blame of the failure.
    """
    _log.error(event, exc_info=error)
    return Failure(category=category, blame=blame, message=f"internal error: {error!r}")
