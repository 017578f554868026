"""The pages in a real browser. With SYMPHONY_SCREENSHOTS=DIRECTORY, pictures of them are left there."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from msgspec import structs
from playwright.sync_api import Browser, Page, expect

from harness.asking import make_app
from harness.browsing import PHONE, WIDE, opened
from harness.nightly import NIGHTLY
from harness.pages import DemoOperator, demo_state, running_row, serve_app, waiting_row
from harness.project import Project, scripted
from symphony.api.access import Access
from symphony.api.all_daemons import create_all_daemons_app
from symphony.api.live import Changes
from symphony.api.sign_in import BrowserSignIn
from unit.api.test_all_daemons import FakeDaemons, facts

pytestmark = pytest.mark.slow

PATHS = {
    "board": "/",
    "issue": "/issues/WEB-131",
    "ready": "/issues/WEB-118",
    "change": "/issues/WEB-118/diff",
    "comment": "/issues/WEB-118/diff?file=0&at=n15",
    "history": "/history",
    "new": "/new",
    "confirm": "/confirm?verb=move&issue=WEB-131&issue=WEB-118",
    "skills": "/skills",
    "skill": "/skills/library/retries",
    "versions": "/skills/library/retries/diff?old=1&new=2",
    "editor": "/skills/library/retries/edit",
    "assignments": "/skills/assignments?kind=agent&target=codex",
    "proposals": "/skills/proposals",
    "proposal": "/skills/proposals/2",
    "system": "/system",
}
STILL = ("editor", "assignments", "confirm", "new", "change", "comment")
PICTURES = {f"{name}-{look}" for name in ("board", "issue") for look in ("light", "dark", "phone")} | {
    "proposal-light",
    "skills-light",
}


@pytest.fixture
def all_daemons() -> Iterator[str]:
    """The page over two daemons, of which one does not answer."""
    silent = facts("app", state=None, message="it did not answer within 2 s", hint="see whether it hangs")
    app = create_all_daemons_app(
        FakeDaemons([facts("web"), silent]), Access(sign_in=BrowserSignIn()), Changes()
    )
    with serve_app(app) as address:
        yield f"{address}/"


def _take_pictures(page: Page, name: str, size: str, scheme: str) -> None:
    """Pictures of a page, where the environment names a directory for them."""
    if directory := os.environ.get("SYMPHONY_SCREENSHOTS"):
        looks = {"light": "light", "dark": "dark"} if size == "wide" else {"phone": "light"}
        for look, colours in looks.items():
            if f"{name}-{look}" in PICTURES:
                page.emulate_media(color_scheme="dark" if colours == "dark" else "light")
                page.screenshot(path=Path(directory) / f"{name}-{look}.png")
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        ("wide", "light"),
        pytest.param("phone", "dark", marks=pytest.mark.slow),
        *([("wide", "dark"), ("phone", "light")] if NIGHTLY else []),
    ],
)
def test_every_page_is_accessible_and_fits_the_screen(
    browser: Browser, address: str, all_daemons: str, size: str, scheme: str
) -> None:
    options = {"wide": WIDE, "phone": PHONE}[size]
    judged: dict[str, Any] = {"resultTypes": ["violations"]}
    if size == "phone" and not NIGHTLY:
        judged["runOnly"] = ["color-contrast"]  # all else is the same for other colours
    with opened(browser, color_scheme=scheme, reduced_motion="reduce", **options) as page:
        for name, url in (
            {name: f"{address}{path}" for name, path in PATHS.items()} | {"all": all_daemons}
        ).items():
            page.goto(url)
            found = Axe().run(page, options=judged)["violations"]
            assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
            width = page.evaluate("() => document.documentElement.scrollWidth")
            assert width == options["viewport"]["width"]
            heights = "() => [...document.querySelectorAll('.copy')].map((each) => each.offsetHeight)"
            assert max(page.evaluate(heights), default=0) < 2 * 24, "a button is one line high"
            expect(page.locator("#live")).to_have_text("Connected" if name in STILL else "Live")
            _take_pictures(page, name, size, scheme)


def test_the_choice_of_colours_holds_from_the_first_paint_on(browser: Browser, address: str) -> None:
    with opened(browser, color_scheme="light") as page:
        page.goto(f"{address}/?q=log")
        page.get_by_role("button", name="dark").click()
        page.wait_for_url(f"{address}/?q=log")
        background = "() => getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(background) == "rgb(14, 15, 18)"


def test_the_icon_of_the_pages_is_a_picture(browser: Browser, address: str) -> None:
    with opened(browser) as page:
        page.goto(address)
        icon = page.locator("link[rel=icon]").get_attribute("href")
        decoded = (
            "async source => { const it = new Image(); it.src = source; await it.decode(); return it.width }"
        )
        assert page.evaluate(decoded, icon) > 0


def test_what_a_person_does_survives_an_update(
    browser: Browser, operator: DemoOperator, address: str
) -> None:
    with opened(browser, **WIDE) as page:
        page.goto(address)
        answer = page.get_by_label("Answer to WEB-122")
        page.get_by_text("Unblock", exact=False).first.click()
        answer.fill("Anonymise")
        state = operator.document
        first, *others = state.running
        operator.document = structs.replace(
            state,
            running=(structs.replace(first, last_message="A new word"), *others),
            blocked=state.blocked[:1],
        )
        page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.get_by_text("A new word")).to_be_visible()
        expect(page.get_by_text("5 attempts without progress", exact=False)).to_have_count(0)
        expect(answer).to_have_value("Anonymise")
        expect(answer).to_be_focused()

        page.goto(f"{address}/issues/WEB-131")
        page.locator("summary", has_text="Move").click()
        page.get_by_label("Move to").select_option("Done")
        operator.one = structs.replace(operator.one, title="A new title")
        page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.get_by_role("heading", level=1)).to_have_text("A new title")
        expect(page.get_by_label("Move to")).to_have_value("Done")


def test_the_keyboard_is_enough(browser: Browser, address: str) -> None:
    with opened(browser, **WIDE) as page:
        page.goto(address)
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        expect(page.get_by_role("link", name="WEB-122 Delete accounts after 30 days").first).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.keyboard.press("/")
        page.keyboard.type("audit/j")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}/?q=audit%2Fj")


def test_without_javascript_a_person_reads_and_acts(browser: Browser, address: str) -> None:
    with opened(browser, java_script_enabled=False, **WIDE) as page:
        page.goto(address)
        expect(page.get_by_role("heading", level=1)).to_have_text("Board")
        expect(page.get_by_text("The cursor is stable now", exact=False)).to_be_visible()
        page.get_by_role("link", name="WEB-131 Paginate the audit log").click()
        stop = page.get_by_role("button", name="Stop WEB-131")
        expect(stop).to_be_hidden()
        page.locator("summary", has_text="Stop").click()
        expect(stop).to_be_visible()


def test_a_person_comments_on_an_issue(browser: Browser, operator: DemoOperator, address: str) -> None:
    with opened(browser, **PHONE) as page:
        page.goto(f"{address}/issues/WEB-131")
        box = page.get_by_label("Comment on WEB-131")
        box.fill("Keep `limit`,\nplease.")
        operator.one = structs.replace(operator.one, title="A new title")
        page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.get_by_role("heading", level=1)).to_have_text("A new title")
        expect(box).to_have_value("Keep `limit`,\nplease.")
        page.get_by_role("button", name="Comment", exact=True).click()
        expect(page.get_by_text("so it will be")).to_be_visible()
        expect(box).to_have_value("")
    with opened(browser, java_script_enabled=False, **WIDE) as page:
        page.goto(f"{address}/issues/WEB-131")
        expect(page.get_by_label("Comment on WEB-131")).to_be_hidden()
        page.get_by_role("link", name="Write a comment").click()
        page.get_by_label("Comment on WEB-131").fill("Thanks")
        page.get_by_role("button", name="Comment", exact=True).click()
        expect(page.get_by_text("so it will be")).to_be_visible()
    said = [("comment", "WEB-131", "Keep `limit`,\nplease."), ("comment", "WEB-131", "Thanks")]
    assert operator.orders == said


def test_what_is_typed_is_there_again_until_it_is_sent(
    browser: Browser, operator: DemoOperator, address: str
) -> None:
    with opened(browser) as page:
        page.goto(f"{address}/issues/WEB-131")
        with page.expect_response("**/actions/keep-text"):
            page.get_by_label("Comment on WEB-131").fill("Half a thought")
        page.goto(f"{address}/skills/library/retries/edit")
        with page.expect_response("**/actions/keep-text"):
            page.get_by_label("Reason").fill("Because")
    with opened(browser) as page:  # as after a sign-out or a restart: nothing is left in the browser
        page.goto(f"{address}/issues/WEB-131")
        expect(page.get_by_label("Comment on WEB-131")).to_have_value("Half a thought")
        page.get_by_role("button", name="Comment", exact=True).click()
        expect(page.locator(".told.is-done")).to_be_visible()
        page.goto(f"{address}/skills/library/retries/edit")
        expect(page.get_by_label("Reason")).to_have_value("Because")
        page.goto(f"{address}/issues/WEB-131")
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.get_by_label("Comment on WEB-131")).to_have_value("")
    assert [text for verb, _, text in operator.orders if verb == "comment"] == ["Half a thought"]


def test_what_a_former_sign_in_left_is_offered_to_whoever_typed_it(
    browser: Browser, operator: DemoOperator
) -> None:
    """After a sign-out, as after a restart, no one can tell whose browser it was."""
    sign_in = BrowserSignIn()
    with serve_app(make_app(operator, Access.tcp("127.0.0.1", "token", sign_in))) as address:

        @contextmanager
        def signed_in() -> Iterator[Page]:
            with opened(browser, expected="favicon", **PHONE) as page:
                page.goto(f"{address}/sign-in?link={sign_in.new_link()}&next=/issues/WEB-131")
                page.wait_for_url("**/issues/WEB-131")
                yield page

        with signed_in() as page, page.expect_response("**/actions/keep-text"):
            page.get_by_label("Comment on WEB-131").fill("Half a <b>thought</b>")
        sign_in.sign_out()
        with signed_in() as other, signed_in() as author:
            for page in (other, author):
                expect(page.locator(".offer")).to_contain_text("Half a <b>thought</b>")
                expect(page.get_by_label("Comment on WEB-131")).to_have_value("")
                assert Axe().run(page)["violations"] == []
            other.get_by_label("Comment on WEB-131").fill("Of another person")
            other.get_by_role("button", name="Comment", exact=True).click()
            expect(other.locator(".told.is-done")).to_be_visible()
            with author.expect_response("**/actions/keep-text"):
                author.get_by_role("button", name="Use it").click()
            expect(author.get_by_label("Comment on WEB-131")).to_have_value("Half a <b>thought</b>")
            expect(author.locator(".offer")).to_have_count(0)
            other.reload()
            expect(other.locator("#live")).to_have_text("Live")
            expect(other.locator(".offer")).to_have_count(0)
            author.get_by_role("button", name="Comment", exact=True).click()
            expect(author.locator(".told.is-done")).to_be_visible()
        sent = [text for verb, _, text in operator.orders if verb == "comment"]
        assert sent == ["Of another person", "Half a <b>thought</b>"]

        with signed_in() as page, page.expect_response("**/actions/keep-text"):
            page.get_by_label("Comment on WEB-131").fill("Nothing")
        sign_in.sign_out()
        with signed_in() as page:
            with page.expect_response(lambda answer: (answer.request.post_data or "").endswith("text=")):
                page.get_by_role("button", name="Drop it").click()
            page.reload()
            expect(page.locator("#live")).to_have_text("Live")
            expect(page.locator(".offer")).to_have_count(0)
            expect(page.get_by_label("Comment on WEB-131")).to_have_value("")


@pytest.mark.parametrize("scripts", [True, False])
def test_several_issues_are_stopped_with_one_confirmation(
    browser: Browser, operator: DemoOperator, address: str, *, scripts: bool
) -> None:
    with opened(browser, java_script_enabled=scripts, **WIDE) as page:
        page.goto(f"{address}/?q=web")
        stop = page.get_by_role("button", name="Stop…")
        if not scripts:  # else the page would reload itself and forget what is selected
            expect(page.get_by_label("Select WEB-131")).to_be_hidden()
            page.get_by_role("link", name="Select several").click()
        expect(stop).to_be_hidden()
        for identifier in ("WEB-131", "WEB-128", "WEB-118"):
            page.get_by_label(f"Select {identifier}").check()
        page.get_by_label("Select WEB-118").uncheck()
        if scripts:
            operator.document = structs.replace(operator.document, paused=True)
            page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
            expect(page.get_by_role("button", name="Resume")).to_be_visible()
        stop.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Stop 2 issues?")
        expect(page.get_by_role("listitem")).to_have_count(2)
        assert operator.orders == []
        page.get_by_role("button", name="Stop 2 issues").click()
        expect(page.get_by_text("stopped 1 of 2 issues")).to_be_visible()
        expect(page.locator(".told")).to_contain_text("WEB-128: the daemon does not know this issue any more")
        page.get_by_role("button", name="Undo: retry").click()
        expect(page.get_by_text("retried 1 of 1 issue")).to_be_visible()
    assert operator.orders == [("stop", "WEB-131", None), ("retry", "WEB-131", None)]


def test_the_tab_says_how_many_issues_need_a_person(
    browser: Browser, operator: DemoOperator, address: str
) -> None:
    with opened(browser, **WIDE) as page:
        page.goto(address)
        expect(page).to_have_title("(3) Board · Symphony")
        counts = structs.replace(operator.document.counts, blocked=0, ready=0)
        operator.document = structs.replace(operator.document, blocked=(), ready=(), counts=counts)
        page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        expect(page).to_have_title("Board · Symphony")
        expect(page.locator("link[rel=icon]")).to_have_attribute("href", "/assets/icon-0.svg")


def test_a_person_edits_a_skill_and_decides_on_a_proposal(browser: Browser, address: str) -> None:
    with opened(browser, **WIDE) as page:
        page.goto(f"{address}/skills")
        page.get_by_role("link", name="retries").click()
        page.get_by_role("link", name="Edit").click()
        file, preview = page.get_by_label("SKILL.md"), page.locator("#preview")
        text = file.input_value()
        file.fill(text.replace("description:", "describtion:"))
        expect(preview).to_contain_text("missing description")
        expect(file).to_be_focused()
        file.fill(f"{text}\nStop after a minute.\n")
        expect(preview).to_contain_text("Stop after a minute.")
        expect(preview).to_contain_text("It can be saved.")
        page.get_by_label("Reason").fill("nobody waits longer")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("retries is at version 3")).to_be_visible()
        page.get_by_role("link", name="what changed in version 3").click()
        expect(page.locator(".diff")).to_contain_text("+Stop after a minute.")

        page.goto(f"{address}/skills/proposals/1")  # of version 2
        expect(page.get_by_text("the skill is at version 3 now")).to_be_visible()
        expect(page.get_by_role("button", name="Accept")).to_have_count(0)
        page.goto(f"{address}/skills/proposals")
        expect(page.get_by_role("row", name="cursor-paging")).to_contain_text("recommended")
        page.get_by_role("link", name="cursor-paging").click()
        table = page.get_by_role("region", name="Past issues")
        expect(table).to_contain_text("Recommended")
        expect(table.get_by_role("row")).to_have_count(4)
        better = table.get_by_role("row", name="WEB-118")
        expect(better.get_by_role("cell")).to_contain_text(["better", "failed", "passed"])
        page.get_by_role("button", name="Accept").click()
        expect(page.get_by_text("cursor-paging is at version 1")).to_be_visible()


def test_without_javascript_a_stale_edit_loses_no_text(browser: Browser, address: str) -> None:
    with opened(browser, java_script_enabled=False, **WIDE) as page, opened(browser, **WIDE) as other:
        for each, text in ((page, "Mine."), (other, "Theirs.")):
            each.goto(f"{address}/skills/library/retries/edit")
            each.get_by_label("SKILL.md").fill(f"---\nname: retries\ndescription: d\n---\n{text}\n")
        page.get_by_role("button", name="Check").click()
        expect(page.locator("#preview")).to_contain_text("Mine.")
        other.get_by_role("button", name="Save").click()
        other.wait_for_url("**/skills/library/retries?notice=*")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_label("SKILL.md")).to_have_value(re.compile("Mine."))
        expect(page.locator(".diff.alone")).to_contain_text("-Theirs.")
        page.get_by_role("button", name="Save over version 3").click()
        expect(page.get_by_text("retries is at version 4")).to_be_visible()


def test_feedback_is_given_by_the_keyboard_or_skipped_for_good(browser: Browser, address: str) -> None:
    with opened(browser, **WIDE) as page, opened(browser, java_script_enabled=False, **WIDE) as other:
        for each in (page, other):
            each.goto(address)
            each.get_by_role("link", name="Give feedback").click()
            expect(each.get_by_role("heading", name="How was the work?")).to_be_visible()
        other.get_by_role("button", name="Skip").click()
        expect(other.get_by_role("heading", name="How was the work?")).to_have_count(0)
        other.goto(f"{address}/issues/WEB-118")
        expect(other.get_by_role("heading", name="How was the work?")).to_have_count(0)

        page.get_by_label("1 star").focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        expect(page.get_by_label("4 stars")).to_be_checked()
        page.get_by_label("Comment", exact=True).fill("Stream the file")
        page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.get_by_label("4 stars")).to_be_checked()
        page.get_by_role("button", name="Send feedback").click()
        expect(page.get_by_text("a learning run follows", exact=False)).to_be_visible()
        expect(page.get_by_role("heading", name="How was the work?")).to_have_count(0)
        expect(page.get_by_text("Stream the file")).to_be_visible()


def test_many_issues(browser: Browser, operator: DemoOperator, address: str) -> None:
    operator.document = structs.replace(
        demo_state(),
        running=tuple(running_row(number, "Title", "Words") for number in range(1_000, 1_200)),
        waiting=tuple(
            waiting_row(number, "Title", "no_slot", "no slot", number - 9_999)
            for number in range(10_000, 20_000)
        ),
    )
    with opened(browser, **WIDE) as page:
        page.goto(address)
        expect(page.get_by_role("link", name="9,950 more")).to_be_visible()
        assert page.locator("tr").count() < 300


# --- a real daemon ---

ASKS: list[dict[str, Any]] = [
    {"ask_input": "Which colour, red or blue?"},
    {"wait_for": "go"},
    {"commit": "Paint it"},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]


def test_a_person_answers_on_the_page_and_watches_the_agent_go_on(browser: Browser, tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow(command=scripted("--threads", str(tmp_path / "threads")), polling={"interval_ms": 1_000})
    project.issue("SYM-1", ASKS, title="Paint <b>it</b>")
    with project.daemon("--port", "0") as daemon, opened(browser, fixed_time=False, **WIDE) as page:
        daemon.wait_for("issue_blocked", issue_identifier="SYM-1")
        page.goto(project.symphony("open", "--print").stdout.strip())
        expect(page.get_by_role("heading", level=1)).to_have_text("Board")
        expect(page.get_by_text("Which colour, red or blue?", exact=True)).to_be_visible()
        expect(page.get_by_role("status")).to_have_text("Live")
        page.get_by_label("Answer to SYM-1").fill("Blue, please")
        page.get_by_role("button", name="Send answer").click()
        daemon.wait_for("thread_resumed")
        # From here on the page is not loaded again: it follows the daemon.
        page.evaluate("() => { document.body.dataset.same = 'yes'; }")
        expect(page.locator("#running + table")).to_contain_text("Paint <b>it</b>")
        (project.workspaces / "SYM-1" / "go").touch()
        expect(page.get_by_text("ready for review")).to_be_visible()
        assert page.locator("body").get_attribute("data-same") == "yes"
        page.get_by_role("link", name="SYM-1 Paint <b>it</b>").first.click()
        page.get_by_role("link", name="What it changes").click()
        expect(page.get_by_role("region", name="go")).to_contain_text("it is empty")

        page.get_by_role("link", name="SYM-1").click()
        page.get_by_label("2 stars").check(force=True)  # the star is drawn by its label
        page.get_by_label("Let skills learn from it").uncheck()
        page.get_by_role("button", name="Send feedback").click()
        expect(page.get_by_text("the feedback is stored", exact=False)).to_be_visible()
        page.get_by_role("link", name="Skills", exact=True).click()
        page.get_by_role("link", name="Write the first one").click()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("my-skill is at version 1")).to_be_visible()


def test_a_page_follows_the_scheduler_within_a_second_and_a_half(browser: Browser, tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow()
    with project.daemon("--port", "0") as daemon, opened(browser, fixed_time=False, **WIDE) as page:
        daemon.wait_for("serving")
        page.goto(project.symphony("open", "--print").stdout.strip())
        expect(page.get_by_role("status")).to_have_text("Live")
        paused = page.get_by_text("Paused: nothing new starts")
        late = 0
        for verb, count in (("pause", 1), ("resume", 0)) * 3:  # a busy machine may be late, not each time
            assert project.symphony(verb).returncode == 0
            try:
                expect(paused).to_have_count(count, timeout=1_500)
            except AssertionError:
                late += 1
                expect(paused).to_have_count(count)
        assert late < 6


@pytest.mark.parametrize("scripts", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_person_comments_on_a_line_and_decides(
    browser: Browser, operator: DemoOperator, address: str, *, scripts: bool
) -> None:
    with opened(browser, java_script_enabled=scripts, **PHONE) as page:
        page.goto(address)
        page.get_by_role("link", name="Review WEB-118").click()
        page.get_by_role("link", name="Comment on line 17 before the change").click()
        page.get_by_role("textbox", name="Comment on line 17 before the change").fill("Keep the type")
        page.get_by_role("button", name="Keep the comment").click()
        page.wait_for_url("**/diff?file=0#f0o17")
        assert operator.edits[-1][2].add is not None
        page.get_by_role("link", name="All of the change").click()
        page.get_by_label("Comment on the whole change").fill("Almost")
        page.get_by_role("button", name="Send back").click()
        expect(page.get_by_text("so it will be")).to_be_visible()
        page.goto(f"{address}/issues/WEB-118/diff")
        page.locator("summary", has_text="Approve").click()
        page.get_by_role("button", name="Approve c0ffee5ac0ff").click()
        expect(page.get_by_text("so it will be")).to_be_visible()
    assert [given.decision for _, _, given, _ in operator.decisions] == ["send_back", "approve"]
    assert operator.decisions[0][2].message == "Almost"
