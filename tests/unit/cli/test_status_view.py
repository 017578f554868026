"""`symphony status` as people see it, letter by letter."""

from collections.abc import Mapping

import pytest

from harness.pictures import busy, drawn, of_files
from symphony.cli.status_view import head_view, status_view, trouble_view
from symphony.domain.failures import Blame, Category, Failure

AT_80 = """\
Daemon healthy  pid 4711 · up 2 h 14 min · next poll in 12 s
2 of 2 slots used · 1 retrying · 1 blocked · 2 waiting · 1.2M tokens

RUNNING   TURN     AGE  SIGN OF LIFE  TOKENS  TITLE
SYM-12       2  14 min  3 s ago        45.2k  Fix the login page
                                              Running the test suite with the
                                              new session cookie
SYM-7        1     8 s  none yet           0  Speed the import up
                                              preparing workspace

RETRYING  ATTEMPT  DUE IN  TITLE
SYM-4           3    18 s  Add a dark mode
                           after: turn_failed: it broke

BLOCKED         FOR  TITLE
SYM-9     1 h 5 min  Move the data
                     no progress in 5 attempts
                     → say more in the description

WAITING   STATE  TITLE
SYM-20    Todo   Write the docs
                 all 2 agent slots are in use
SYM-21    Todo   Ask Legal
                 required label missing: 'agent'
"""

AT_120 = """\
Daemon healthy  pid 4711 · up 2 h 14 min · next poll in 12 s
2 of 2 slots used · 1 retrying · 1 blocked · 2 waiting · 1.2M tokens

RUNNING   TURN     AGE  SIGN OF LIFE  TOKENS  TITLE                LAST WORD
SYM-12       2  14 min  3 s ago        45.2k  Fix the login page   {said}
SYM-7        1     8 s  none yet           0  Speed the import up  preparing workspace

RETRYING  ATTEMPT  DUE IN  TITLE            WHY
SYM-4           3    18 s  Add a dark mode  after: turn_failed: it broke

BLOCKED         FOR  TITLE          WHY, AND WHAT TO DO
SYM-9     1 h 5 min  Move the data  no progress in 5 attempts
                                    → say more in the description

WAITING   STATE  TITLE           WHY
SYM-20    Todo   Write the docs  all 2 agent slots are in use
SYM-21    Todo   Ask Legal       required label missing: 'agent'
"""

TROUBLE = """\
Daemon in trouble  pid 4711 · up 2 h 14 min · asking the tracker now
0 of 2 slots used · 0 retrying · 0 blocked · 0 waiting · 0 tokens

WORKFLOW.md cannot be used, so nothing new starts and the last good one holds:
  /app/WORKFLOW.md:3: mapping values are not allowed here
  → correct the front matter
The tracker did not answer the last poll:
  no answer within 30 s

Nothing is known of the issues.
"""

FILES = """\
No daemon is running for /app/WORKFLOW.md.
This is what the files say; `symphony run` starts one.

WAITING   STATE  TITLE
SYM-20    Todo   Write the docs
                 all 2 agent slots are in use
SYM-21    Todo   Ask Legal
                 required label missing: 'agent'
"""

NOTHING = """\
No daemon is running for /app/WORKFLOW.md.
This is what the files say; `symphony run` starts one.

Nothing to do: the tracker lists no issue in an active state.
"""

EMPTY: dict[str, object] = {"running": [], "retrying": [], "blocked": [], "waiting": []}


def picture(document: dict[str, object], width: int, *, terminal: bool = False) -> str:
    view = status_view(document, workflow="/app/WORKFLOW.md", width=width)
    return drawn(view, width=width, terminal=terminal)


def failure(message: str, hint: str | None, where: str | None) -> dict[str, object]:
    return {"code": "x", "message": message, "hint": hint, "where": where}


@pytest.mark.parametrize(("width", "expected"), [(80, AT_80), (120, AT_120)])
def test_a_busy_daemon(width: int, expected: str) -> None:
    said = "Running the test suite with the new session cookie"
    assert picture(busy(), width) == expected.replace("{said}", said)


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
    assert picture(document, 80) == TROUBLE


