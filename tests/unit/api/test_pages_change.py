"""The page of a change and its forms, with an operator that answers as a test likes."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from msgspec import structs

from harness.asking import CONTROL, TOKEN, asking, signed_in
from harness.pages import DemoOperator, demo_review, review_file
from symphony.api import models
from symphony.api.access import Access
from symphony.api.interface import ConflictError, DraftEdit
from symphony.api.sign_in import BrowserSignIn
from unit.api.test_pages import HOSTILE, VISIBLE, Seen, check

pytestmark = pytest.mark.asyncio
PATH = "/issues/WEB-118/diff"


@pytest.fixture
def operator() -> DemoOperator:
    return DemoOperator()


@pytest_asyncio.fixture
async def client(operator: DemoOperator) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(operator, CONTROL) as client:
        yield client


def fields(page: Seen, action: str) -> dict[str, str]:
    """The hidden fields of the first form with that action."""
    names, inside = dict[str, str](), False
    for tag, found in page.tags:
        if tag == "form":
            inside = found.get("action") == action and not names
        elif tag == "input" and inside and found.get("type") == "hidden":
            names[str(found["name"])] = str(found.get("value"))
    return names


async def post(client: httpx.AsyncClient, action: str, **given: str) -> httpx.Response:
    page = check(await client.get(PATH))
    sent = {**fields(page, "/actions/review"), **given}
    return await client.post(action, data=sent)


async def test_a_change_is_read_with_numbers_words_and_colours(client: httpx.AsyncClient) -> None:
    response = await client.get(PATH)
    page = check(response)
    for fact in (
        "symphony/WEB-118",
        "6 files",
        "tests, lint passed",
        "Stream the export",
        "docs/old name.md → ",
    ):
        assert fact in page.text
    classes = [str(found.get("class")) for _, found in page.tags if found.get("class")]
    assert {"is-added", "is-removed", "w", "k", "s", "c"} <= {
        name for each in classes for name in each.split()
    }
    assert "binary or larger than 1 MiB" in page.text
    assert "Show 5,514 changed lines" in page.text
    assert "Show it again" in page.text
    links = {str(link["href"]) for link in page.all("a")}
    assert f"{PATH}?file=0&context=20#file-0" in links
    assert f"{PATH}?file=0&at=n15#at" in links
    assert f"{PATH}?file=0&at=o15#at" in links
    assert "symphony_reviewer=" in response.headers["set-cookie"]
    assert all(flag in response.headers["set-cookie"].lower() for flag in ("httponly", "samesite=strict"))
    assert "set-cookie" not in (await client.get(PATH)).headers


async def test_a_line_is_commented_on_without_javascript(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    page = check(await client.get(f"{PATH}?file=0&at=o15"))
    sent = fields(page, "/actions/review")
    assert "o15" in {found.get("value") for _, found in page.tags if found.get("name") == "line"}
    answered = await client.post(
        "/actions/review-draft", data={**sent, "path": "app/audit/cursor.py", "line": "o15", "text": " Why? "}
    )
    assert answered.status_code == 303
    (identifier, reviewer, edit) = operator.edits[-1]
    assert (identifier, reviewer) == ("WEB-118", client.cookies["symphony_reviewer"])
    assert edit.add == models.ReviewLine(file="app/audit/cursor.py", line=15, text=" Why? ", old=True)
    assert edit.head == demo_review().head
    assert operator.contexts[-1] == 3
    asked = {"at=x1": 400, "since=abc": 400, "file=99": 200, "part=7": 200, "context=x": 200}
    for query, status in asked.items():
        check(await client.get(f"{PATH}?{query}"), status)


async def test_a_decision_takes_the_draft_along_and_a_refusal_keeps_it(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    done = await post(client, "/actions/review", message="Almost", decision="send_back")
    assert done.headers["location"].startswith("/issues/WEB-118?notice=")
    identifier, _, given, with_draft = operator.decisions[-1]
    assert (identifier, given.decision, given.message, with_draft) == ("WEB-118", "send_back", "Almost", True)
    assert given.head == demo_review().head

    operator.unfit = ConflictError("head_moved", "the branch has moved")
    refused = await post(client, "/actions/review", message="Still", decision="approve")
    assert refused.headers["location"].startswith(f"{PATH}?since={demo_review().head}&notice=")
    assert "the branch has moved" in check(await client.get(refused.headers["location"])).text
    assert operator.edits[-1][2] == DraftEdit(head=demo_review().head, message="Still"), "it is kept first"

    operator.unfit = ConflictError("not_ready", "another person approved it")
    late = await post(client, "/actions/review", message="No\r\nnot so", decision="send_back")
    assert late.headers["location"].startswith("/issues/WEB-118?notice="), "the change may be gone"
    page = check(await client.get(late.headers["location"]))
    assert all(words in page.text for words in ("another person approved it", "not so"))

    kept = await post(client, "/actions/review", message="Later", decision="keep")
    assert kept.headers["location"].startswith(f"{PATH}?notice=")
    assert len(operator.decisions) == 1
    await post(client, "/actions/review-draft", drop="0")
    assert operator.edits[-1][2].drop == 0
    await post(client, "/actions/review-draft", path="web/pager.ts", viewed="1")
    assert (operator.edits[-1][2].path, operator.edits[-1][2].viewed) == ("web/pager.ts", True)


async def test_a_draft_of_a_former_sign_in_is_offered(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    left = models.ReviewLeft(at="2026-03-04T08:00:00Z", message="Almost \x1b[31m", comments=2)
    operator.reviews["WEB-118"] = structs.replace(demo_review(), left=left)
    page = check(await client.get(PATH))
    assert all(words in page.text for words in ("2 comments on lines", "Almost \\x1b[31m", "Go on with it"))
    await client.post("/actions/review-draft", data={**fields(page, "/actions/review-draft"), "take": "1"})
    assert operator.edits[-1][2] == DraftEdit(head=demo_review().head, takes=True)


async def test_more_lines_are_offered_only_where_there_are_some(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    added = "@@ -0,0 +1,2 @@\n+one\n+two\n"
    at_end = "@@ -1,2 +1,2 @@\n same\n-old\n+new\n"
    before_more = "@@ -1,4 +1,4 @@\n-old\n+new\n a\n b\n c\n"
    for patch, offered in ((added, False), (at_end, False), (before_more, True)):
        operator.patch_texts = dict.fromkeys(operator.patch_texts, patch)
        page = check(await client.get(f"{PATH}?file=0"))
        assert ("Show more lines" in page.text) is offered


@pytest.mark.parametrize("action", ["review", "review-draft"])
async def test_what_was_typed_about_an_issue_that_is_gone_is_shown_again(
    client: httpx.AsyncClient, operator: DemoOperator, action: str
) -> None:
    sent = fields(check(await client.get(PATH)), "/actions/review")
    del operator.reviews["WEB-118"]
    typed = {"message": "A long\r\nthought", "text": "A long\r\nthought", "decision": "send_back"}
    typed |= {"path": "a.py", "line": "n1"}
    refused = await client.post(f"/actions/{action}", data={**sent, **typed})
    page = await client.get(refused.headers["location"])
    assert "the daemon does not know this issue any more" in page.text
    assert "A long\nthought</textarea>" in page.text
    assert operator.decisions == []


async def test_a_file_whose_patch_was_cut_says_so(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    operator.patch_texts = {"app/audit/cursor.py": "x\n@@ -14,3 +14,3 @@\n a = 1\n-b = 2\n"}
    page = check(await client.get(f"{PATH}?file=0"))
    assert "More lines of it change" in page.text


async def test_a_change_that_looks_like_html_is_text(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    review = demo_review()
    operator.reviews["WEB-118"] = structs.replace(
        review,
        title=HOSTILE,
        branch=HOSTILE,
        summary=HOSTILE,
        files=(review_file(HOSTILE, "renamed", old_path=HOSTILE),),
        commits=(models.ReviewCommit(commit=HOSTILE, author=HOSTILE, at=HOSTILE, subject=HOSTILE),),
        comments=(structs.replace(review.comments[0], file=HOSTILE, text=HOSTILE, quote=HOSTILE),),
        message=HOSTILE,
    )
    operator.patch_texts = {HOSTILE: f"x x\n@@ -1 +1 @@ {HOSTILE}\n-{HOSTILE} a\n+{HOSTILE} b\n \u202e"}
    page = check(await client.get(f"{PATH}?file=0&at=n1"))
    assert page.text.count(VISIBLE) > 10
    assert "\\u202e" in page.text
    assert not page.all("img")


async def test_every_part_of_a_large_change_has_a_page(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    review = demo_review()
    files = tuple(review_file(f"{number}.py", insertions=100, deletions=0) for number in range(120))
    operator.reviews["WEB-118"] = structs.replace(review, files=files, files_left_out=3, comments=())
    operator.patch_texts = {file.path: "x\n@@ -0,0 +1 @@\n+x = 1\n" for file in files}
    first = check(await client.get(PATH))
    assert len(re.findall("Show 100 changed lines", first.text)) == 35, "1,500 lines are unfolded"
    assert f"{PATH}?part=2" in {link["href"] for link in first.all("a")}
    last = check(await client.get(f"{PATH}?part=3"))
    assert ("101 to 120 of 123" in last.text, "3 more files" in last.text) == (True, True)


async def test_others_a_decision_and_news_are_told(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    no = models.Choice(allowed=False, code="decided", message="it was sent back already")
    operator.reviews["WEB-118"] = structs.replace(
        demo_review(),
        looked_at="d" * 40,
        others=("2026-03-04T09:40:00Z",),
        decided=models.ReviewDecided(decision="send_back", mine=False, at="2026-03-04T09:40:00Z"),
        send_back=no,
        approve=no,
    )
    page = check(await client.get(PATH))
    assert "Sent back by another person" in page.text
    assert "Another person reviews" in page.text
    assert page.text.count("it was sent back already") == 1
    buttons = [each.get("value") for each in page.all("button") if each.get("name") == "decision"]
    assert buttons == ["keep"]
    news = f"{PATH}?since={'d' * 40}"
    assert news in {link["href"] for link in page.all("a")}
    assert "This is what is new since" in check(await client.get(news)).text


async def test_any_two_deliveries_are_compared_and_only_the_last_is_decided_on(
    client: httpx.AsyncClient,
) -> None:
    page = check(await client.get(PATH))
    last, earlier = (one.head for one in demo_review().deliveries)
    assert [found.get("value") for tag, found in page.tags if tag == "option"] == [
        "",
        last,
        earlier,
        "",
        earlier,
    ]
    links = {str(link["href"]) for link in page.all("a")}
    assert {f"{PATH}?since={earlier}", "/issues/WEB-118?run=run-118-1"} <= links
    between = check(await client.get(f"{PATH}?since={'e' * 40}&until={earlier}"))
    assert [form.get("action") for form in between.all("form") if "review" in str(form.get("action"))] == []
    links = {str(link["href"]) for link in between.all("a")}
    assert f"{PATH}?since={'e' * 40}&until={earlier}&file=0" in links, "its parts are of the same commits"
    assert PATH in links
    check(await client.get(f"{PATH}?until=abc"), 400)


async def test_readers_see_the_change_and_no_forms(operator: DemoOperator) -> None:
    public = Access.tcp("127.0.0.1", TOKEN, BrowserSignIn(), public_reads=True)
    async with asking(operator, public) as reader:
        page = check(await reader.get(PATH))
    assert "Your review" not in page.text
    assert not [form for form in page.all("form") if str(form.get("action")).startswith("/actions/")]
    assert operator.looks[-1] == ("WEB-118", None, None), "it does not count as seen"


async def test_what_was_typed_survives_a_lost_sign_in(operator: DemoOperator) -> None:
    typed: dict[str, Any] = {"issue": "WEB-118", "text": "A long <b>thought</b>", "csrf": "x"}
    sign_in = BrowserSignIn()
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    page = {"accept": "text/html"}
    async with asking(operator, access, headers={**signed_in(sign_in), **page}) as browser:
        stale = await browser.post("/actions/review-draft", data=typed)
    async with asking(operator, access, headers=page) as browser:
        lost = await browser.post("/actions/review-draft", data=typed)
        evil = {"origin": "https://evil.example"}
        foreign = await browser.post("/actions/review-draft", data=typed, headers=evil)
    for answered, status in ((stale, 403), (lost, 401)):
        assert answered.status_code == status
        assert "A long &lt;b&gt;thought&lt;/b&gt;</textarea>" in answered.text
    assert (foreign.status_code, "thought" in foreign.text) == (403, False)
    assert operator.edits == []
