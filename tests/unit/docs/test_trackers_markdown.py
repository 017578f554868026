"""The profile page says what the code does."""

from pathlib import Path

import pytest

from symphony.frontmatter import Profile, load
from symphony.trackers.markdown import BoardConfig, MarkdownTracker
from symphony.trackers.markdown.document import parse_issue

PAGE = (Path(__file__).parents[3] / "docs/trackers/markdown.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    return PAGE.split(f"```{language}\n")[1].split("```")[0]


def test_the_configuration_shown_is_the_default() -> None:
    tracker = load(block("yaml").encode(), profile=Profile.CORE).value["tracker"]
    shown = BoardConfig.of(
        tracker["provider"],
        base_dir=Path("/x"),
        active=tracker["active_states"],
        terminal=tracker["terminal_states"],
    )
    assert shown == BoardConfig.of({}, base_dir=Path("/x"))


def test_the_issue_shown_can_be_read() -> None:
    assert parse_issue(block("markdown").encode()).blocked_by == ("SYM-3",)


@pytest.mark.parametrize("tool", MarkdownTracker(BoardConfig(path=Path("/x"))).agent_tool_specs())
def test_every_tool_is_described(tool: object) -> None:
    assert f"`{getattr(tool, 'name', None)}`" in PAGE
