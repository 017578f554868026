"""`symphony status --watch` on screens that are too small for everything."""

import io
from typing import Any

import pytest

from harness.pictures import busy, merged, status_of
from symphony.cli.render.status import console_for, print_blocks, status_screen


def screen(document: dict[str, Any], width: int, height: int) -> str:
    out = io.StringIO()
    console = console_for(file=out, width=width, height=height)
    print_blocks(console, status_screen(console, status_of(document), workflow="/app/WORKFLOW.md"))
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


def test_a_person_who_is_needed_is_told_of_last_of_all() -> None:
    shown = screen(busy(), 80, 8)
    assert "SYM-9" in shown
    assert "→ say more in the description" in shown
    assert not {"RUNNING", "RETRYING", "WAITING"} & set(shown.split()), "the head counts them"


@pytest.mark.parametrize("width", [30, 50, 71, 72, 80, 100, 200])
@pytest.mark.parametrize("height", [8, 12, 24, 40, 60])
@pytest.mark.parametrize("length", [1, 40, 3_000])
def test_the_screen_is_never_too_small(width: int, height: int, length: int) -> None:
    shown = screen(queue(length), width, height).splitlines()
    assert len(shown) <= height
    assert max(map(len, shown)) <= width


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
    out = io.StringIO()
    console = console_for(file=out, width=80, height=24)
    print_blocks(
        console, status_screen(console, status_of(queue(99)), workflow="/app/WORKFLOW.md", keep_free=2)
    )
    assert len(out.getvalue().splitlines()) <= 22
