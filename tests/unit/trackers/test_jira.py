"""What is particular to Jira Cloud; what all trackers share is in `contract`."""

from base64 import b64decode
from typing import Any

import pytest

from contract.jira import API, EMAIL, PROJECT, PROJECT_ID, SECRET, TOKEN, JiraDesk, JiraPlainDesk, status
from contract.vendor import Fault, Given
from symphony.config import TrackerSettings
from symphony.domain import Category, Issue
from symphony.trackers.adf import document_of, markdown_of
from symphony.trackers.base import TrackerConfigError, TrackerError
from symphony.trackers.jira import JiraSettings


async def listed(desk: JiraDesk, *states: str) -> dict[str, Issue]:
    found = await desk.tracker.fetch_issues_by_states(states or (desk.todo, desk.doing))
    return {issue.id: issue for issue in found}


@pytest.mark.asyncio
async def test_an_issue_is_what_the_profile_says() -> None:
    desk = JiraDesk()
    assignee = {"accountId": "5b10", "displayName": "Ann"}
    priority = {"id": "2", "name": "Hoch"}
    desk.put(7, description="text", labels=["Bug"], extra={"assignee": assignee, "priority": priority})
    (issue,) = (await listed(desk)).values()
    assert (issue.id, issue.identifier, issue.state, issue.assignee_id) == ("10007", "PAY-7", "To Do", "5b10")
    assert issue.url == "https://team.atlassian.example.test/browse/PAY-7"
    assert (issue.priority, issue.native_ref, issue.description) == (2, None, "text")
    assert issue.created_at is not None, "an offset without a colon is understood"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("priority", "expected"),
    [({"id": "1"}, 1), ({"id": "5"}, 5), ({"id": "10003"}, None), ({"id": 2}, None), ("High", None)],
)
async def test_priorities_are_known_by_their_ids(priority: Any, expected: int | None) -> None:
    desk = JiraDesk()
    desk.put(1, priority=priority)
    assert (await listed(desk))["10001"].priority == expected


@pytest.mark.asyncio
async def test_work_that_has_begun_is_not_stopped_by_a_blocker() -> None:
    desk = JiraDesk()
    desk.put(1)
    desk.put(2, state="In Progress")
    desk.put(3, state="In Progress")
    for number in (1, 2):
        desk.block(number, by=3)
    found = await listed(desk)
    assert found["10001"].not_dispatchable_reason == "it is blocked by PAY-3"
    assert found["10002"].dispatchable
    assert [blocker.id for blocker in found["10002"].blocked_by] == ["10003"]
    desk.put(3, state="Done")
    assert (await listed(desk))["10001"].dispatchable


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({"status": {"name": "Erledigt", "statusCategory": {"key": "done"}}}, False),
        ({"status": {"name": "done"}}, False),
        ({"status": {"name": "Elsewhere"}}, True),
        ({}, True),
    ],
)
async def test_a_blocker_whose_status_is_not_told_counts_as_open(fields: Any, held: object) -> None:
    desk = JiraDesk()
    kind = {"name": "Blockiert", "inward": "is blocked by"}
    other = {"id": "10009", "key": "OTHER-9", "fields": fields}
    links = [{"type": kind, "inwardIssue": other}, {"type": kind, "outwardIssue": other}, None]
    desk.put(1, extra={"issuelinks": links, "status": {"name": "TODO"}})
    (issue,) = await desk.tracker.fetch_issues_by_ids(["10001"])
    assert issue.dispatchable is not held


@pytest.mark.asyncio
async def test_a_state_that_was_renamed_is_a_failure_that_says_where_to_look() -> None:
    desk = JiraDesk()
    with pytest.raises(TrackerError) as caught:
        await listed(desk, 'To "Do" \\')
    failure = caught.value.failure
    assert failure.category is Category.TRACKER_STATUS
    assert "does not exist for the field 'status'" in failure.message
    assert "tracker.active_states" in str(failure.hint)


@pytest.mark.asyncio
async def test_every_value_is_quoted() -> None:
    desk = JiraDesk()
    desk.vendor.fail_next(Given(body={"issues": []}))
    assert await listed(desk, 'a" OR "b\\') == {}
    assert desk.vendor.requests[-1].body["jql"] == (
        'project = "PAY" AND status in ("a\\" OR \\"b\\\\") ORDER BY created ASC'
    )


