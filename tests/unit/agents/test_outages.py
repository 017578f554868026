"""What means "not now", in the words of HTTP clients; each beside a failure of the work itself."""

import pytest

from symphony.agents.outages import OUTAGE, is_outage


@pytest.mark.parametrize(
    "text",
    [
        "HTTP 503",
        "unexpected status 502 Bad Gateway",
        "API Error: 529 {'type': 'overloaded_error'}",
        "error sending request for url (http://127.0.0.1:9/v1/responses)",
        "connect ECONNREFUSED 127.0.0.1:9",
        "read ECONNRESET",
        "getaddrinfo ENOTFOUND api.example.test",
        "dns error: failed to lookup address information",
        "[Errno -2] Name or service not known",
        "Request timed out.",
        "stream disconnected before completion",
        "Service Unavailable",
        "TypeError: fetch failed",
        "Connection closed by the server",
    ],
)
def test_an_outage_is_known_by_its_words(text: str) -> None:
    assert OUTAGE.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "400 Bad Request: max_tokens is above 500",
        "the prompt has 5000 words",
        "invalid api key",
        "model does not exist",
        "content was refused",
        "prompt is too long: 200500 tokens",
        "the turn timed out after 503 tests",
    ],
)
def test_a_failure_of_the_work_is_no_outage(text: str) -> None:
    assert not OUTAGE.search(text)


@pytest.mark.parametrize(
    ("status", "expected"), [(500, True), (529, True), (408, True), (400, False), (429, False), (None, False)]
)
def test_an_outage_is_known_by_its_status(status: int | None, *, expected: bool) -> None:
    assert is_outage(status) is expected
