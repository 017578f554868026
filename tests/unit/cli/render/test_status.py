"""`symphony status` as people see it."""

import io
import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from harness.pictures import busy, drawn, merged, of_files, status_of
from harness.snapshots import check_snapshot
from symphony.cli.formatting import console_for, print_blocks
from symphony.cli.render.status import head_view, status_screen, status_view, unavailable_view
from symphony.domain import Blame, Category, Failure

EMPTY: dict[str, object] = {"running": [], "retrying": [], "blocked": [], "waiting": []}


def picture(document: dict[str, object], width: int, *, terminal: bool = False) -> str:
    view = status_view(status_of(document), workflow="/app/WORKFLOW.md", width=width)
    return drawn(view, width=width, terminal=terminal)


def failure(message: str, hint: str | None, where: str | None) -> dict[str, object]:
    return {"code": "x", "message": message, "hint": hint, "where": where}


def lines_of(shown: str) -> list[str]:
    """The first words of the lines, where rows and headings begin."""
    return [line.split()[0] for line in shown.splitlines() if line and line[0] != " "]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_busy_daemon(width: int) -> None:
    shown = picture(busy(), width)
    check_snapshot(f"status_{width}", shown)
    sections = "BLOCKED SYM-9 RUNNING SYM-7 SYM-12 RETRYING SYM-4 WAITING SYM-20 SYM-21"
    assert " ".join(word for word in lines_of(shown) if word.isupper()) == sections
    head = " ".join(shown.split("\n\n")[0].split())
    for fact in ("pid 4711", "up 2 h 14 min", "next poll in 12 s", "2 of 2 slots used", "1 retrying"):
        assert fact in head
    assert all(line == line.rstrip() and len(line) <= width for line in shown.splitlines())


def test_texts_stand_beside_the_title_or_below_it() -> None:
    for width in (80, 120):
        (line,) = [line for line in picture(busy(), width).splitlines() if line.startswith("SYM-12")]
        assert {"14 min", "3 s ago", "45.2k", "Fix the login page"} <= set(re.split(" {2,}", line))
        assert ("Running the test suite" in line) is (width == 120)


def test_attempts_are_counted_from_one() -> None:
    (waits,) = busy()["retrying"]
    again = {**waits, "attempt": 2, "attempt_number": 3, "attempt_limit": 5}
    (first, _) = busy()["running"]
    tried = {**first, "attempt": 1, "attempt_number": 2, "attempt_limit": 4}
    shown = picture(busy(retrying=[again], running=[first, tried]), 120)
    assert [re.split(" {2,}", line)[1] for line in shown.splitlines() if line.startswith("SYM-4")] == [
        "3 of 5"
    ]
    assert "2 of 4" in shown
    calm = picture(busy(), 120)
    assert "ATTEMPT" not in calm[: calm.index("RETRYING")], "first attempts need no column"


def waiting_for(**reasons: int) -> dict[str, object]:
    """A document of a board on which so many issues wait for each reason, of which three have a row."""
    row = busy()["waiting"][0]
    rows = [{**row, "issue_identifier": f"SYM-{number}"} for number in (100, 9, 20)]
    total = sum(reasons.values())
    counts = {"running": 2, "retrying": 1, "blocked": 1, "waiting": total}
    return busy(waiting=rows, waiting_by_reason=reasons, waiting_left_out=total - 3, counts=counts)


def test_a_large_board_is_counted_by_reason() -> None:
    shown = picture(waiting_for(no_slot=9_968, not_dispatchable=2), 80)
    assert "9,970 wait: 9,968 no free slot, 2 held back in the tracker\n" in shown
    assert "and 9,967 more waiting; `symphony status --all-issues`" in shown
    assert [word for word in lines_of(shown) if word.startswith("SYM")][-3:] == ["SYM-9", "SYM-20", "SYM-100"]


def test_an_unknown_reason_is_shown_by_its_code() -> None:
    assert "12 wait: 12 phase_of_moon\n" in picture(waiting_for(phase_of_moon=12), 80)


