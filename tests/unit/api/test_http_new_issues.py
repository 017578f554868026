"""New issues and schedules over HTTP: what they may hold, and how they are refused."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from harness.asking import FakeOperator, asking
from symphony.api.models import NewIssue, Schedule
from symphony.domain import MAX_ISSUE_BODY_CHARS, MAX_ISSUE_TITLE_CHARS

pytestmark = pytest.mark.asyncio

NIGHTLY = Schedule(
    name="nightly",
    cron="0 3 * * *",
    timezone="UTC",
    next_at="2026-12-01T03:00:00Z",
    due=False,
    last_due_at=None,
    skipped=False,
    issue_id=None,
    issue_identifier=None,
    issue_url=None,
    issue_state=None,
    failure=None,
)


@pytest.fixture
def operator() -> FakeOperator:
    return FakeOperator(known_schedules=(NIGHTLY,))


@pytest_asyncio.fixture
async def client(operator: FakeOperator) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(operator) as client:
        yield client


async def test_an_issue_is_created_with_what_is_given(
    client: httpx.AsyncClient, operator: FakeOperator
) -> None:
    body = {
        "title": " Fix\x1b[1m it ",
        "body": "a\nb",
        "state": "Backlog",
        "labels": ["bug", " "],
        "skill": "x",
    }
    answer = await client.post("/api/v1/issues", json=body)
    assert (answer.status_code, answer.json()["issue_identifier"]) == (201, "SYM-1")
    assert operator.created == [
        NewIssue(title="Fix it", body="a\nb", state="Backlog", labels=("bug",), skill="x")
    ]


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"title": ""}, {"title": " \n "}, {"title": 7}, {"title": "a", "unknown": 1}),
        {"title": "a" * (MAX_ISSUE_TITLE_CHARS + 1)},
        {"title": "a", "body": "a" * (MAX_ISSUE_BODY_CHARS + 1)},
        {"title": "a", "labels": ["a" * 256]},
        {"title": "a", "state": "a" * 256},
    ],
)
async def test_what_is_no_issue_creates_none(
    client: httpx.AsyncClient, operator: FakeOperator, body: dict[str, Any]
) -> None:
    answer = await client.post("/api/v1/issues", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert operator.created == []


async def test_schedules_are_shown_and_one_is_run(client: httpx.AsyncClient) -> None:
    (shown,) = (await client.get("/api/v1/schedules")).json()["schedules"]
    assert (shown["name"], shown["next_at"]) == ("nightly", "2026-12-01T03:00:00Z")
    assert (await client.post("/api/v1/schedules/run", json={"name": "nightly"})).status_code == 201
    unknown = await client.post("/api/v1/schedules/run", json={"name": "daily"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "schedule_not_found")
