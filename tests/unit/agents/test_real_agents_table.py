"""The table of results of `make agents`, and that the page has a place for it."""

from pathlib import Path

import pytest

from real_agents.__main__ import version_of
from real_agents.results import AGENTS, Result, agent_of, placed, table

PAGE = Path(__file__).parents[3] / "docs" / "agents.md"


@pytest.mark.parametrize(
    ("marks", "agent"),
    [
        ([("asyncio", ()), ("real_codex", ())], "codex"),
        ([("real_acp", ("gemini",))], "gemini"),
        ([("real_acp", ())], None),
        ([("asyncio", ())], None),
        ([("codex", ())], None),
    ],
)
def test_the_agent_of_a_test_is_told_by_its_marks(
    marks: list[tuple[str, tuple[str, ...]]], agent: str
) -> None:
    assert agent_of(marks) == agent


def test_the_table_says_what_was_shown_and_what_was_not() -> None:
    results = [
        Result(agent="gemini", test="test_a_file_is_written[gemini]", outcome="passed"),
        Result(agent="gemini", test="test_it_stops[gemini]", outcome="failed"),
        Result(agent="opencode", test="test_x[opencode]", outcome="skipped", reason="no opencode | here"),
        Result(agent="opencode", test="test_y[opencode]", outcome="skipped", reason="no opencode | here"),
    ]
    shown = table(results, {"gemini": "0.61.0"}, "2026-11-21").splitlines()
    assert len(shown) == 2 + len(AGENTS)
    assert "| gemini | 0.61.0 | 2026-11-21 | 1 of 2 | failed: it stops |" in shown
    assert "| opencode | not installed |  | nothing | no opencode / here |" in shown


def test_the_page_has_a_place_for_the_table() -> None:
    page = PAGE.read_text("utf-8")
    written = placed(page, "| x |\n")
    assert "| x |\n" in written
    assert placed(written, "| y |\n") == placed(page, "| y |\n")
    with pytest.raises(ValueError, match="no place"):
        placed("nothing", "| x |\n")


def test_one_agent_alone_changes_its_own_line() -> None:
    earlier = table([], dict.fromkeys(AGENTS, "1.0"), "2026-11-01")
    page = placed(PAGE.read_text("utf-8"), earlier)
    result = Result(agent="codex", test="test_x", outcome="passed")
    shown = table([result], dict.fromkeys(AGENTS, "2.0"), "2026-11-21")
    told = placed(page, shown, "codex")
    assert "| codex | 2.0 | 2026-11-21 | 1 of 1 |  |\n" in told
    assert "| codex-acp | 1.0 | 2026-11-01 | 0 of 0 |  |\n" in told
    assert len(told.splitlines()) == len(page.splitlines())


def test_a_version_is_that_of_the_package_or_what_the_program_says(tmp_path: Path) -> None:
    program = tmp_path / "package" / "bin" / "agent"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho agent 7.8.9\n", "utf-8")
    assert version_of(str(program)) == ""
    program.chmod(0o755)
    assert version_of(str(program)) == "7.8.9"
    (tmp_path / "package" / "package.json").write_text('{"version": "1.2.3-linux"}', "utf-8")
    assert version_of(str(program)) == "1.2.3"
    program.write_text("#!/bin/sh\n", "utf-8")
    (tmp_path / "package" / "package.json").write_text("{}", "utf-8")
    assert version_of(str(program)) == "unknown"