def test_what_was_asked_for_and_is_not_there_is_said() -> None:
    view = status_view(status_of(busy(**EMPTY)), workflow="/app/WORKFLOW.md", width=80, selected=True)
    assert drawn(view, width=80).endswith("No issue is in a state and has a code that was asked for.\n")


def test_a_daemon_in_trouble_says_what_is_wrong_and_what_to_do() -> None:
    health = {
        "status": "degraded",
        "workflow_failure": failure(
            "mapping values are not allowed here", "correct the front matter", "/app/WORKFLOW.md:3"
        ),
        "poll_failure": failure("no answer within 30 s", None, None),
    }
    counts, totals = {"running": 0}, {"total_tokens": 0}
    polling = {"checking": True, "next_poll_in_ms": None}
    document = busy(**EMPTY, health=health, counts=counts, codex_totals=totals, polling=polling)
    shown = picture(document, 80)
    assert shown.startswith("Daemon in trouble")
    words = " ".join(shown.split())
    assert "/app/WORKFLOW.md:3: mapping values are not allowed here. → correct the front matter" in words
    assert "no answer within 30 s." in words
    assert shown.endswith("Nothing is known of the issues.\n")


def skipping(*records: Mapping[str, object], **changes: object) -> dict[str, object]:
    return of_files(busy(health={"status": "stopped", "skipped_records": list(records)}, **changes))


def test_an_issue_file_that_cannot_be_read_is_shown_with_its_place_and_what_to_do() -> None:
    record = {
        "code": "tracker_response",
        "where": "/app/SYM-9.md:2",
        "message": "bad YAML",
        "hint": "correct the file",
    }
    shown = picture(skipping(record, **EMPTY), 80)
    assert (
        "The tracker leaves out 1 issue, so nothing starts there:\n"
        "  /app/SYM-9.md:2: bad YAML\n"
        "  → correct the file\n"
    ) in shown
    assert shown.endswith("Nothing else to do: no other issue is in an active state.\n")


def test_a_status_lists_every_record_that_cannot_be_read_and_a_small_screen_only_some() -> None:
    records = [
        {"code": "tracker_response", "where": None, "message": f"bad {number}", "hint": "mend it"}
        for number in range(9)
    ]
    document = skipping(*records)
    assert "bad 8\n  → mend it\n" in picture(document, 80)
    brief = drawn(head_view(status_of(document), workflow="/app/WORKFLOW.md", brief=True), width=80)
    assert "bad 2\n  and 6 more; `symphony status --all-issues` lists all\n  → mend it\n" in brief


def test_without_a_daemon_it_says_so() -> None:
    shown = picture(of_files(busy()), 80)
    assert shown.startswith("No daemon is running for /app/WORKFLOW.md.\n")
    assert "symphony run" in shown.splitlines()[1]
    assert {"SYM-20", "SYM-21"} <= set(lines_of(shown))
    assert picture(of_files(busy(waiting=[])), 80).endswith(
        "Nothing to do: the tracker lists no issue in an active state.\n"
    )


def test_the_notice_about_a_missing_daemon_comes_first() -> None:
    notice = "The last daemon (pid 7) had no normal end"
    shown = picture(of_files(busy()) | {"notice": notice}, 80)
    assert shown.startswith(f"No daemon is running for /app/WORKFLOW.md.\n{notice}\nThis is read")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("starting", "Daemon starting"),
        ("draining", "Daemon ending"),
        ("of another version", "Daemon in trouble"),
    ],
)
def test_the_head_says_how_the_daemon_is(status: str, words: str) -> None:
    assert picture(busy(health={"status": status}), 80).startswith(words)


