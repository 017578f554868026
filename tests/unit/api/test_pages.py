import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
from msgspec import structs
from typing_extensions import override

from harness.asking import BEARER, CONTROL, HALF_PAST, LOOPBACK, TOKEN, asking, signed_in
from harness.pages import NOW, DemoOperator, demo_state, demo_task, fill_library, waiting_row
from symphony import to_thread
from symphony.api.access import Access
from symphony.api.documents import verified_document
from symphony.api.explain import explain
from symphony.api.formatting import button_words
from symphony.api.forms import local_path
from symphony.api.interface import RunQuery, TranscriptQuery, UnavailableError, WorkingDiff
from symphony.api.models import (
    AgentLimit,
    Block,
    Choice,
    JournalHealth,
    NewIssue,
    NotifyTarget,
    Reason,
    Retry,
    Row,
    Setting,
    Waiting,
    utc_text,
)
from symphony.api.sign_in import BrowserSignIn
from symphony.domain import FileChange, KeptFile, ReviewerRemark, ReviewerVerdict, Verification, without_codes
from symphony.journal.transcripts import (
    AnswerEntry,
    ApprovalEntry,
    CommandEntry,
    MessageEntry,
    NoteEntry,
    QuestionEntry,
    TranscriptEntry,
    TurnEntry,
    UsageEntry,
)

