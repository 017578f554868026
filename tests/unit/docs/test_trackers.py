"""Every tracker has its profile page, with every item that the specification asks for (TR10)."""

import re
from pathlib import Path

import pytest

from contract.desks import DESKS
from symphony.frontmatter import Profile, load
from symphony.trackers.markdown import BoardConfig, MarkdownTracker
from symphony.trackers.markdown.document import parse_issue
from symphony.trackers.registry import TRACKERS, tracker_kind

FOLDER = Path(__file__).parents[3] / "docs/trackers"
HEADINGS = (
    "Settings",
    "States",
    "Issues",
    "Scope, paging and limits",
    "Tools",
    "Comments",
    "Errors",
    "Tested",
)


@pytest.mark.parametrize("kind", [kind for kind in DESKS if "," not in kind])
@pytest.mark.conformance("T-11")
def test_the_page_of_a_tracker_has_every_item(kind: str) -> None:
    page = (FOLDER / f"{kind}.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^## (.+)$", page, re.MULTILINE)) == HEADINGS
    desk = DESKS[kind]()
    for name in (*tracker_kind(kind).provider_keys, *desk.tracker.secret_environment_names()):
        assert f"`{name}`" in page, name
    for spec in desk.tracker.agent_tool_specs():
        assert f"`{spec.name}`" in page
    for item in (
        "native_ref",
        "priority",
        "labels",
        "blocked_by",
        "created_at",
        "**Dispatchable**",
        "**Malformed**",
    ):
        assert item in page, item
    assert re.search(r"[Tt]ested as [ABC]", page)


@pytest.mark.parametrize("kind", TRACKERS.names)
def test_the_overview_leads_to_every_page(kind: str) -> None:
    overview = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"| `{kind}` | [" in overview
    assert f"]({kind}.md)" in overview


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