def test_no_width_cuts_a_word() -> None:
    texts = (
        "Fix the login page",
        "Running the test suite with the new session cookie",
        "no progress in 5 attempts",
        "say more in the description",
        "required label missing: 'agent'",
    )
    words = {word for text in texts for word in text.split()}
    for width in (40, 50, 71, 72, 80, 99, 100, 120, 300):
        shown = picture(busy(), width)
        assert all(len(line) <= width for line in shown.splitlines())
        assert words <= set(shown.split())


def test_colours_are_for_terminals() -> None:
    assert "\x1b[" in picture(busy(), 80, terminal=True)
    assert "\x1b" not in picture(busy(), 80)


def test_silence_and_a_stop_are_shown() -> None:
    (row, _) = busy()["running"]
    quiet = {**row, "last_event_at": "2026-03-01T11:50:00Z", "stopping": "stalled"}
    shown = picture(busy(running=[quiet]), 120)
    assert "10 min ago" in shown
    assert "it is being stopped: the agent was silent for too long" in shown


HOSTILE = "Mend [/x] \x1b[2J\x1b]0;title\x07 two\nlines \u202e\ud800 :bomb:"


def test_what_others_wrote_stays_text() -> None:
    document = busy()
    for kind in ("running", "retrying", "blocked", "waiting"):
        for row in document[kind]:
            row.update({"title": HOSTILE, "issue_identifier": HOSTILE, "state": HOSTILE, "error": HOSTILE})
            row.update({"last_message": HOSTILE, "reason": {"code": "x", "message": HOSTILE}})
            row.update(merged(row, {"failure": {"hint": HOSTILE}}) if "failure" in row else {})
    for width in (50, 80, 160):
        shown = picture(document, width)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[/x]" in shown.replace("\n", "")
        assert ":bomb:" in "".join(shown.split())
        assert shown.encode()


def test_a_failure_is_shown_in_place_of_a_status() -> None:
    told = Failure(category=Category.COMMAND, blame=Blame.HOST, message="gone [x]", hint="try again")
    assert drawn(unavailable_view(told), width=80) == "The status cannot be read: gone [x]\n→ try again\n"


# --- questions ---


def blocked(**fields: Any) -> dict[str, Any]:
    (row,) = busy()["blocked"]
    return busy(blocked=[merged(row, fields)])


@pytest.mark.parametrize(
    ("fields", "words", "way"),
    [
        (
            {"question": "Which colour?", "error": "it asks: Which colour?"},
            "it asks: Which colour?",
            'answer it by a comment on the issue, or: symphony answer SYM-9 "…"',
        ),
        (
            {"question": "Which\ncolour?"},
            "no progress in 5 attempts; it asks: Which colour?",
            'answer it by a comment on the issue, or: symphony answer SYM-9 "…"',
        ),
        (
            {"question": "Q", "error": "Q", "failure": {"hint": 'symphony answer SYM-9 "yes"'}},
            "Q",
            'symphony answer SYM-9 "yes"',
        ),
        ({"failure": {"hint": None}}, "no progress", "have it tried again: symphony unblock SYM-9"),
        (
            {"failure": {"hint": None}, "issue_identifier": "a b"},
            "no progress",
            "have it tried again: symphony unblock 'a b'",
        ),
    ],
)
def test_a_blocked_issue_shows_the_question_and_the_command_that_helps(
    fields: dict[str, Any], words: str, way: str
) -> None:
    shown = picture(blocked(**fields), 160)
    assert words in shown
    assert f"→ {way}\n" in shown


# --- screens ---


def screen(document: dict[str, Any], width: int, height: int, *, keep_free: int = 0) -> str:
    out = io.StringIO()
    console = console_for(file=out, width=width, height=height)
    shown = status_screen(console, status_of(document), workflow="/app/WORKFLOW.md", keep_free=keep_free)
    print_blocks(console, shown.picture)
    return out.getvalue()


def queue(length: int) -> dict[str, Any]:
    row = busy()["waiting"][0]
    rows = [{**row, "issue_identifier": f"SYM-{number}"} for number in range(length)]
    return busy(waiting=rows, waiting_by_reason={"no_slot": length})