@pytest.mark.asyncio
async def test_a_page_that_does_not_say_that_it_is_the_last_is_it_without_a_token() -> None:
    desk = JiraDesk()
    for last in ({"nextPageToken": None}, {}, {"isLast": True, "nextPageToken": "x"}):
        desk.vendor.fail_next(Given(body={"issues": [], **last}))
        assert await listed(desk) == {}
    desk.vendor.fail_next(Given(body={"issues": [], "nextPageToken": "at-0"}))
    desk.put(1)
    assert list(await listed(desk)) == ["10001"]


@pytest.mark.asyncio
async def test_an_account_that_is_not_taken_is_no_empty_list() -> None:
    desk = JiraDesk()
    headers = {"X-Seraph-LoginReason": "AUTHENTICATED_FAILED"}
    desk.vendor.fail_next(Given(body={"issues": [], "isLast": True}, headers=headers))
    with pytest.raises(TrackerError) as caught:
        await listed(desk)
    assert caught.value.failure.status == 401


@pytest.mark.asyncio
async def test_an_issue_that_jira_cannot_show_now_is_not_gone() -> None:
    desk = JiraDesk()
    errors = [{"id": "10001", "errorMessage": "try again"}, {"errorMessage": None}]
    desk.vendor.fail_next(Given(body={"issues": [], "issueErrors": errors}))
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_ids(["10001", "10002"])
    assert caught.value.culprits == {"10001"}
    assert "could not show 2 issues: try again" in caught.value.failure.message


@pytest.mark.asyncio
async def test_a_project_that_got_another_key_is_the_same_project() -> None:
    desk = JiraDesk()
    issue_id = desk.put(1, extra={"project": {"id": PROJECT_ID, "key": "PAYMENTS"}})
    desk.put_out_of_scope(2)
    for _ in range(2):
        found = await desk.tracker.fetch_issues_by_ids(["10001", "10002"])
        assert [issue.id for issue in found] == [issue_id]
    asked = [asked.path for asked in desk.vendor.requests]
    assert asked.count(f"{API}/project/{PROJECT}") == 1, "asked for once, and only where keys differ"


@pytest.mark.asyncio
async def test_a_move_that_no_transition_makes_is_refused_with_those_there_are() -> None:
    desk = JiraDesk()
    issue_id = desk.put(1)
    ways = [
        {"id": "7", "to": status("Done"), "isAvailable": False},
        {"id": "8", "to": status("Backlog")},
        {"id": "9"},
        None,
    ]
    desk.vendor.fail_next(Given(body={"transitions": ways}), when="transitions")
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue(issue_id, "Done")
    assert "cannot be moved from 'To Do' to 'Done'" in caught.value.failure.message
    assert caught.value.failure.hint == "from there it can be moved to: Backlog"
    desk.vendor.fail_next(Given(body={}), when="transitions")
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.move_issue(issue_id, "Done")
    assert caught.value.failure.hint == "it cannot be moved from there"
    assert desk.vendor.writes() == []


@pytest.mark.asyncio
async def test_a_transition_that_asks_for_nothing_is_preferred() -> None:
    desk = JiraDesk()
    issue_id = desk.put(1)
    ways = [
        {"id": "1", "to": status("Done"), "hasScreen": True},
        {"id": "31", "to": status("Done"), "hasScreen": False},
    ]
    desk.vendor.fail_next(Given(body={"transitions": ways}), when="transitions")
    assert await desk.tracker.move_issue(issue_id, "Done") == "Done"
    assert desk.vendor.writes()[0].body == {"transition": {"id": "31"}}


@pytest.mark.asyncio
async def test_the_marker_is_not_seen_by_people() -> None:
    desk = JiraDesk()
    issue_id = desk.put(1)
    name = await desk.tracker.put_comment(issue_id, "<!-- symphony:x -->\nhello", key="k", comment_id=None)
    assert markdown_of(desk.vendor.records[1].comments[name]["body"]) == "hello"
    (comment,) = await desk.tracker.list_comments(issue_id)
    assert comment.body == "<!-- symphony:x -->\nhello"
    await desk.tracker.put_comment(issue_id, "superseded", key="k", comment_id=name)
    (comment,) = await desk.tracker.list_comments(issue_id)
    assert comment.body == "superseded", "the marker is gone with the text"
    assert desk.vendor.requests[-2].query == (("notifyUsers", "false"),)


@pytest.mark.asyncio
async def test_only_comments_of_ours_are_asked_for_their_properties() -> None:
    desk = JiraPlainDesk()
    issue_id = desk.put(1)
    for number in range(5):
        desk.comment(1, f"talk {number}")
    desk.comment(1, "by hand", mine=True)
    desk.comment(1, "<!-- symphony:x -->\nhello", mine=True)
    comments = await desk.tracker.list_comments(issue_id)
    assert [comment.body for comment in comments if comment.mine] == ["by hand", "<!-- symphony:x -->\nhello"]
    assert len([asked for asked in desk.vendor.requests if "/properties/" in asked.path]) == 2


