"""The pages while a person looks: a transcript that grows, a daemon that is gone and back, the keyboard."""

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from axe_core_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Browser, Page, expect

from harness.browsing import PHONE, WIDE, opened
from harness.pages import DemoOperator
from harness.project import Project, scripted
from symphony.journal.transcripts import CommandEntry, MessageEntry, TranscriptEntry

pytestmark = pytest.mark.slow

ISSUE = "/issues/WEB-131"
REFRESH = "() => document.dispatchEvent(new Event('visibilitychange'))"
_BUSY_MS = 30_000
"""The limit for what takes at most five seconds on a machine with nothing else to do."""
VIOLATIONS = {"resultTypes": ["violations"]}
TOP_OF = "id => document.getElementById(id).getBoundingClientRect().top"


class Transcript:
    """A file to which entries are added."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.count = 0

    def say(self, *texts: str) -> None:
        self.add(*(MessageEntry(seq=0, at=at(0), turn=1, text=text) for text in texts))

    def add(self, *entries: TranscriptEntry) -> None:
        with self.file.open("ab") as file:
            for entry in entries:
                self.count += 1
                placed = msgspec.structs.replace(entry, seq=self.count, at=at(self.count))
                file.write(msgspec.json.encode(placed) + b"\n")


def at(second: int) -> str:
    return f"2026-03-04T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"


@pytest.fixture
def transcript(operator: DemoOperator, tmp_path: Path) -> Transcript:
    (tmp_path / "transcripts").mkdir()
    operator.transcript_file = tmp_path / "transcripts" / "run-131-2.jsonl"
    return Transcript(operator.transcript_file)


def is_newest_on_screen(page: Page) -> bool:
    last = page.locator("#entries > li").last.bounding_box()
    size = page.viewport_size
    assert last is not None
    assert size is not None
    return 0 < last["y"] + last["height"] <= size["height"]


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_the_page_follows_at_the_newest_line_and_stays_elsewhere(
    browser: Browser, address: str, transcript: Transcript, size: dict[str, Any]
) -> None:
    transcript.say(*(f"Step {number}" for number in range(1, 251)))
    with opened(browser, **size) as page:
        page.goto(f"{address}{ISSUE}")
        entries, newer = page.locator("#entries > li"), page.locator("#newer")
        expect(page.locator("#live")).to_have_text("Live")
        expect(entries).to_have_count(200)
        page.get_by_role("link", name="Newest entry").click()
        expect(entries.last).to_be_in_viewport()

        transcript.say(*(f"Word {number}" for number in range(30)))
        page.evaluate(REFRESH)
        expect(page.get_by_text("Word 29", exact=True)).to_be_in_viewport()
        expect(entries).to_have_count(230)  # those that were shown stay
        expect(newer).to_be_hidden()
        assert is_newest_on_screen(page)

        page.evaluate("() => scrollBy(0, -600)")
        expect(entries.last).not_to_be_in_viewport()
        place = page.evaluate(TOP_OF, "e250")
        transcript.say("Away 1", "Away 2")
        page.evaluate(REFRESH)
        expect(newer).to_have_text("2 new entries")
        assert page.evaluate(TOP_OF, "e250") == place
        transcript.say("Away 3")
        page.evaluate(REFRESH)
        expect(newer).to_have_text("3 new entries")
        newer.click()
        expect(page.get_by_text("Away 3", exact=True)).to_be_in_viewport()
        expect(newer).to_be_hidden()


def test_work_that_ends_stays_in_its_place_and_open(
    browser: Browser, address: str, transcript: Transcript
) -> None:
    run = CommandEntry(
        seq=0, at=at(0), turn=1, command="make test", status="started", exit_code=None, output=""
    )
    transcript.add(run)
    transcript.say("Meanwhile")
    with opened(browser, **WIDE) as page:
        page.goto(f"{address}{ISSUE}")
        command = page.locator("#e1")
        command.locator("summary").first.click()
        expect(command).to_contain_text("started")
        output = "\n".join(f"line {number}" for number in range(40))
        transcript.add(msgspec.structs.replace(run, status="failed", exit_code=2, output=output, replaces=1))
        page.evaluate(REFRESH)
        expect(command.locator(".result")).to_have_text("exit 2")
        expect(command.locator("pre").nth(1)).to_be_visible()
        shown = command.locator("pre").nth(1).inner_text().splitlines()
        assert shown == [f"line {number}" for number in range(28, 40)]
        command.get_by_text("All of the output that is kept").click()
        expect(command.locator("pre").nth(2)).to_contain_text("line 0")
        expect(page.locator("#entries > li").first).to_have_id("e1")
        assert Axe().run(page, options=VIOLATIONS)["violations"] == []


def test_a_command_is_copied(browser: Browser, address: str) -> None:
    with opened(browser, permissions=["clipboard-read", "clipboard-write"], **WIDE) as page:
        page.goto(f"{address}{ISSUE}")
        page.locator("#e6 summary").first.click()
        page.locator("#e6 .copied").first.get_by_role("button").click()
        expect(page.locator("#e6 .copied button").first).to_have_text("Copied")
        assert page.evaluate("() => navigator.clipboard.readText()") == "pytest -q tests/audit"


def test_a_transcript_of_ten_thousand_entries_is_read_upwards_and_searched(
    browser: Browser, address: str, transcript: Transcript
) -> None:
    transcript.say(*(f"Step {number} <b>{'needle' if number == 77 else ''}" for number in range(1, 10_001)))
    with opened(browser, **WIDE) as page:
        page.goto(f"{address}{ISSUE}")
        entries, earlier = page.locator("#entries > li"), page.get_by_role("link", name="Earlier entries")
        expect(entries).to_have_count(200)
        for pages in range(2, 51):
            first = entries.first.get_attribute("id")
            before = page.evaluate(TOP_OF, first)
            earlier.evaluate("link => link.click()")
            expect(entries).to_have_count(200 * pages)
            assert abs(page.evaluate(TOP_OF, first) - before) <= 1, "what is read does not move"
        expect(earlier).to_have_count(0)
        expect(entries.first).to_contain_text("Step 1 <b>")
        transcript.say("The last word")
        page.evaluate(REFRESH)
        expect(entries).to_have_count(10_001)

        page.keyboard.press("/")
        page.keyboard.type("NEEDLE")
        page.keyboard.press("Enter")
        expect(entries).to_have_count(1)
        page.get_by_role("link", name="Show in its place").click()
        expect(page.locator("#e77")).to_be_in_viewport()


def test_without_javascript_a_transcript_is_read_by_links(
    browser: Browser, address: str, transcript: Transcript
) -> None:
    transcript.say(*(f"Step {number}" for number in range(1, 501)))
    with opened(browser, java_script_enabled=False, **WIDE) as page:
        page.goto(f"{address}{ISSUE}")
        entries = page.locator("#entries > li")
        expect(entries.last).to_contain_text("Step 500")
        for first, last in ((101, 300), (1, 100)):
            page.get_by_role("link", name="Earlier entries").click()
            expect(entries.first).to_contain_text(f"Step {first}")
            expect(entries.last).to_contain_text(f"Step {last}")
        expect(page.get_by_role("link", name="Earlier entries")).to_have_count(0)
        page.get_by_role("link", name="Later entries").click()
        expect(entries.first).to_contain_text("Step 101")
        page.get_by_role("link", name="Newest entries").click()
        expect(entries.last).to_be_in_viewport()
        page.get_by_label("Search in the transcript").fill("step 3")
        page.keyboard.press("Enter")
        expect(entries).to_have_count(111)  # 3, 30 to 39, 300 to 399
        page.get_by_role("link", name="Keys").click()
        expect(page.get_by_role("heading", name="Keys")).to_be_visible()


def test_keys_lead_to_what_a_card_offers_and_decide_nothing(
    browser: Browser, operator: DemoOperator, address: str
) -> None:
    with opened(browser, **WIDE) as page:
        page.goto(f"{address}/issues/WEB-118/diff")
        page.keyboard.press("a")
        expect(page.get_by_role("button", name="Approve c0ffee5ac0ff")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("s")
        expect(page.get_by_role("button", name="Send back")).to_be_focused()
        text = page.get_by_label("Comment on the whole change")
        text.fill("")
        text.press_sequentially("das?/jk")
        expect(text).to_have_value("das?/jk")
        expect(page.get_by_role("dialog")).to_be_hidden()
        assert page.url == f"{address}/issues/WEB-118/diff", "nothing was sent"
        assert operator.decisions == []
        page.goto(f"{address}/issues/WEB-118")
        page.keyboard.press("Escape")
        page.evaluate("() => document.activeElement.blur()")
        page.keyboard.press("Control+d")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.get_by_label("Use these keys in this browser").uncheck()
        page.keyboard.press("Escape")
        page.keyboard.press("d")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.get_by_role("link", name="Keys").click()
        page.get_by_label("Use these keys in this browser").check()
        page.get_by_role("button", name="Close").click()
        page.keyboard.press("d")
        page.wait_for_url(f"{address}/issues/WEB-118/diff")


def test_a_page_on_which_a_person_writes_tells_too_that_the_sign_in_is_lost(
    browser: Browser, address: str
) -> None:
    with opened(browser, expected="Failed to load resource", **WIDE) as page:
        page.route("**/api/v1/events", lambda route: route.fulfill(status=503))  # too many streams
        page.goto(f"{address}/skills/library/retries/edit")
        live, text = page.locator("#live"), page.get_by_label("SKILL.md")
        text.fill("What I wrote")
        expect(live).to_have_text("Checked every 4 s")
        page.route("**/api/v1/state*", lambda route: route.fulfill(status=401))
        expect(live).to_contain_text("Signed out since", timeout=_BUSY_MS)
        page.get_by_label("Reason").press("Enter")
        expect(text).to_have_value("What I wrote")
        page.unroute("**/api/v1/state*")
        expect(live).to_have_text("Checked every 4 s", timeout=_BUSY_MS)
        expect(text).to_have_value("What I wrote")


def test_a_person_watches_what_the_agent_changes(browser: Browser, tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow(command=scripted("--threads", str(tmp_path / "threads")), polling={"interval_ms": 1_000})
    work = [
        *({"write": "one.txt", "text": "1\n2\n"}, {"wait_for": "go"}),
        *({"write": "two.txt", "text": "<b>\n"}, {"say": "I have written two files"}, {"wait_for": "end"}),
    ]
    project.issue("SYM-1", work)
    with project.daemon("--port", "0") as daemon, opened(browser, fixed_time=False, **WIDE) as page:
        daemon.wait_for("turn_started")
        page.goto(project.symphony("open", "--print").stdout.strip())
        page.get_by_role("link", name="SYM-1").first.click()
        changed = page.get_by_role("region", name="Changed so far")
        expect(changed.get_by_role("listitem")).to_have_text(["one.txt +2 \N{MINUS SIGN}0"], timeout=20_000)
        (project.workspaces / "SYM-1" / "go").touch()
        expect(changed.get_by_role("listitem")).to_contain_text(["one.txt", "two.txt"], timeout=20_000)
        changed.get_by_role("link", name="The lines").click()
        expect(page.locator(".diff").last).to_contain_text("+<b>")
        assert Axe().run(page, options=VIOLATIONS)["violations"] == []
        (project.workspaces / "SYM-1" / "end").touch()


def test_the_page_says_soon_that_the_daemon_is_gone_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow(command=scripted("--threads", str(tmp_path / "threads")))
    project.issue("SYM-1", [{"ask_input": "Which colour?"}])
    grey = "() => document.documentElement.classList.contains('stale')"
    with opened(browser, fixed_time=False, expected="Failed to load resource", **WIDE) as page:
        live, answer = page.locator("#live"), page.get_by_label("Answer to SYM-1")
        with project.daemon("--port", "0") as daemon:
            port = str(daemon.wait_for("http_serving")["port"])
            daemon.wait_for("issue_blocked")
            page.goto(project.symphony("open", "--print").stdout.strip())
            expect(live).to_have_text("Live")
            answer.fill("Blue, and a lot more")
            daemon.signal(signal.SIGSTOP)  # the connection stays open
            expect(live).to_contain_text("Not connected since", timeout=_BUSY_MS)
            assert page.evaluate(grey)
            assert Axe().run(page, options=VIOLATIONS)["violations"] == []
            send = page.get_by_role("button", name="Send answer")
            expect(send).to_be_disabled()
            send.click(force=True)
            expect(answer).to_have_value("Blue, and a lot more")
            answer.fill("Blue, and a lot more, typed meanwhile")
            with page.expect_response("**/actions/keep-text", timeout=20_000):
                daemon.signal(signal.SIGCONT)
            expect(live).to_have_text("Live", timeout=20_000)
            assert not page.evaluate(grey)
            expect(send).to_be_enabled()
            daemon.signal(signal.SIGKILL)
            expect(live).to_contain_text("Not connected since", timeout=_BUSY_MS)
            answer.fill("Blue, typed while it was gone")
        with project.daemon("--port", port) as daemon:
            daemon.wait_for("serving")
            expect(live).to_contain_text("Signed out", timeout=20_000)
            expect(live).to_contain_text("Copy what you typed since then")
            assert page.evaluate(grey)
            expect(answer).to_have_value("Blue, typed while it was gone")
            live.get_by_role("link", name="Sign in").click()
            expect(page.get_by_text("This address has ended", exact=False)).to_be_visible()
            page.goto(project.symphony("open", "--print").stdout.strip())
            expect(live).to_have_text("Live")
            expect(page.locator(".offer")).to_contain_text("Blue, and a lot more, typed meanwhile")