def test_nothing_is_cut_where_everything_fits() -> None:
    shown = screen(busy(), 80, 24)
    assert len(shown.splitlines()) == 24
    assert "new session cookie" in shown
    assert "…" not in shown
    assert "more" not in shown.replace("say more", "")


def test_each_text_gets_one_line_before_an_issue_is_left_out() -> None:
    shown = screen(busy(), 80, 23)
    assert "Running the test suite with the n…\n" in shown
    assert "SYM-21" in shown
    assert len(shown.splitlines()) == 23


def test_a_small_screen_says_what_it_leaves_out() -> None:
    shown = screen(busy(), 80, 22)
    assert len(shown.splitlines()) <= 22
    assert "SYM-12" in shown
    assert "SYM-7" not in shown, "the first of the document are shown"
    assert [line.split(";")[0] for line in shown.splitlines() if line.startswith("and ")] == [
        "and 1 more running",
        "and 1 more waiting",
    ]


def test_an_issue_that_needs_a_person_is_left_out_last() -> None:
    shown = screen(busy(), 80, 8)
    assert "SYM-9" in shown
    assert "→ say more in the description" in shown
    assert not {"RUNNING", "RETRYING", "WAITING"} & set(shown.split()), "the head counts them"


def test_the_screen_is_never_too_small() -> None:
    documents = [queue(length) for length in (1, 40, 3_000)]
    sizes = product((30, 71, 72, 80, 200), (8, 24, 60), documents)
    too_large = []
    for width, height, document in sizes:
        shown = screen(document, width, height).splitlines()
        if len(shown) > height or max(map(len, shown)) > width:
            too_large.append((width, height, len(document["waiting"])))
    assert too_large == []


def test_a_high_screen_is_used() -> None:
    shown = screen(queue(200), 120, 60)
    assert len(shown.splitlines()) in {59, 60}
    assert "and 158 more waiting" in shown


def test_what_is_wrong_stays_on_the_screen() -> None:
    failure = {"code": "x", "message": "mapping values are not allowed", "hint": "mend it", "where": "/a:3"}
    document = merged(queue(200), {"health": {"status": "degraded", "workflow_failure": failure}})
    shown = screen(document, 80, 24)
    assert "/a:3: mapping values are not allowed" in shown
    assert len(shown.splitlines()) <= 24


@pytest.mark.parametrize("height", [8, 24, 50])
def test_ten_thousand_issues_are_one_screen(height: int) -> None:
    document = queue(height) | {
        "waiting_by_reason": {"no_slot": 9_998, "not_dispatchable": 2},
        "waiting_left_out": 10_000 - height,
    }
    shown = screen(document, 80, height)
    assert len(shown.splitlines()) <= height
    assert "10,000 wait: 9,998 no free slot" in shown
    assert "SYM-9" in shown, "who needs a person is shown whatever waits"


def test_lines_can_be_kept_free() -> None:
    assert len(screen(queue(99), 80, 24, keep_free=2).splitlines()) <= 22


def test_a_failed_source_of_instructions_is_said_once_and_phases_have_a_column() -> None:
    problem = {
        "path": "manifest.yaml",
        "line": 7,
        "column": None,
        "code": "invalid_entry",
        "severity": "error",
        "message": "Bad \x1b[31mentry.",
        "hint": "Mend it.",
    }
    nothing: dict[str, Any] = {
        "phase": None,
        "origin": "nothing",
        "sha256": None,
        "modules": [],
        "dropped": [],
        "chars": 0,
    }
    extra = {
        "phase": {"name": "REVIEW", "reason": "the default"},
        "instructions": {**nothing, "problems": [problem]},
    }
    rows = busy()["running"]
    text = picture(busy(running=[{**row, **extra} for row in rows]), 200)
    assert len(rows) > 1
    assert text.count("manifest.yaml:7") == 1
    assert text.count("REVIEW") == len(rows)
    assert "\x1b" not in text
    assert "PHASE" not in picture(busy(), 200)