@pytest.mark.asyncio
async def test_comments_that_we_may_not_see_do_not_matter() -> None:
    desk = JiraDesk()
    issue_id = desk.put(1)
    desk.comment(1, "hello")
    await desk.tracker.list_comments(issue_id)
    (record,) = desk.vendor.records[1].comments.values()
    page = {"startAt": 0, "maxResults": 100, "total": 3, "comments": [record, None, {"id": None}]}
    desk.vendor.fail_next(Given(body={**page, "total": 4}))
    desk.vendor.fail_next(Given(body={**page, "startAt": 3, "comments": []}))
    assert [comment.body for comment in await desk.tracker.list_comments(issue_id)] == ["hello"]


@pytest.mark.asyncio
async def test_answers_of_another_shape_are_failures() -> None:
    desk = JiraDesk()
    issue_id = desk.put(1)
    desk.vendor.fail_next(Given(body={"displayName": "x"}))
    with pytest.raises(TrackerError):
        await desk.tracker.list_comments(issue_id)
    await desk.tracker.list_comments(issue_id)
    bodies: tuple[Any, ...] = ({"comments": []}, {"total": 1}, [])
    for body in bodies:
        desk.vendor.fail_next(Given(body=body))
        with pytest.raises(TrackerError):
            await desk.tracker.list_comments(issue_id)
    desk.vendor.fail_next(Given(status=201, body={}))
    with pytest.raises(TrackerError):
        await desk.tracker.put_comment(issue_id, "x", key="k", comment_id=None)
    for broken in ("fields", "key", "id"):
        desk.vendor.fail_next(
            Given(body={"issues": [{"id": "10001", "key": "PAY-1", "fields": {}, broken: None}]})
        )
        with pytest.raises(TrackerError):
            await desk.tracker.fetch_issues_by_ids(["10001"])


@pytest.mark.asyncio
async def test_what_is_no_number_is_asked_of_nobody() -> None:
    desk = JiraDesk()
    for name in ("0", "PAY-1", "1/comment", "-1"):
        with pytest.raises(TrackerError):
            await desk.tracker.list_comments(name)
        with pytest.raises(TrackerError):
            await desk.tracker.move_issue(name, "Done")
    assert {asked.path for asked in desk.vendor.requests} == {f"{API}/myself"}


@pytest.mark.asyncio
async def test_the_scope_of_the_tool_is_kept() -> None:
    desk = JiraDesk()
    desk.put(1)
    (issue,) = (await listed(desk)).values()
    for scope, path, allowed in (
        ("token", f"{API}/myself", True),
        ("token", "/rest/api/2/myself", False),
        ("token", "/rest/agile/1.0/board", False),
        ("project", f"{API}/issue/PAY-2/comment", True),
        ("project", f"{API}/issue/pay-2", True),
        ("project", f"{API}/issue/10001", True),
        ("project", f"{API}/issue/10002", False),
        ("project", f"{API}/issue/PAYX-2", False),
        ("project", f"{API}/issue/PAY-2x", False),
        ("project", f"{API}/project/PAY/statuses", True),
        ("project", f"{API}/search/PAY-2", False),
        ("project", f"{API}/search/jql", False),
        ("project", f"{API}/issue", False),
        ("issue", f"{API}/issue/PAY-1/transitions", True),
        ("issue", f"{API}/issue/10001", True),
        ("issue", f"{API}/issue/PAY-12", False),
    ):
        call = {"method": "GET", "path": path}
        tracker = desk.another(scope=scope)
        asked = len(desk.vendor.requests)
        if allowed:
            desk.vendor.fail_next(Fault.FORBIDDEN)
        result = await tracker.execute_agent_tool("jira_rest", call, issue=issue)
        assert (len(desk.vendor.requests) > asked) is allowed, path
        assert not result.success


def test_the_credential_is_a_pair_and_never_shown() -> None:
    settings = TrackerSettings(
        kind="jira",
        provider={"email": "$MAIL", "project_key": "PAY"},
        active_states=("To Do",),
        terminal_states=("Done",),
    )
    environment = {"JIRA_API_TOKEN": TOKEN, "MAIL": EMAIL, "JIRA_BASE_URL": "https://team.example.test/"}
    config = JiraSettings.read(settings, environment)
    scheme, _, pair = config.access.headers["authorization"].partition(" ")
    assert (scheme, b64decode(pair)) == ("Basic", f"{EMAIL}:{TOKEN}".encode())
    assert config.access.base == "https://team.example.test"
    assert TOKEN not in repr(config)
    assert SECRET not in repr(config)


