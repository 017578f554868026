"""`symphony runs` on journals that the tests write."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.commands import call
from harness.journalling import run, written
from kit.facts import changed
from published.schemas import conforms_to
from symphony.api.interface import RunQuery
from symphony.api.runs import runs_document
from symphony.cli.commands.runs import money, runs_view
from symphony.domain import SymphonyError, VerificationStatus
from symphony.journal.model import RunRecord

HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def a_run(number: int, *, hours_ago: int = 1, **changes: Any) -> RunRecord:
    started = now_ms() - hours_ago * HOUR_MS
    values: dict[str, Any] = {
        "started_wall_ms": started,
        "ended_wall_ms": started + 65_000,
        "outcome": "succeeded",
        "agent_name": "codex",
        "model": "gpt-5.5",
        "turn_count": 2,
        "commits": 1,
        "total_tokens": 12_345,
        "cost_usd": 0.5,
    }
    return changed(run(number), **values | changes)


UNPRICED: dict[str, Any] = {"cost_usd": None, "unpriced_tokens": 12_345}
PART: dict[str, Any] = {"cost_usd": 1.25, "unpriced_tokens": 100}
HISTORY = (
    a_run(1, hours_ago=80, issue_identifier="SYM-1"),
    a_run(2, hours_ago=2, issue_identifier="SYM-1", outcome="no_progress", **UNPRICED),
    a_run(3, issue_identifier="SYM-2", agent_name="claude", model=None, **PART),
)


def found(*options: str) -> Any:
    document = json.loads(call("runs", *options, "--json").stdout)
    conforms_to("runs", document)
    return document


def test_runs_are_read_from_the_journal_without_a_daemon(journal: Path) -> None:
    written(journal, *HISTORY)
    document = found()
    assert [row["run_id"] for row in document["runs"]] == ["r-3", "r-2", "r-1"]
    total = document["total"]
    assert (total["runs"], total["cost_usd"], total["unpriced_tokens"]) == (3, 1.75, 12_445)


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (("--since", "1d"), ["r-3", "r-2"]),
        (("--issue", "SYM-1"), ["r-2", "r-1"]),
        (("--agent", "claude", "--agent", "odd"), ["r-3"]),
        (("--outcome", "no_progress"), ["r-2"]),
        (("-n", "1"), ["r-3"]),
        (("-n", "0"), ["r-3", "r-2", "r-1"]),
        (("--since", "0"), []),
    ],
)
def test_options_select_runs(journal: Path, options: tuple[str, ...], runs: list[str]) -> None:
    written(journal, *HISTORY)
    assert [row["run_id"] for row in found(*options)["runs"]] == runs


def test_sums_are_shown_instead_of_runs_with_the_most_expensive_first(journal: Path) -> None:
    written(journal, *HISTORY)
    groups = found("--by", "issue")["groups"]
    costs = [(one["key"], one["runs"], one["cost_usd"]) for one in groups]
    assert costs == [("SYM-2", 1, 1.25), ("SYM-1", 2, 0.5)]
    heading, first, second, _, total, unpriced = call("runs", "--by", "issue").stdout.splitlines()
    assert heading.split() == ["ISSUE", "RUNS", "TURNS", "TIME", "TOKENS", "USD", "COMMITS"]
    assert first.split()[:2] + first.split()[-2:] == ["SYM-2", "1", "1.25+", "1"]
    assert second.split()[-2] == "0.50+"
    assert "3 runs" in total
    assert "1.75 USD" in total
    assert "12.4k tokens" in unpriced


def test_eighty_columns_are_enough_and_text_of_others_stays_text() -> None:
    rows = (*HISTORY, a_run(4, issue_identifier="[red]\x1b[2J", agent_name="[bold]x", outcome=None))
    document = runs_document(rows, RunQuery(limit=3), now=datetime.now(UTC))
    console = Console(width=80, record=True, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(runs_view(document, width=80))
    text = captured.get()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "and 1 more" in text
    for word in ("without", "unpriced", "1.25+", "gpt-5.5", "claude", "4 runs"):
        assert word in text, word


def test_what_the_verification_said_has_a_column_where_there_was_one() -> None:
    rows = [a_run(number, verified=status) for number, status in enumerate(VerificationStatus)]
    document = runs_document((*rows, a_run(5)), RunQuery(), now=datetime.now(UTC))
    assert [row.verified for row in document.runs] == ["passed", "failed", "base_failed", None]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(runs_view(document, width=80))
    heading, *lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert "VERIFIED" in heading
    assert "base" in lines[4]
    with console.capture() as captured:
        console.print(runs_view(runs_document(HISTORY, RunQuery(), now=datetime.now(UTC)), width=80))
    assert "VERIFIED" not in captured.get()


def test_a_cost_is_never_shown_as_nothing_where_it_is_not_known() -> None:
    assert [money(None, 0), money(None, 5), money(0.0, 0)] == ["-", "unpriced", "0.00"]
    assert [money(0.004, 0), money(1234.5, 1)] == ["0.0040", "1,234.50+"]


def test_nothing_run_so_far_is_no_error_and_a_damaged_journal_is(journal: Path) -> None:
    Path("WORKFLOW.md").write_text("---\n---\n", encoding="utf-8")
    assert found()["runs"] == []
    assert call("runs").stdout.strip() == "No run is known."
    journal.write_bytes(b"rubbish" * 100)
    with pytest.raises(SymphonyError):
        call("runs")