def skipping(*records: Mapping[str, object], **changes: object) -> dict[str, object]:
    return of_files(busy(health={"status": "stopped", "skipped_records": list(records)}, **changes))


def test_an_issue_file_that_cannot_be_read_is_shown_with_its_place_and_what_to_do() -> None:
    record = {"where": "/app/SYM-9.md:2", "message": "bad YAML", "hint": "correct the file"}
    shown = picture(skipping(record, **EMPTY), 80)
    assert (
        "The tracker could not read 1 issue, so nothing starts there:\n"
        "  /app/SYM-9.md:2: bad YAML\n"
        "  → correct the file\n"
    ) in shown
    assert shown.endswith("Nothing else to do: no other issue is in an active state.\n")


def test_a_status_lists_every_record_that_cannot_be_read_and_a_small_screen_only_some() -> None:
    records = [{"where": None, "message": f"bad {number}", "hint": "mend it"} for number in range(9)]
    document = skipping(*records)
    assert "bad 8\n  → mend it\n" in picture(document, 80)
    brief = drawn(head_view(document, workflow="/app/WORKFLOW.md", brief=True), width=80)
    assert "bad 2\n  and 6 more; `symphony status` lists all\n  → mend it\n" in brief


@pytest.mark.parametrize(("document", "expected"), [(busy(), FILES), (busy(waiting=[]), NOTHING)])
def test_without_a_daemon_it_says_so(document: dict[str, object], expected: str) -> None:
    assert picture(of_files(document), 80) == expected


def test_what_is_odd_about_there_being_no_daemon_is_said_first() -> None:
    notice = "The last daemon (pid 7) did not end in order"
    shown = picture(of_files(busy()) | {"notice": notice}, 80)
    assert shown.startswith(f"No daemon is running for /app/WORKFLOW.md.\n{notice}\nThis is what")


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


@pytest.mark.parametrize("width", [40, 50, 71, 72, 80, 99, 100, 120, 300])
def test_no_width_cuts_a_word(width: int) -> None:
    shown = picture(busy(), width)
    assert all(len(line) <= width for line in shown.splitlines())
    for words in (
        "Fix the login page",
        "Running the test suite with the new session cookie",
        "no progress in 5 attempts",
        "say more in the description",
        "required label missing: 'agent'",
    ):
        assert set(words.split()) <= set(shown.split())


def test_colours_are_for_terminals() -> None:
    assert "\x1b[" in picture(busy(), 80, terminal=True)
    assert "\x1b" not in picture(busy(), 80)


def test_silence_and_a_stop_are_shown() -> None:
    (row, _) = busy()["running"]
    quiet = {**row, "last_event_at": "2026-03-01T11:50:00Z", "stopping": "stalled"}
    shown = picture(busy(running=[quiet]), 120)
    assert "10 min ago" in shown
    assert "stopping: stalled" in shown


HOSTILE = "Mend [/x] \x1b[2J\x1b]0;title\x07 two\nlines \u202e\ud800 :bomb:"


def test_what_others_wrote_stays_text() -> None:
    document = busy()
    for kind in ("running", "retrying", "blocked", "waiting"):
        for row in document[kind]:
            row |= {"title": HOSTILE, "issue_identifier": HOSTILE, "state": HOSTILE, "error": HOSTILE}
            row |= {"last_message": HOSTILE, "stopping": None, "reason": {"message": HOSTILE}}
            row |= {"failure": {"hint": HOSTILE}}
    for width in (50, 80, 160):
        shown = picture(document, width)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[/x]" in shown.replace("\n", "")
        assert ":bomb:" in "".join(shown.split())
        assert shown.encode()


def test_a_document_of_another_version_is_shown_as_far_as_it_goes() -> None:
    odd = {"source": "daemon", "running": [{}, "x"], "retrying": [{}], "blocked": [{}], "waiting": [{}, None]}
    shown = picture({**odd, "health": None, "daemon": [], "counts": 3}, 80)
    assert "RUNNING" in shown
    assert "WAITING" in shown


def test_trouble_is_a_picture_too() -> None:
    told = Failure(category=Category.COMMAND, blame=Blame.HOST, message="gone [x]", hint="try again")
    assert drawn(trouble_view(told), width=80) == "Nothing can be told now: gone [x]\n→ try again\n"
