"""Refusals of services: the hint fits what the service said, and else its status."""

import pytest

from symphony.http.exchange import HttpResponse, Request
from symphony.http.service import ServiceProfile

GITHUB = ServiceProfile(name="GitHub", credential_key="tracker.provider.token", scope_key="repo")


def hint(status: int, message: str) -> str:
    answer = HttpResponse(status=status, address="https://h/", body={"message": message})
    found = GITHUB.refused(Request(endpoint="/repos/{}/comments", method="POST"), answer, status).failure.hint
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("status", "message", "word"),
    [
        (403, "Unable to create comment because issue is locked.", "unlock"),
        (403, "Repository was archived so is read-only.", "unarchive"),
        (422, "Validation Failed; body is too long (maximum is 65536 characters)", "shorten"),
        (403, "User is blocked", "unblock"),
        (410, "Issues are disabled for this repo", "switch"),
    ],
)
def test_a_cause_that_the_service_names_has_its_own_hint(status: int, message: str, word: str) -> None:
    assert word in hint(status, message)


@pytest.mark.parametrize(
    ("status", "message", "word"),
    [
        (403, "Resource not accessible by integration", "scopes"),
        (401, "Bad credentials", "renew"),
        (404, "Not Found", "check"),
        (422, "the issue is blocked by another one", "version"),
        (500, "the database is locked", "internal problem"),
    ],
)
def test_other_refusals_are_judged_by_their_status(status: int, message: str, word: str) -> None:
    assert word in hint(status, message)
