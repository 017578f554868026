"""How Jira says no: in `errorMessages` and `errors`; that a credential is not taken, in a header."""

from symphony.trackers.http import Answer, Dialect, plain_status

__all__ = ["JIRA"]

_UNAUTHORISED = 401
_NOT_TAKEN = ("AUTHENTICATED_FAILED", "AUTHENTICATION_DENIED")


def _status(answer: Answer) -> int:
    """401 also where Jira goes on without the account, and shows what everybody may see, or nothing."""
    reason = answer.headers.get("x-seraph-loginreason", "").upper()
    return _UNAUTHORISED if any(word in reason for word in _NOT_TAKEN) else plain_status(answer)


JIRA = Dialect(
    service="Jira",
    secret="tracker.provider.api_token",  # noqa: S106 - the name of a setting
    scope="tracker.provider.project_key",
    status=_status,
)
