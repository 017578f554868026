"""A lead's morning: an issue is answered, one sent back to a real Codex, two approved, and one filed."""

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from harness.browsing import PHONE, WIDE, opened
from harness.project import Daemon, Project, scripted, until
from harness.real import require_codex
from kit import model_server as models
from kit.codex_home import codex_home

pytestmark = [pytest.mark.slow, pytest.mark.real_codex]

REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}
SLIPS = ("first line\nsecond line\nthird line\n", "Write three lines")
BETTER = ("First line\nsecond line\nThe end\n", "Write them as the review says")
MOVED = (models.tool("board_move", {"state": "Human Review"}), models.say("Three lines are written."))


@pytest.fixture
def project() -> Iterator[Project]:
    """Outside the temp directory, which the sandbox of Codex leaves writable."""
    place = Path(tempfile.mkdtemp(prefix="symphony-morning-", dir="/var/tmp"))
    yield Project(root=place).create()
    shutil.rmtree(place, ignore_errors=True)


def work(name: str) -> list[dict[str, Any]]:
    return [{"write": name, "text": f"{name}\n"}, {"commit": f"Add {name}"}, REVIEW]


def prepare(project: Project, codex: Path) -> None:
    """What happened over night: one issue waits for an answer, three for a review; Codex works on SYM-2."""
    threads = scripted("--threads", str(project.root / "threads"))
    real = f"{shlex.quote(str(codex))} app-server"
    project.workflow(
        agents={
            "night": {"kind": "codex", "command": threads, "read_timeout_ms": 60_000},
            "real": {"kind": "codex", "command": real, "read_timeout_ms": 30_000},
        },
        agent={"kind": "night", "rules": [{"label": "real", "use": "real"}]},
        review={"merge": True},
    )
    project.issue(
        "SYM-1", [{"ask_input": "Which colour, red or blue?"}, *work("door.txt")], title="Paint the door"
    )
    project.issue("SYM-2", title="Write lines", extra="labels: [real]\n", text="[[work]] Write lines.txt.")
    for name, file in (("SYM-3", "three.txt"), ("SYM-4", "four.txt")):
        project.issue(name, work(file), title=f"Add {file}")


def ready(daemon: Daemon, name: str, times: int = 1) -> None:
    """The work of an issue became ready for the nth time."""

    def seen() -> bool | None:
        found = [line for line in daemon.events() if line.get("event") == "work_ready"]
        return sum(line["issue_identifier"] == name for line in found) >= times or None

    until(seen, daemon.log.read_text)


def fits(page: Page) -> None:
    """Nothing is wider than the screen."""
    assert page.viewport_size is not None
    assert page.evaluate("() => document.documentElement.scrollWidth") == page.viewport_size["width"]


def comment_on(page: Page, line: int, text: str) -> None:
    name = f"Comment on line {line}"
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_role("textbox", name=name, exact=True).fill(text)
    fits(page)
    page.get_by_role("button", name="Keep the comment").click()
    expect(page.locator(".on-line", has_text=text)).to_be_visible()


def to_board(page: Page) -> None:
    page.get_by_role("link", name="Board", exact=True).first.click()


def answer(page: Page) -> None:
    """In the comment box of the issue."""
    page.get_by_role("link", name="SYM-1 Paint the door").first.click()
    expect(page.get_by_text("Which colour, red or blue?").first).to_be_visible()
    page.get_by_label("Comment on SYM-1").fill("Blue, as the others")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator(".comment", has_text="Blue, as the others")).to_be_visible()
    fits(page)


def send_back(page: Page) -> None:
    to_board(page)
    page.get_by_role("link", name="Review SYM-2").click()
    comment_on(page, 1, "Begin with a capital")
    comment_on(page, 3, "Say that it ends")
    page.get_by_role("link", name="All of the change").click()
    page.get_by_label("Comment on the whole change").fill("Almost")
    page.get_by_role("button", name="Send back").click()
    expect(page.get_by_text("sent back with a comment and moved to Todo")).to_be_visible()
    expect(page.locator(".comment", has_text="Begin with a capital")).to_be_visible()


