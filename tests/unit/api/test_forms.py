"""The forms of pages: operator actions, and what the next page says of them."""

import html
import re

import httpx
import pytest

from harness.asking import CONTROL, LOOPBACK, SIGN_IN, FakeOperator, asking, signed_in
from harness.scheduling import make_failure
from symphony.api.interface import MAX_ANSWER_CHARS, ConflictError, UnavailableError
from symphony.api.models import Stars
from symphony.api.routes import ON_DAEMON, ON_ISSUE
from symphony.domain import SymphonyError

pytestmark = pytest.mark.asyncio
FORM = {"csrf": SIGN_IN.csrf("control"), "next": "/issues/SYM-1?tab=log"}


async def post(operator: FakeOperator, verb: str, **fields: str) -> httpx.Response:
    async with asking(operator, CONTROL) as client:
        return await client.post(f"/actions/{verb}", data={**FORM, **fields})


async def test_every_action_is_carried_out_and_leads_back() -> None:
    for verb in (*ON_ISSUE, *ON_DAEMON, "refresh"):
        operator = FakeOperator()
        done = await post(operator, verb, issue="a/b ü", text="Blue\r\n\x1b[31mred", state="Done")
        assert done.status_code == 303
        assert done.headers["location"].startswith("/issues/SYM-1?tab=log&notice=")
        issue = "a/b ü" if verb in ON_ISSUE else None
        expected = [(verb, issue, {"answer": "Blue\nred", "comment": "Blue\nred", "move": "Done"}.get(verb))]
        assert (operator.orders, operator.refreshes) == (([], 1) if verb == "refresh" else (expected, 0))
    assert (await post(FakeOperator(), "delete")).status_code == 404


async def noticed(operator: FakeOperator, verb: str, **fields: str) -> str:
    """The notice of a refused action, as the page shows it to which the answer leads."""
    async with asking(operator, CONTROL) as client:
        done = await client.post(f"/actions/{verb}", data={**FORM, "next": "/", **fields})
        assert done.status_code == 303
        page = (await client.get(done.headers["location"])).text
    found = re.search(r'<p class="notice is-error">.*?</p>', page, re.DOTALL)
    assert found is not None
    return found[0]


async def test_what_does_not_fit_is_a_notice_on_the_next_page() -> None:
    unfit = FakeOperator(unfit=ConflictError("not_running", "it does not run", hint="look"))
    refusing = FakeOperator(fails=SymphonyError(make_failure("no such state", hint="states: Todo, Done")))
    unavailable = FakeOperator(fails=UnavailableError("orchestrator_unavailable", "it ends"))
    for notice, words in (
        (await noticed(unfit, "stop", issue="SYM-1"), ("it does not run", "look")),
        (await noticed(refusing, "move", issue="SYM-1", state="Dnoe"), ("no such state", "states: Todo")),
        (await noticed(unavailable, "refresh"), ("it ends",)),
        (await noticed(FakeOperator(), "stop", issue="SYM-9"), ()),
        (await noticed(FakeOperator(), "answer", issue="SYM-1", text="x" * (MAX_ANSWER_CHARS + 1)), ()),
        (await noticed(FakeOperator(), "move", issue="SYM-1", state="x" * 256), ()),
    ):
        assert [word for word in words if word not in notice] == []


async def test_what_is_not_taken_is_shown_again() -> None:
    for operator, fields in (
        (FakeOperator(unfit=ConflictError("no_comments", "it takes none")), {"issue": "SYM-1"}),
        (FakeOperator(), {"issue": "SYM-9"}),
    ):
        async with asking(operator, CONTROL) as client:
            text = "A long <text>\nof many lines"
            done = await client.post("/actions/comment", data={**FORM, "next": "/", "text": text, **fields})
            page = (await client.get(done.headers["location"])).text
        assert "A long &lt;text&gt;\nof many lines</textarea>" in page


def shown_again(response: httpx.Response) -> dict[str, str]:
    """The fields of the form on a page that shows what was not sent."""
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', response.text))
    (text,) = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", response.text, re.DOTALL)
    return {name: html.unescape(value) for name, value in {**fields, "text": text}.items()}


async def test_an_expired_sign_in_costs_no_text() -> None:
    operator, text, root = FakeOperator(), "Line <1>\n\x1b[31mline 2", SIGN_IN.root
    fields = {"csrf": "of the old cookie", "issue": "SYM-1", "next": "/issues/SYM-1", "text": text}
    browser, path = {"accept": "text/html"}, f"{root}/actions/comment"
    cookie = signed_in(SIGN_IN)
    async with asking(operator, LOOPBACK) as client:
        lost = await client.post(path, data=fields, headers=browser)
        assert (lost.status_code, operator.orders) == (401, [])
        assert "\x1b" not in lost.text
        again = await client.post(path, data=shown_again(lost), headers=browser | cookie)
        assert (again.status_code, operator.orders) == (403, []), "not of a page of this sign-in"
        done = await client.post(path, data=shown_again(again), headers=browser | cookie)
        assert (done.status_code, done.headers["location"][:40]) == (303, f"{root}/issues/SYM-1"[:40])
        assert operator.orders == [("comment", "SYM-1", "Line <1>\n\\x1b[31mline 2")]
        former = await client.post(f"/~{'0' * 32}/actions/comment", data=fields, headers=browser)
        assert (former.status_code, "Line &lt;1&gt;" in former.text) == (401, True)
        assert "<form" not in former.text, "the next cookie is not sent to this address"
        foreign = await client.post(path, data=fields, headers={**browser, "origin": "https://evil.example"})
        assert (foreign.status_code, "Line" in foreign.text) == (403, False)


async def test_feedback_is_a_form_and_only_with_stars() -> None:
    operator = FakeOperator()
    for stars, more in (("4", {"learn": "on"}), ("1", {}), ("6", {}), ("", {})):
        done = await post(operator, "feedback", issue="SYM-1", stars=stars, comment="a\r\nb", **more)
        assert done.status_code == 303
    assert operator.ratings == [
        ("SYM-1", Stars(stars=4, comment="a\nb"), True),
        ("SYM-1", Stars(stars=1, comment="a\nb", learn=False), True),
    ]
    async with asking(operator, CONTROL) as client:
        for forged in ({"stars": "1"}, {"stars": "1", "comment": "good"}):
            answer = await client.post("/actions/feedback", data={**FORM, "csrf": "x", **forged})
            assert (answer.status_code, len(operator.ratings)) == (403, 2)
            assert forged.get("comment", "") in answer.text


async def test_a_body_that_is_no_form_is_refused() -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for body, status in (
        (b"\xff=1", 400),
        (b"a=%ff", 400),
        (b"&a=1" * 100, 400),
        (b"", 403),
        (b"x" * 300_000, 413),
    ):
        operator = FakeOperator()
        async with asking(operator, CONTROL) as client:
            answer = await client.post("/actions/stop", content=body, headers=kind)
        assert (answer.status_code, operator.orders) == (status, []), body[:20]