@pytest.mark.asyncio
async def test_behind_the_gateway_of_atlassian_issues_have_no_page() -> None:
    desk = JiraDesk()
    base = "https://api.atlassian.example.test/ex/jira/11223344-a1b2"
    config = desk.configure(desk.settings(base_url=base))
    assert isinstance(config, JiraSettings)
    assert config.page_of("PAY-1") is None


@pytest.mark.conformance("C-2")
@pytest.mark.parametrize(
    "provider",
    [
        {"base_url": "team.atlassian.example.test"},
        {"base_url": ""},
        {"email": "bot"},
        {"email": "a:b@example.test"},
        {"email": 7},
        {"project_key": "PAY-1"},
        {"project_key": 'PAY" OR project = "X'},
        {"scope": "world"},
    ],
)
def test_settings_that_do_not_fit_are_refused(provider: dict[str, Any]) -> None:
    with pytest.raises(TrackerConfigError) as caught:
        JiraDesk().another(**provider)
    assert all(problem.failure.hint for problem in caught.value.problems)


# --- rich text ---


@pytest.mark.parametrize(
    "text",
    [
        "one line",
        "two\nlines",
        "## Title\n\ntext with `code` and **bold** type\n\n- one\n- `two`",
        "```python\nprint(1)\n\n```",
        "````\n```\nx\n```\n````",
        "a ` b ** c",
        "- list\n\ntext\n\n```\nend\n```",
    ],
)
def test_what_we_write_is_read_as_it_was(text: str) -> None:
    assert markdown_of(document_of(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        (" \n\t", None),
        ("```\nnever closed\n/x", "```\nnever closed\n/x\n```"),
        ("```\n```", "```\n\n```"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("text\n- item\n# Title", "text\n\n- item\n\n# Title"),
        ("* a\n* b", "- a\n- b"),
        ("#no title", "#no title"),
    ],
)
def test_what_is_written_otherwise_means_the_same(text: str, expected: str | None) -> None:
    assert markdown_of(document_of(text)) == expected


def block(kind: str, *content: Any, **attributes: Any) -> dict[str, Any]:
    return {"type": kind, "content": list(content), "attrs": attributes}


def words(text: str, *marks: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, "marks": list(marks)}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, None),
        (7, None),
        ({}, None),
        ("plain", "plain"),
        ([], None),
        (block("orderedList", block("listItem", block("paragraph", words("a"))), block("x")), "1. a\n2. "),
        (
            block(
                "bulletList",
                block("listItem", block("paragraph", words("a")), block("bulletList", words("b"))),
            ),
            "- a\n  - b",
        ),
        (block("blockquote", block("paragraph", words("a")), block("paragraph", words("b"))), "> a\n> \n> b"),
        (
            block(
                "table",
                block("tableRow", block("tableHeader", block("paragraph", words("a"))), block("tableCell")),
            ),
            "| a |  |",
        ),
        (block("doc", block("rule"), block("panel", block("paragraph", words("careful")))), "---\n\ncareful"),
        (block("heading", words("x"), level=9), "# x"),
        (
            block(
                "paragraph", words("see "), words("here", {"type": "link", "attrs": {"href": "https://x"}})
            ),
            "see [here](https://x)",
        ),
        (
            block("paragraph", words("https://x", {"type": "link", "attrs": {"href": "https://x"}})),
            "https://x",
        ),
        (
            block(
                "paragraph",
                block("mention", text="@Ann"),
                block("emoji", shortName=":x:"),
                block("date", timestamp="1"),
            ),
            "@Ann:x:1",
        ),
        (
            block("doc", block("blockCard", url="https://x"), block("mediaSingle", block("media", id="1"))),
            "https://x",
        ),
        (block("paragraph", words("struck", {"type": "strike"}), {"type": "text", "text": 7}), "struck"),
        (block("codeBlock", words("x"), language=7), "```\nx\n```"),
        (block("unknown", block("deeper", words("kept"))), "kept"),
    ],
)
def test_any_document_becomes_text(document: Any, expected: str | None) -> None:
    assert markdown_of(document) == expected


def test_a_document_without_end_of_depth_is_cut() -> None:
    node: dict[str, Any] = block("paragraph", words("deep"))
    for _ in range(500):
        node = block("panel", node)
    assert markdown_of(block("doc", block("paragraph", words("top")), node)) == "top"
