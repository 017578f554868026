"""The rows of the routes against routing, access and the page about the API."""

import re
from pathlib import Path

import pytest

from harness.asking import CONTROL, LOOPBACK, FakeOperator, asking
from symphony.api.models import Document
from symphony.api.parameters import PARAMETERS
from symphony.api.routes import API, PAGES, Needs, Resource, Route, needs_of

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
ROWS = (*API, *PAGES)


def url(row: Route) -> str:
    return re.sub(r"\{\w+\}", "x", row.path)


def test_no_row_hides_another_one() -> None:
    for row in ROWS:
        found = next(one for one in ROWS if one.matches(url(row)) and one.verb == row.verb)
        assert found == row
    assert len({row.name for row in ROWS}) == len({(row.path, row.verb) for row in ROWS}) == len(ROWS)


def test_a_placeholder_is_one_segment_whatever_its_text() -> None:
    row = next(row for row in API if row.name == "prompt")
    assert row.url("a/b ü") == "/api/v1/a%2Fb%20%C3%BC/prompt"
    assert row.url("..") == "/api/v1/%2E%2E/prompt"
    assert row.matches(row.url("a/b"))
    for path in ("/api/v1/a/b/prompt", "/api/v1//prompt", "/api/v1/a/prompt/", "/api/v1/a/prompt\n"):
        assert not row.matches(path)


@pytest.mark.asyncio
async def test_every_row_has_an_answer() -> None:
    async with asking(FakeOperator(), CONTROL) as client:
        for row in ROWS:
            answered = await client.options(url(row))
            assert answered.status_code == 204
            assert row.verb in answered.headers["allow"].split(", ")


@pytest.mark.asyncio
async def test_without_proof_exactly_those_rows_answer_that_need_nothing() -> None:
    free = {Needs.NO_CHECK, Needs.NOTHING, Needs.SIGN_IN}
    async with asking(FakeOperator(), LOOPBACK) as client:
        for row in ROWS:
            answered = await client.request(row.verb, url(row))
            assert (answered.status_code != 401) is (row.needs in free), row


@pytest.mark.parametrize(
    ("method", "path", "needs"),
    [
        ("GET", "/no/such/route", Needs.READ),
        ("DELETE", "/api/v1/state", Needs.ORDER),
        ("POST", "/api/v1/state", Needs.ORDER),
        ("POST", "/api/v1/a/b/feedback", Needs.ORDER),
        ("POST", "/api/v1/x/feedback", Needs.VISIT),
        ("PUT", "/api/v1/refresh", Needs.VISIT),
        ("POST", "/actions/no-such-verb", Needs.FORM),
        ("GET", "/actions/stop", Needs.READ),
        ("POST", "/assets/app.css", Needs.ORDER),
        ("GET", "/assets/no/such/file", Needs.NOTHING),
        ("POST", "/healthz", Needs.NO_CHECK),
        ("OPTIONS", "/api/v1/refresh", Needs.READ),
    ],
)
def test_what_a_request_needs_that_no_row_answers(method: str, path: str, needs: Needs) -> None:
    assert needs_of(method, path) is needs


def test_rows_read_what_can_be_described() -> None:
    assert {name for row in API for name in row.reads} == set(PARAMETERS)
    for row in API:
        named = [one["name"] for name in row.reads for one in PARAMETERS[name] if one["in"] == "path"]
        assert named == re.findall(r"\{(\w+)\}", row.path)


@pytest.mark.parametrize("row", API, ids=lambda row: row.name)
def test_the_page_about_the_api_has_the_facts_of_the_row(row: Resource[Document]) -> None:
    place = re.compile(f"{re.escape(row.path)}[`?]")
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and place.search(line)]
    assert any(row.verb in line for line in lines)
    if row.media == "application/json" and row.name != "health":
        assert any(f"`{row.answered.__name__}`" in line for line in lines)
