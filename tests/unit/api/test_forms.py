"""The forms of pages: operator actions, and what the next page says of them."""

import html
import re
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message
from typing_extensions import override

from harness.asking import CONTROL, LOOPBACK, SIGN_IN, FakeOperator, asking, signed_in
from harness.scheduling import make_failure
from symphony.api.forms import MAX_SELECTED, Once, Undo, undo_of
from symphony.api.interface import MAX_ANSWER_CHARS, ConflictError, UnavailableError
from symphony.api.models import Stars, Verb
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
    found = re.search(r'<div class="notice told is-error">.*?</div>\s*</div>', page, re.DOTALL)
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
        (b"&a=1" * 300, 400),
        (b"", 403),
        (b"x" * 300_000, 413),
    ):
        operator = FakeOperator()
        async with asking(operator, CONTROL) as client:
            answer = await client.post("/actions/stop", content=body, headers=kind)
        assert (answer.status_code, operator.orders) == (status, []), body[:20]


# --- the same form twice ---


class Slow(FakeOperator):
    """Carries an action out only after a while."""

    @override
    async def act(self, verb: str, identifier: str | None, text: str | None = None) -> Verb | None:
        await anyio.wait_all_tasks_blocked()
        return await super().act(verb, identifier, text)


async def test_a_form_that_is_sent_twice_at_once_is_carried_out_once() -> None:
    operator, places = Slow(), list[str]()
    async with asking(operator, CONTROL) as client, anyio.create_task_group() as tasks:

        async def send() -> None:
            sent = await client.post("/actions/comment", data={**FORM, "issue": "SYM-1", "text": "Blue"})
            places.append(sent.headers["location"])

        for _ in range(2):
            tasks.start_soon(send)
    assert operator.orders == [("comment", "SYM-1", "Blue")]
    assert len({*places}) == 1, "both lead to the same notice"


async def test_only_the_latest_form_and_only_for_a_moment_counts_as_the_same() -> None:
    """Whoever pauses, resumes and pauses means it; so does a person who writes the same a minute later."""
    now, carried_out = [0.0], list[str]()
    once = Once(CONTROL, now_s=lambda: now[0])

    async def carry_out(request: Request) -> Response:
        carried_out.append(request.scope["path"])
        if len(carried_out) == 1:
            raise ConflictError("not_running", "it does not run")
        return Response(status_code=204)

    async def send(path: str) -> Response:
        body = urlencode(FORM).encode()
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        return await once.handle(carry_out, 1_000, Request(scope, receive))

    with pytest.raises(ConflictError):
        await send("/actions/pause")
    for path, seconds in (("pause", 0.0), ("pause", 1.0), ("resume", 1.0), ("pause", 1.0), ("pause", 60.0)):
        now[0] += seconds
        assert (await send(f"/actions/{path}")).status_code == 204
    names = [path.rpartition("/")[2] for path in carried_out]
    assert names == ["pause", "pause", "resume", "pause", "pause"], "the second was the first again"


# --- several issues ---


async def ordered(operator: FakeOperator, **fields: str | list[str]) -> tuple[int, str]:
    """The status of an order about several issues, and the page to which it leads."""
    async with asking(operator, CONTROL) as client:
        done = await client.post("/actions/selected", data={**FORM, "next": "/", **fields})
        page = await client.get(done.headers.get("location", "/"))
    return done.status_code, page.text


async def test_several_issues_each_have_a_result() -> None:
    operator = FakeOperator()
    status, page = await ordered(operator, verb="stop", issue=["SYM-9", "SYM-1", "a/b ü", "SYM-1"])
    assert (status, sorted(operator.orders)) == (303, [("stop", "SYM-1", None), ("stop", "a/b ü", None)])
    assert "stopped 2 of 3 issues" in page
    told = re.findall(r'<a class="id" href="/issues/([^"]+)">', page)
    assert told == ["SYM-9", "SYM-1", "a%2Fb%20%C3%BC"], "what failed stands first"

    undo = re.findall(r'name="(verb|issue|state)" value="([^"]*)"', page.split("</form>")[1])
    assert [value for name, value in undo if name == "verb"] == ["retry"]


async def test_a_move_of_several_issues_has_one_state_or_one_each() -> None:
    operator = FakeOperator()
    await ordered(operator, verb="move", issue=["SYM-1", "a/b ü"], state="Done")
    await ordered(operator, verb="move", issue=["SYM-1", "a/b ü"], state=["Todo", "Review"])
    assert sorted(operator.orders, key=str) == [
        ("move", "SYM-1", "Done"),
        ("move", "SYM-1", "Todo"),
        ("move", "a/b ü", "Done"),
        ("move", "a/b ü", "Review"),
    ]


async def test_what_no_page_sends_for_several_issues_is_refused() -> None:
    many = [f"SYM-{number}" for number in range(MAX_SELECTED + 1)]
    for fields in (
        {"verb": "drain", "issue": ["SYM-1"]},
        {"verb": "stop"},
        {"verb": "stop", "issue": many},
        {"verb": "move", "issue": ["SYM-1"], "state": ["Todo", "Done"]},
        {"verb": "stop", "issue": ["SYM-1"], "csrf": "x"},
    ):
        operator = FakeOperator()
        status, _ = await ordered(operator, **fields)
        assert (status in {400, 403}, operator.orders) == (True, []), fields


async def test_what_can_be_taken_back_is_offered() -> None:
    def done(verb: str, **facts: Any) -> Verb:
        issue = None if verb in ON_DAEMON else "SYM-1"
        made = {"changed": True, "message": "", "requested_at": "", **facts}
        return Verb(verb=verb, issue_identifier=issue, **made)

    assert undo_of(done("stop")) == Undo(verb="retry", label="Undo: retry", issues=(("SYM-1", ""),))
    assert undo_of(done("pause")) == Undo(verb="resume", label="Undo: resume")
    moved = undo_of(done("move", before="Todo"))
    assert moved == Undo(verb="move", label="Undo: move back", issues=(("SYM-1", "Todo"),))
    for final in (done("retry"), done("drain"), done("move"), done("pause", changed=False)):
        assert undo_of(final) is None
