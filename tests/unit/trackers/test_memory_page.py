"""The page of the memory tracker says what the code does."""

from pathlib import Path

import pytest

from symphony.config import TrackerSettings
from symphony.frontmatter import Profile, load
from symphony.trackers.memory import DEFAULT_ACTIVE, DEFAULT_TERMINAL, MemoryTracker
from symphony.trackers.registry import create_tracker, tracker_kind

PAGE = (Path(__file__).parents[3] / "docs/trackers/memory.md").read_text(encoding="utf-8")


@pytest.mark.asyncio
async def test_the_board_shown_works() -> None:
    tracker = load(PAGE.split("```yaml\n")[1].split("```")[0].encode(), profile=Profile.CORE).value["tracker"]
    made = create_tracker(TrackerSettings.model_validate(tracker), base_dir=Path("/x"), environment={})
    (issue,) = await made.fetch_issues_by_states(DEFAULT_ACTIVE)
    assert issue.dispatchable


def test_the_code_shown_works() -> None:
    names: dict[str, object] = {}
    exec(PAGE.split("```python\n")[1].split("```")[0], names)  # noqa: S102 - the page's own example
    assert isinstance(names["board"], MemoryTracker)


def test_keys_states_and_tools_are_named() -> None:
    for name in (*tracker_kind("memory").provider_keys, *DEFAULT_ACTIVE, *DEFAULT_TERMINAL):
        assert f"`{name}`" in PAGE
    for spec in MemoryTracker().agent_tool_specs():
        assert f"`{spec.name}`" in PAGE