def approve(page: Page, name: str, file: str) -> None:
    to_board(page)
    page.get_by_role("link", name=f"Review {name}").click()
    expect(page.get_by_role("region", name=f"Lines of {file}")).to_contain_text(file)
    fits(page)
    page.locator("summary", has_text="Approve").click()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("approved: merged into main")).to_be_visible()


def file_issue(page: Page) -> None:
    to_board(page)
    page.get_by_role("link", name="New issue").click()
    page.get_by_label("Title").fill("Add five.txt")
    page.get_by_label("What to do").fill(f"```scripted\n{json.dumps([work('five.txt')])}\n```")
    page.get_by_label("Labels").fill("small, later")
    fits(page)
    page.get_by_role("button", name="Create issue").click()
    expect(page.get_by_text("created 1 issue")).to_be_visible()


@pytest.mark.parametrize(
    ("options", "scripts"),
    [
        pytest.param(WIDE, True, id="wide"),
        pytest.param(WIDE, False, id="without-javascript"),
        pytest.param(PHONE, True, id="phone"),
    ],
)
def test_a_morning(browser: Browser, project: Project, options: dict[str, Any], *, scripts: bool) -> None:
    prepare(project, require_codex())
    first = models.edit_and_commit("lines.txt", *SLIPS, last=MOVED)
    second = models.edit_and_commit("lines.txt", *BETTER, last=MOVED)
    with (
        models.ModelServer({"work": first}) as server,
        codex_home(server.base_url) as home,
    ):
        project.environment.update(home.env)
        with (
            project.daemon("--port", "0") as daemon,
            opened(browser, fixed_time=False, java_script_enabled=scripts, **options) as page,
        ):
            daemon.wait_for("comment_posted", issue_identifier="SYM-1", kind="blocked")
            for name in ("SYM-2", "SYM-3", "SYM-4"):
                ready(daemon, name)
            page.goto(project.symphony("open", "--print").stdout.strip())
            if not scripts:
                page.get_by_role("button", name="Open Symphony").click()
            expect(page).to_have_title("(4) Board · Symphony")
            fits(page)

            answer(page)
            assert daemon.wait_for("answer_taken", issue_identifier="SYM-1")["comments"] == 1
            told_before = len(server.requests)
            server.learn("work", second)
            send_back(page)
            for name, file in (
                ("SYM-3", "three.txt"),
                ("SYM-4", "four.txt"),
            ):  # the second is beside the first
                approve(page, name, file)
            file_issue(page)

            # What came of it.
            for name, times in (("SYM-1", 1), ("SYM-2", 2), ("SYM-5", 1)):
                ready(daemon, name, times)
            to_board(page)
            page.get_by_role("link", name="Review SYM-2").click()
            page.get_by_role("link", name="What is new").click()
            expect(page.get_by_role("region", name="Lines of lines.txt")).to_contain_text("The end")
            fits(page)
            requests = [request.body for request in server.requests[told_before:] if "input" in request.body]

    told = json.dumps(requests[0]["input"])
    for part in ("lines.txt:1", "first line", "Begin with a capital", "lines.txt:3", "third line", "Almost"):
        assert told.count(part) == 1, part
    (said,) = project.comments("SYM-2", kind="person")
    assert "```" in said.partition("lines.txt:1")[0], "the lines of the change are fenced"
    assert project.branch_log("SYM-2") == [BETTER[1], SLIPS[1]]
    assert [project.written_state(f"SYM-{number}") for number in range(1, 6)] == [
        *("Human Review", "Human Review", "Done", "Done", "Human Review")
    ]
    assert {"three.txt", "four.txt"} <= {path.name for path in project.repo.iterdir()}
    assert project.git("log", "--merges", "--format=%s", "main") == "Merge symphony/SYM-4"
    assert "labels: [small, later]" in (project.repo / ".symphony/issues/SYM-5.md").read_text()