pytestmark = pytest.mark.asyncio

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> \x1b[31mred\x1b[0m \u202egnp.exe {{ 7*7 }}"
)
VISIBLE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> \\x1b[31mred\\x1b[0m \\u202egnp.exe {{ 7*7 }}"
)
POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
}


class Seen(HTMLParser):
    """What a browser would make of a page, as far as tests ask."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @override
    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def operator() -> DemoOperator:
    return DemoOperator()


@pytest_asyncio.fixture
async def client(operator: DemoOperator) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(operator) as client:
        yield client


def check(response: httpx.Response, status: int = 200) -> Seen:
    """The page, after a look at what holds for every page."""
    assert (response.status_code, response.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert set(response.headers["content-security-policy"].split("; ")) == POLICY
    page = Seen(response.text)
    assert [len(page.all(tag)) for tag in ("h1", "main", "nav")] == [1, 1, 1]
    assert page.all("html")[0]["lang"] == "en"
    assert [
        tag for tag, found in page.tags for name in found if name == "style" or name.startswith("on")
    ] == []
    assert page.all("style") == []
    assert {str(each.get("src"))[:8] for each in page.all("script")} == {"/assets/"}
    ids = [str(found["id"]) for _, found in page.tags if "id" in found]
    assert len(ids) == len(set(ids))
    assert not [name for name in ids if not name or re.search(r"\s", name)]
    for link in page.all("a"):
        href = str(link["href"])
        assert href.startswith(("/", "#", "https://", "http://"))
        assert href.startswith(("/", "#")) or link["rel"] == "noopener noreferrer"
    return page


# --- the board ---


async def test_the_board_shows_each_kind_of_issue_and_why(client: httpx.AsyncClient) -> None:
    page = check(await client.get("/"))
    state = demo_state()
    rows: list[Row] = [*state.running, *state.retrying, *state.blocked, *state.waiting, *state.ready]
    for row in rows:
        assert row.issue_identifier in page.text
        assert row.title in page.text
    for fact in (
        state.blocked[0].question,
        state.blocked[1].error,
        state.blocked[1].failure.hint,
        state.waiting[2].reason.message,
        without_codes(str(state.retrying[0].error)),
        state.running[1].last_message,
        state.ready[0].delivered.branch,
        state.ready[0].summary,
        "+214",
        "$2.14",
    ):
        assert fact is not None
        assert fact in page.text
    posted = [str(form["action"]) for form in page.all("form") if form.get("method") == "post"]
    daemon = {"/actions/pause", "/actions/drain", "/actions/refresh"}
    assert {"/actions/answer", "/actions/retry", "/actions/unblock", *daemon} == set(posted)
    assert "symphony unblock" not in page.text
    assert {"rel": "alternate", "type": "application/json", "href": "/api/v1/state"} in page.all("link")


async def test_every_issue_of_the_board_can_be_selected_for_one_action(client: httpx.AsyncClient) -> None:
    page, state = check(await client.get("/")), demo_state()
    rows: list[Row] = [*state.running, *state.retrying, *state.blocked, *state.waiting, *state.ready]
    boxes = [each["value"] for each in page.all("input") if each.get("form") == "selected"]
    assert sorted(map(str, boxes)) == sorted(row.issue_identifier for row in rows)
    assert "(3) Board" in page.text
    assert page.all("link")[1]["href"] == "/assets/icon-3.svg"


async def test_before_an_action_on_several_issues_a_page_names_them(client: httpx.AsyncClient) -> None:
    page = check(await client.get("/confirm?verb=move&issue=WEB-131&issue=WEB-9&back=/%3Fq=log"))
    assert [each["value"] for each in page.all("input") if each.get("name") == "issue"] == [
        "WEB-131",
        "WEB-9",
    ]
    assert "Paginate the audit log" in page.text
    assert "does not know it any more" in page.text
    assert page.all("option") != []
    assert "/?q=log" in [each["href"] for each in page.all("a")]
    for wrong in ("verb=stop", "verb=drain&issue=WEB-131"):
        check(await client.get(f"/confirm?{wrong}"), 400)


async def test_a_search_filters_what_ended_and_what_is_proposed(tmp_path: Path) -> None:
    await to_thread.run_sync(fill_library, tmp_path / "library.db")
    async with asking(DemoOperator(library_file=tmp_path / "library.db")) as client:
        whole, found = check(await client.get("/")), check(await client.get("/?q=cursor"))
        none = check(await client.get("/?q=no-such-issue"))
    assert ("cursor-paging" in whole.text, "Ended recently" in whole.text) == (True, True)
    links = [str(each["href"]) for each in found.all("a")]
    assert "/skills/proposals/2" in links
    assert "/skills/proposals/1" not in links
    assert ("Proposed skills" in none.text, "Ended recently" in none.text) == (False, False)


@pytest.mark.parametrize(
    ("name", "status"), [("0", 200), ("7", 200), ("100", 200), ("101", 404), ("07", 404)]
)
async def test_the_icon_has_a_number(client: httpx.AsyncClient, name: str, status: int) -> None:
    answer = await client.get(f"/assets/icon-{name}.svg")
    assert answer.status_code == status
    if status == 200:
        assert answer.headers["content-type"].startswith("image/svg+xml")
        texts = re.findall(r"<text[^>]*>(.*?)</text>", answer.text)
        assert texts == {"0": [], "7": ["7"], "100": ["99+"]}[name]


async def test_a_new_issue_is_created_by_a_form(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    assert "/new" in {link["href"] for link in check(await client.get("/")).all("a")}
    page = check(await client.get("/new"))
    assert "api-style" in page.text
    csrf = next(str(each["value"]) for each in page.all("input") if each.get("name") == "csrf")
    form = {
        "csrf": csrf,
        "title": "Fix it",
        "body": "Now\r\nplease",
        "labels": "bug, , ui",
        "skill": "api-style",
    }
    done = await client.post("/actions/create-issue", data=form)
    assert operator.created == [
        NewIssue(title="Fix it", body="Now\nplease", labels=("bug", "ui"), skill="api-style")
    ]
    assert "SYM-1: it begins in Todo" in check(await client.get(done.headers["location"])).text
    again = check(await client.post("/actions/create-issue", data=form | {"title": " ", "body": HOSTILE}))
    assert (VISIBLE in again.text, len(operator.created)) == (True, 1), "nothing typed is lost"
    assert (await client.post("/actions/create-issue", data=form | {"csrf": "x"})).status_code == 403

    operator.document = structs.replace(operator.document, creates_in=())
    assert "/new" not in {link["href"] for link in check(await client.get("/")).all("a")}
    assert "creates no issues" in check(await client.get("/new")).text


async def test_the_board_says_on_which_host_a_run_is(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    state = demo_state()
    assert "on build-1" not in check(await client.get("/")).text
    first, *rest = state.running
    far = structs.replace(first, worker_host="agent@build-1:2222")
    operator.document = structs.replace(state, running=(far, *rest))
    assert check(await client.get("/")).text.count("on agent@build-1:2222") == 1


@pytest.mark.conformance("H-4-page")
async def test_text_of_others_is_text(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    state = demo_state()
    remark = ReviewerRemark(file=HOSTILE, line=7, text=HOSTILE)
    verdict = ReviewerVerdict(reviewer=HOSTILE, approves=False, remarks=(remark,))
    reviewed = Verification(head="a" * 40, reviewer=verdict)
    operator.document = structs.replace(
        state,
        running=(structs.replace(state.running[0], title=HOSTILE, last_message=HOSTILE, stage=HOSTILE),),
        blocked=tuple(
            structs.replace(
                row, question=row.question and HOSTILE, error=HOSTILE, issue_identifier=f"{HOSTILE}{at}"
            )
            for at, row in enumerate(state.blocked)
        ),
        ready=(
            structs.replace(
                state.ready[0],
                summary=HOSTILE,
                delivered=structs.replace(state.ready[0].delivered, branch=HOSTILE),
                pull_request_url="javascript:alert(1)",
                verified=verified_document(reviewed, state.ready[0].issue_identifier),
            ),
        ),
        waiting=(structs.replace(state.waiting[0], title="x" * 10_000 + HOSTILE, state=HOSTILE),),
    )
    response = await client.get("/")
    page = check(response)
    assert page.text.count(VISIBLE) >= 9 + 3
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", response.text
    )
    assert "javascript:" not in response.text


async def test_the_board_says_what_a_pull_request_waits_for(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    assert "checks_pending" in check(await client.get("/")).text
    state = demo_state()
    assert state.ready[0].pull_request is not None
    failed = structs.replace(
        state.ready[0].pull_request,
        number=None,
        message=HOSTILE,
        failure=structs.replace(state.blocked[1].failure, message="no answer"),
    )
    operator.document = structs.replace(state, ready=(structs.replace(state.ready[0], pull_request=failed),))
    page = check(await client.get("/"))
    assert "no answer" in page.text
    assert VISIBLE in page.text


async def test_a_board_about_which_little_is_known(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    state = demo_state()
    failure = structs.replace(state.blocked[1].failure, where="WORKFLOW.md:3", hint="mend it")
    operator.document = structs.replace(
        state,
        health=structs.replace(
            state.health, status="degraded", last_poll_at=None, workflow_failure=failure, poll_failure=failure
        ),
        running=tuple(
            structs.replace(row, last_event_at=None, last_message=None, stopping="canceled")
            for row in state.running
        ),
        retrying=tuple(structs.replace(row, error=None, last_error=None) for row in state.retrying),
        ready=tuple(
            structs.replace(
                row,
                delivered=structs.replace(row.delivered, push=None),
                summary=None,
                cost_usd=None,
                pull_request_url=None,
                look=(),
            )
            for row in state.ready
        ),
        budgets=structs.replace(state.budgets, max_tokens_per_day=None),
        tracker=structs.replace(state.tracker, circuit="open", failures_in_a_row=3, asks_next_at=None),
        journal=JournalHealth(state="memory", reason="the disk is full", hint="make room"),
        agents=(
            structs.replace(
                state.agents[0],
                limited=AgentLimit(
                    until="2026-03-04T10:00:00Z",
                    code="agent_rate_limited",
                    message="come back later",
                    times=1,
                ),
            ),
        ),
        paused=True,
    )
    page = check(await client.get("/"))
    for fact in ("In trouble", "WORKFLOW.md:3", "mend it", "“Resume”", "come back later", "none yet"):
        assert fact in page.text
    operator.document = structs.replace(
        state, running=(), retrying=(), blocked=(), ready=(), waiting=(), waiting_by_reason={}, journal=None
    )
    check(await client.get("/"))


async def test_many_waiting_issues_have_bounded_rows(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    rows = tuple(
        waiting_row(number, "Title", "no_slot", "no slot", number) for number in range(1_001, 11_001)
    )
    operator.document = structs.replace(demo_state(), waiting=rows, waiting_by_reason={"no_slot": 10_000})
    response = await client.get("/")
    page = check(response)
    assert len(page.all("tr")) < 100
    assert "9,950 more" in page.text
    assert "/?waiting=250" in [link["href"] for link in page.all("a")]
    most = check(await client.get("/?waiting=99999"))
    assert len(most.all("tr")) < 1_100
    assert "9,000 more" in most.text


async def test_the_address_selects_issues(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    page = check(await client.get("/?q=a%26b&reason=no_slot&state=Todo"))
    assert operator.selections[-1].text == "a&b"
    assert operator.selections[-1].codes == {"no_slot"}
    links = {str(link["href"]) for link in page.all("a")}
    assert "/?q=a%26b&state=Todo" in links
    assert "/?q=a%26b&state=Todo&reason=label_missing&reason=no_slot" in links
    assert [field["value"] for field in page.all("input") if field.get("name") == "q"] == ["a&b"]
    assert "reason is one of" in check(await client.get("/?reason=x"), 400).text


async def test_an_unchanged_page_is_not_sent_again(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    first = await client.get("/")
    same = {"if-none-match": first.headers["etag"]}
    operator.document = structs.replace(operator.document, generated_at="2026-03-04T09:41:30Z")
    unchanged = await client.get("/", headers=same)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert (await client.get("/", headers={**same, "cookie": "symphony_theme=dark"})).status_code == 200
    operator.document = structs.replace(operator.document, paused=True)
    assert (await client.get("/", headers=same)).status_code == 200


async def test_a_daemon_that_cannot_answer_says_so_on_a_page(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    operator.fails = UnavailableError("snapshot_unavailable", "the daemon is starting")
    assert "the daemon is starting" in check(await client.get("/"), 503).text


# --- around the pages ---


async def test_the_colours_are_remembered(client: httpx.AsyncClient) -> None:
    chosen = await client.get("/theme?to=dark&back=/%3Fq%3Dx")
    assert (chosen.status_code, chosen.headers["location"]) == (303, "/?q=x")
    assert "symphony_theme=dark" in chosen.headers["set-cookie"]
    page = check(await client.get("/"))
    assert page.all("html")[0]["data-theme"] == "dark"
    assert (await client.get("/theme?to=pink")).status_code == 400


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "", "x"])
async def test_nobody_is_sent_to_another_site(path: str) -> None:
    assert local_path(path) == "/"


async def test_the_files_of_the_pages_are_small_and_may_be_kept(client: httpx.AsyncClient) -> None:
    page = check(await client.get("/"))
    files = {str(each["src"]) for each in page.all("script")}
    files |= {str(each["href"]) for each in page.all("link") if each["rel"] == "stylesheet"}
    size = 0
    for file in files:
        response = await client.get(file)
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
        size += len(response.content)
    assert len(files) == 3
    assert size <= 90_000
    folder = resources.files("symphony.api.pages").joinpath("static")
    assert "Zero-Clause BSD" in folder.joinpath("idiomorph.LICENSE").read_text(encoding="utf-8")
    assert (await client.get("/assets/idiomorph.LICENSE")).status_code == 404


# --- one issue ---


async def test_the_page_of_an_issue(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    page = check(await client.get("/issues/WEB-131"))
    issue = operator.one
    skills = issue.skills
    assert skills is not None
    for fact in (
        issue.title,
        "Running",
        skills.listed[0].path,
        str(skills.listed[0].sha256)[:12],
        skills.dropped[0].name,
        f"{skills.problems[0].path}:4",
        f"Timed out: {without_codes(str(issue.runs[1].reason))}",
        issue.recent_events[0].message,
        issue.workspace.branch,
        "pytest -q tests/audit",
        "1 failed, 14 passed in 2.31s",
        "Go on with WEB-131",
        "Test two pages that share a timestamp",
        "app/audit/cursor.py",
        "IMPLEMENT",
        "the state is In Progress",
        "python-style",
        "5c" * 6,
        "history-of-the-project",
        "docs/agents.yaml:7",
    ):
        assert str(fact) in page.text
    assert [form["action"] for form in page.all("form") if form.get("method") == "post"] == [
        "/actions/stop",
        "/actions/move",
        "/actions/comment",
    ]
    assert page.all("main")[0]["data-scope"] == "issue:WEB-131"
    assert {"rel": "alternate", "type": "application/json", "href": "/api/v1/WEB-131"} in page.all("link")


async def test_the_page_of_an_issue_has_the_issue(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    page = check(await client.get("/issues/WEB-131"))
    words = " ".join(page.text.split())
    task = demo_task(operator.one)
    for fact in (*task.labels, "priority 2", "WEB-118 Export reports as CSV Done, over", "OPS-7 In Progress"):
        assert fact in words
    for comment in task.comments:
        who = comment.author if comment.by == comment.author else f"{comment.author} {comment.by}"
        assert who in words
    links = {str(link["href"]): link for link in page.all("a")}
    assert {"/issues/WEB-118", "https://pages.example/cursors", "https://pages.example/a.png"} <= set(links)
    assert "/issues/OPS-7" not in links, "the daemon has no page for it"
    assert page.all("img") == []
    assert len(page.all("td")) == 2
    events = [found for found in page.all("details") if str(found.get("id")).startswith("events-")]
    assert [("open" in found) for found in events] == [True, False], "the newest run is open"


async def test_the_page_of_an_issue_says_what_the_tracker_does_not(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    task = demo_task(operator.one)
    waiting = structs.replace(task.comments[0], id=None, sent="waiting", failure="the tracker is down")
    for changed, told, can_write in (
        ({"gone": True, "comments": ()}, "no longer has this issue", False),
        ({"failure": "no answer", "description": None, "comments": (waiting,)}, "no answer", True),
        ({"comments": (waiting,)}, "is being sent: the tracker is down", True),
        ({"comments": (structs.replace(waiting, sent="given_up"),)}, "not sent: the tracker is down", True),
        ({"can_comment": False, "comments": ()}, "100 rows a page", False),
        ({"comments": 20 * task.comments[:1], "comments_left_out": 7}, "12 earlier comments", True),
    ):
        operator.task_document = structs.replace(task, **changed)
        page = check(await client.get("/issues/WEB-131"))
        assert told in " ".join(page.text.split())
        assert ("/actions/comment" in {form.get("action") for form in page.all("form")}) is can_write
        assert operator.one.recent_events[0].message in page.text


async def test_hostile_texts_of_the_issue_are_text(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    task = demo_task(operator.one)
    body = (
        f"{HOSTILE}\n\n[a](javascript:alert(1)) [b](data:text/html,x) [c](/skills) <https://good.example>\n\n"
        "![x](javascript:1) [![in](https://good.example/i.png)](https://good.example/o) <b onclick=x>\n\n"
        "| a | b |\n| --: | :-: |\n| 1 | 2 |\n\n"
        "\x1b[31mred\x1b[0m \u202eexe.txt [https://good.example](https://evil.example)"
    )
    comment = structs.replace(task.comments[0], body=body, author=HOSTILE)
    operator.task_document = structs.replace(task, description=body, comments=(comment,), labels=(HOSTILE,))
    response = await client.get("/issues/WEB-131")
    page = check(response)
    for raw in ("<script>alert", "<b onclick", "\x1b", "\u202e"):
        assert raw not in response.text
    for shown in ("\\x1b[31mred", "\\u202eexe.txt", "javascript:alert(1)"):
        assert shown in page.text
    hrefs = {str(link["href"]) for link in page.all("a") if "good" in str(link) or "evil" in str(link)}
    assert hrefs == {"https://good.example", "https://good.example/o", "https://evil.example"}
    assert {link["title"] for link in page.all("a") if "evil" in str(link["href"])} == {
        "https://evil.example"
    }


async def test_a_comment_can_be_written_without_javascript(client: httpx.AsyncClient) -> None:
    page = check(await client.get("/issues/WEB-131"))
    assert any(found.get("http-equiv") == "refresh" for found in page.all("meta"))
    assert "/issues/WEB-131?write=1#write" in {link["href"] for link in page.all("a")}
    page = check(await client.get("/issues/WEB-131?write=1"))
    assert not any(found.get("http-equiv") == "refresh" for found in page.all("meta")), "it loses text"


async def test_a_skill_of_the_library_leads_to_the_version_that_the_run_got(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    skills = operator.one.skills
    assert skills is not None
    listed = structs.replace(skills.listed[0], name="retries", library_version=2)
    operator.one = structs.replace(operator.one, skills=structs.replace(skills, listed=(listed,)))
    links = {link["href"] for link in check(await client.get("/issues/WEB-131")).all("a")}
    assert "/skills/library/retries?version=2" in links


async def test_what_can_be_done_about_an_issue_depends_on_its_status(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    state, base = (
        demo_state(),
        structs.replace(operator.one, running=None, skills=None, recent_events=(), runs=(), moves_to=()),
    )
    asks, blocked = (
        Block(**{name: getattr(row, name) for name in Block.__struct_fields__}) for row in state.blocked
    )
    retry = Retry(**{name: getattr(state.retrying[0], name) for name in Retry.__struct_fields__})
    waiting = Waiting(reason=Reason(code="no_slot", message="4 of 4 slots are used"))
    for status, part, said, verbs in (
        ("blocked", {"blocked": asks}, asks.question, {"answer", "retry", "unblock"}),
        ("blocked", {"blocked": blocked}, without_codes(blocked.error), {"retry", "unblock"}),
        ("retrying", {"retry": retry}, without_codes(str(retry.error)), {"retry", "stop"}),
        ("waiting", {"waiting": waiting}, waiting.reason.message, set()),
        ("ready", {"result": state.ready[0]}, state.ready[0].summary, set()),
        ("ended", {}, "None yet.", set()),
    ):
        operator.one = structs.replace(base, status=status, **part)
        page = check(await client.get("/issues/WEB-131"))
        assert str(said) in page.text
        explanation, words = explain(operator.one), " ".join(page.text.split())
        for told in (explanation.answer, explanation.next, explanation.advice):
            assert told is None or " ".join(button_words(told).split()) in words
        posted = {str(form["action"]) for form in page.all("form") if form.get("method") == "post"}
        assert posted == {f"/actions/{verb}" for verb in {*verbs, "comment"}}


async def test_finished_work_is_verified_or_the_page_says_why_not(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    ready = structs.replace(operator.one, status="ready", running=None, result=demo_state().ready[0])
    no = Choice(allowed=False, code="no_checks", message="verify.commands is not set", hint="set it")
    for verify in (Choice(allowed=True), no, None):
        operator.one = structs.replace(ready, verify=verify)
        page = check(await client.get("/issues/WEB-131"))
        posts = [form.get("action") for form in page.all("form")]
        assert ("/actions/verify" in posts) is (verify is not None and verify.allowed)
        assert ("verify.commands is not set" in page.text) is (verify is no)
        assert ["disabled" in each for each in page.all("button")].count(True) == (verify is no)


async def test_what_people_copy_has_a_button_of_its_own(client: httpx.AsyncClient) -> None:
    copied = {button.get("aria-label") for button in check(await client.get("/")).all("button")}
    row = demo_state().ready[0]
    assert {f"Copy {text}" for text in (row.delivered.branch, *row.look[1:])} <= copied


@pytest.mark.parametrize("status", ["running", "retrying"])
async def test_the_page_explains_an_issue_as_the_command_line_does(
    status: str, client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    if status == "retrying":
        row = demo_state().retrying[0]
        retry = Retry(**{name: getattr(row, name) for name in Retry.__struct_fields__})
        operator.one = structs.replace(operator.one, status=status, running=None, retry=retry)
    response, explanation = await client.get("/issues/WEB-131"), explain(operator.one)
    words = " ".join(check(response).text.split())
    assert f"Why {explanation.answer} Next: {explanation.next}" in words
    later = structs.replace(operator.one, generated_at=utc_text(NOW + timedelta(seconds=5)))
    assert explain(later) != explanation
    operator.one = later
    same = {"if-none-match": response.headers["etag"]}
    assert (await client.get("/issues/WEB-131", headers=same)).status_code == 304, "only time has passed"


async def test_an_explanation_with_texts_of_others_is_text(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    waiting = Waiting(reason=Reason(code="no_slot", message=f"\x1f2026-01-01T00:00:00Z\x1f {HOSTILE}"))
    operator.one = structs.replace(operator.one, running=None, status="waiting", waiting=waiting)
    response = await client.get("/issues/WEB-131")
    assert "It is not running: " in check(response).text
    assert "<script>alert" not in response.text
    assert "\x1f" not in response.text
    assert '<time datetime="2026-01-01T00:00:00Z"' not in response.text


async def test_an_issue_is_moved_by_a_form_that_opens_first(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    operator.one = structs.replace(operator.one, state="Todo", moves_to=("Todo", "In <b>Review</b>", "Done"))
    page = check(await client.get("/issues/WEB-131"))
    assert "/actions/move" in {form.get("action") for form in page.all("form")}
    assert any(select.get("name") == "state" for select in page.all("select"))
    assert [("selected" in option) for option in page.all("option")] == [True, False, False]
    assert "In <b>Review</b>" in page.text


async def test_an_unknown_issue_and_a_prompt(client: httpx.AsyncClient) -> None:
    check(await client.get("/issues/WEB-9"), 404)
    check(await client.get("/issues/WEB-9/prompt"), 404)
    assert "Paginate the audit log." in check(await client.get("/issues/WEB-131/prompt")).text


@pytest.mark.parametrize(
    ("name", "data", "kind", "how"),
    [
        ("a/shot.PNG", b"\x89PNG", "image/png", "inline"),
        ("a/junit.xml", b"<html><script>1</script>", "text/plain; charset=utf-8", "inline"),
        ("a/latin.txt", b"\xff", "application/octet-stream", "attachment"),
        ("index.html", b"<script>", "application/octet-stream", "attachment"),
        ("a.svg", b"<svg onload='x'/>", "application/octet-stream", "attachment"),
        ('q"\r\nset-cookie: a=b.txt', b"", "text/plain; charset=utf-8", "inline"),
    ],
)
async def test_files_of_checks_are_served_as_data_and_never_as_a_page(
    client: httpx.AsyncClient, operator: DemoOperator, name: str, data: bytes, kind: str, how: str
) -> None:
    kept = KeptFile(name=name)
    operator.artifacts["WEB-131", kept.file] = (name, data)
    answer = await client.get(f"/issues/WEB-131/artifacts/{kept.file}")
    assert (answer.status_code, answer.content) == (200, data)
    assert answer.headers["content-type"] == kind
    assert answer.headers["content-disposition"].startswith(f"{how}; filename*=UTF-8''")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "set-cookie" not in answer.headers
    assert (await client.get("/issues/WEB-131/artifacts/other")).status_code == 404


async def test_a_part_of_the_transcript_of_a_run(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    part = operator.transcript_part
    assert part is not None
    at = "2026-03-04T09:40:00Z"
    entries: list[TranscriptEntry] = [
        MessageEntry(seq=500, at=at, turn=1, text=HOSTILE, left_out=9, status="writing"),
        CommandEntry(seq=501, at=at, turn=1, command=HOSTILE, status=HOSTILE, exit_code=None, output=HOSTILE),
        ApprovalEntry(seq=502, at=at, turn=1, subject=HOSTILE, decision="decline"),
        QuestionEntry(seq=503, at=at, turn=1, text=HOSTILE),
        AnswerEntry(seq=504, at=at, turn=1, text=HOSTILE),
        NoteEntry(seq=505, at=at, turn=1, level=HOSTILE, text=HOSTILE),
        TurnEntry(seq=506, at=at, turn=1, status="failed", reason=HOSTILE, cost_usd=0.5),
        MessageEntry(seq=507, at=at, turn=1, text="So so.", reviewer=HOSTILE),
        UsageEntry(seq=508, at=at, turn=1, input_tokens=1, output_tokens=1, total_tokens=2),
    ]
    operator.transcript_part = structs.replace(
        part,
        entries=tuple(entries),
        more=True,
        earlier=True,
        next_after=508,
        missing=("2 entries are missing",),
    )
    page = check(await client.get("/issues/WEB-131?run=run-131-2&after=499"))
    assert operator.transcript_parts[-1] == (
        "WEB-131",
        TranscriptQuery(run="run-131-2", after=499, limit=200),
    )
    links = {str(link["href"]) for link in page.all("a")}
    assert {f"/issues/WEB-131?run=run-131-2&{end}" for end in ("before=500", "after=508")} <= links
    assert page.text.count(VISIBLE) >= 9
    for fact in ("2 entries are missing", "9 characters are left out", "writing", "$0.50"):
        assert fact in page.text
    operator.transcript_part = structs.replace(part, entries=(), run_id=None)
    assert "No run yet" in check(await client.get("/issues/WEB-131")).text
    for query in ("after=x", "before=-1", "after=1&before=2"):
        check(await client.get(f"/issues/WEB-131?{query}"), 400)


async def test_a_search_in_the_transcript_leads_to_the_place_of_what_it_finds(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    part = operator.transcript_part
    assert part is not None
    operator.transcript_part = structs.replace(part, earlier=True)
    page = check(await client.get("/issues/WEB-131", params={"q": HOSTILE, "before": "500"}))
    sought = operator.transcript_parts[-1][1]
    assert sought == TranscriptQuery(before=500, limit=200, text=HOSTILE)
    assert f"with “{VISIBLE}”" in page.text
    links = {str(link["href"]) for link in page.all("a")}
    assert "/issues/WEB-131?run=run-131-2&after=0#e6" in links
    (earlier,) = (link for link in page.all("a") if "data-earlier" in link)
    assert parse_qs(urlsplit(str(earlier["href"])).query) == {
        "run": ["run-131-2"],
        "q": [HOSTILE],
        "before": ["1"],
    }
    assert "data-follow" not in page.all("ol")[0], "what is found does not grow"


async def test_a_command_shows_its_last_lines_and_keeps_its_place(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    part = operator.transcript_part
    assert part is not None
    output = "\n".join(f"line {number}" for number in range(1, 31))
    at = "2026-03-04T09:40:00.000Z"
    entry = CommandEntry(
        seq=9, replaces=4, at=at, turn=1, command="make", status="failed", exit_code=2, output=output
    )
    operator.transcript_part = structs.replace(part, entries=(entry,))
    page = check(await client.get("/issues/WEB-131"))
    assert "e4" in {found.get("id") for found in page.all("li")}
    assert "exit 2" in page.text
    assert [page.text.count(f"line {number}\n") for number in (1, 18, 19, 29)] == [1, 1, 2, 2]
    times = {found["datetime"]: found["title"] for found in page.all("time")}
    assert times[at] == "2026-03-04 09:40:00.000 UTC"


async def test_what_a_running_agent_has_changed_so_far(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    assert "Changed so far" not in check(await client.get("/issues/WEB-131")).text
    operator.work["WEB-131"] = tuple(
        FileChange(path=f"{HOSTILE}{number}", insertions=1_000, deletions=number) for number in range(40)
    )
    page = check(await client.get("/issues/WEB-131"))
    for fact in ("40 files", "10 files more", "+1,000", "\N{MINUS SIGN}29", VISIBLE):
        assert fact in page.text
    assert "/issues/WEB-131/work" in {link["href"] for link in page.all("a")}
    check(await client.get("/issues/WEB-131/work"), 404)
    text = f"diff --git {HOSTILE} {HOSTILE}\nnew file\n@@ -1 +1 @@\n-old\n+{HOSTILE}\n+diff --git a b"
    operator.working_diffs["WEB-131"] = WorkingDiff(text=text, cut=True)
    page = check(await client.get("/issues/WEB-131/work"))
    assert page.text.count(VISIBLE) == 2
    assert len(page.all("details")) == 1
    kinds = [str(line.get("class")) for line in page.all("span")]
    assert [kinds.count(f"is-{kind}") for kind in ("head", "hunk", "added", "removed")] == [1, 1, 2, 1]
    assert "its end is missing" in page.text
    operator.one = structs.replace(operator.one, running=None)
    assert "Changed so far" not in check(await client.get("/issues/WEB-131")).text


# --- history ---


async def test_the_history_shows_runs_sums_and_charts(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    page = check(await client.get("/history"))
    assert (operator.queries[-1].by, operator.queries[-1].since_s) == ("day", 7 * 86_400)
    for fact in (
        "WEB-119",
        "Timed out: ",
        "Speed up the nightly import",
        "no sign of life for 300 s",
        "2026-03-04",
        "58 more",
        "$57.04",
    ):
        assert fact in page.text
    assert len(page.all("rect")) == 1 + 2 * 7  # the mark, and a bar for each day
    charts = [each for each in page.all("svg") if each.get("role") == "img"]
    assert [each["aria-labelledby"] for each in charts] == [
        f"chart-{name}-title chart-{name}-text" for name in ("runs", "cost")
    ]
    operator.queries.clear()
    page = check(await client.get("/history?since=30d&by=agent&outcome=timed_out&issue=WEB-119&agent="))
    by_agent, by_day = operator.queries
    assert by_agent == RunQuery(
        since_s=30 * 86_400.0,
        by="agent",
        issues=frozenset({"WEB-119"}),
        outcomes=frozenset({"timed_out"}),
        limit=100,
    )
    assert (by_day.by, by_day.limit) == ("day", 0)
    links = {str(link["href"]) for link in page.all("a")}
    assert "/history?since=30d&outcome=timed_out&issue=WEB-119&agent=codex" in links
    check(await client.get("/history?by=x"), 400)


async def test_the_board_shows_what_ended_lately(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    assert "Ended recently" in check(await client.get("/")).text
    assert "running" not in operator.queries[-1].outcomes
    assert "Ended recently" not in check(await client.get("/?q=no-such")).text


async def test_feedback_is_asked_for_once_when_work_is_done(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    def asks(page: Seen) -> bool:
        return "/actions/feedback" in {form.get("action") for form in page.all("form")}

    assert not asks(check(await client.get("/issues/WEB-131"))), "it runs"
    page = check(await client.get("/issues/WEB-118"))
    assert asks(page)
    assert [box["value"] for box in page.all("input") if box.get("type") == "radio"] == list("12345")
    form = {"csrf": LOOPBACK.sign_in.csrf("control"), "issue": "WEB-118", "next": "/issues/WEB-118"}
    assert (await client.post("/actions/skip-feedback", data={"issue": "WEB-118"})).status_code == 403
    for number in range(300):  # the cookie stays small
        await client.post("/actions/skip-feedback", data=form | {"issue": str(number)})
    skipped = await client.post("/actions/skip-feedback", data=form)
    assert len(skipped.headers["set-cookie"]) < 3_000
    assert not asks(check(await client.get("/issues/WEB-118")))
    client.cookies.clear()
    assert asks(check(await client.get("/issues/WEB-118"))), "it is a choice of one browser"
    answer = await client.post(
        "/actions/feedback", data=form | {"stars": "2", "comment": HOSTILE, "learn": "1"}
    )
    page = check(await client.get(answer.headers["location"]))
    assert not asks(page)
    assert "★★☆☆☆" in page.text
    assert [(one.stars, one.learning.state) for one in operator.given] == [(2, "waiting")]


# --- skills and the system ---


async def test_the_page_of_skills(client: httpx.AsyncClient) -> None:
    page = check(await client.get("/skills"))
    place = ".symphony/skills/mails/SKILL.md:4:12"
    for fact in (place, "a colon is missing", "write key: value", "5 timed out", "31"):
        assert fact in page.text
    told = (await client.get("/skills.json")).json()
    assert told["problems"][0]["code"] == "invalid_yaml"
    assert told["outcomes"]["versions"][1]["delivered"] == 26
    for fact in ("version 2", "26", "4.5 (2)"):
        assert fact in page.text, fact


async def test_the_page_of_the_system(client: httpx.AsyncClient, operator: DemoOperator) -> None:
    page = check(await client.get("/system"))
    workflow = "/srv/web/WORKFLOW.md"
    for fact in ("Symphony 0.1.0", "gpt-5.2-codex", "12.0M", workflow, "polling.interval_ms", "30000"):
        assert fact in page.text
    findings = page.text[page.text.rindex("Checks of this machine") :]
    facts = ("error", "1 MiB are free", "free some space", "warning", "not <synchronised>", "use chrony")
    places = [findings.index(fact) for fact in (*facts, "ok", "git version 2.39.5")]
    assert places == sorted(places), "errors stand first"
    shapes = [found.get("class") for found in page.all("svg")]
    assert shapes[-3:] == ["icon is-failed", "icon is-warn", "icon is-ready"]
    document = (await client.get("/system.json")).json()
    assert document["settings"][0]["key"] == "tracker.kind"
    assert [check["name"] for check in document["diagnosis"]["checks"]] == ["git", "clock", "disk"]
    operator.document = structs.replace(
        operator.document,
        journal=None,
        rate_limits={
            "five_hours": {"used": 0.4},
            "primary": {"usedPercent": 31.5, "windowDurationMins": 300},
        },
    )
    page = check(await client.get("/system"))
    assert '{"used":0.4}' in page.text
    assert [each["value"] for each in page.all("meter")] == ["4", "3100000", "31.5"]
    assert "31.5 % of 5 h" in page.text
    folded = page.text[page.text.rindex("1 setting with the default") :]
    assert ("polling.interval_ms" in folded, "tracker.kind" in folded) == (True, False)


async def test_the_system_page_says_what_is_sent_to_whom_and_whether_it_arrives(
    client: httpx.AsyncClient, operator: DemoOperator
) -> None:
    page = check(await client.get("/system"))
    assert "/metrics" in {link["href"] for link in page.all("a")}
    assert "notify has no target" in page.text
    assert "Traces" not in page.text
    target = NotifyTarget(
        name="team", kind="slack", on=("question", "budget_used"), problem=None, delivered_at=HALF_PAST
    )
    operator.document = structs.replace(
        operator.document,
        notifications=(
            target,
            structs.replace(target, name="pager", kind="webhook", failure=HOSTILE, pending=3),
            structs.replace(target, name="bell", kind="command", problem="no such program"),
        ),
    )
    operator.settings = (Setting(key="tracing.content", value="False", given=False),)
    assert "tracing.endpoint is not set" in check(await client.get("/system")).text
    operator.settings = (Setting(key="tracing.endpoint", value="http://127.0.0.1:4318", given=True),)
    page = check(await client.get("/system"))
    assert "notify has no target" not in page.text
    for fact in (VISIBLE, "3 waiting", "no such program", "question, budget used", "http://127.0.0.1:4318"):
        assert fact in page.text


# --- the frame ---


async def test_a_signed_in_browser_can_sign_out(operator: DemoOperator) -> None:
    sign_in = BrowserSignIn()
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)
    async with asking(operator, access, headers=signed_in(sign_in)) as browser:
        page = check(await browser.get("/"))
        assert f"{sign_in.root}/sign-out" in {form.get("action") for form in page.all("form")}
        links = {str(each.get("href")) for each in page.all("a")} - {"#main", "#keys"}
        assert all(link.startswith((f"{sign_in.root}/", "http")) for link in links), (
            "each stays below the path"
        )
        csrf = {field["value"] for field in page.all("input") if field.get("name") == "csrf"}
        assert len(csrf) == 1
        assert (await browser.post("/sign-out", data={"csrf": csrf.pop()})).status_code == 200
        assert (await browser.get("/")).status_code == 401
    for unsigned, headers in ((CONTROL, {}), (LOOPBACK, BEARER)):
        async with asking(operator, unsigned, headers=headers) as other:
            page = check(await other.get("/"))
            assert "/sign-out" not in {form.get("action") for form in page.all("form")}
