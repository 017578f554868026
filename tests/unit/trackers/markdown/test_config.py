from pathlib import Path
from typing import Any

import pytest

from symphony.config import TrackerSettings
from symphony.domain import Category
from symphony.trackers.base import TrackerConfigError, TrackerError
from symphony.trackers.markdown import DEFAULT_STATES, BoardConfig, MarkdownTracker
from symphony.trackers.registry import TRACKERS, create_tracker, with_default_states

HERE = Path("/project")


def test_the_defaults_are_the_documented_ones() -> None:
    config = BoardConfig.of({}, base_dir=HERE)
    assert config.path == HERE / ".symphony/issues"
    assert config.prefix == "SYM"
    assert config.states == DEFAULT_STATES
    assert config.active == ("Todo", "In Progress")
    assert config.terminal == ("Done", "Cancelled")


def test_the_path_starts_at_the_workflow_directory_unless_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert BoardConfig.of({"path": "board"}, base_dir=HERE).path == HERE / "board"
    assert BoardConfig.of({"path": "/else"}, base_dir=HERE).path == Path("/else")
    assert BoardConfig.of({"path": "~/board"}, base_dir=HERE).path == Path("/home/ann/board")


def test_states_named_by_the_state_lists_are_legal_without_a_states_key() -> None:
    config = BoardConfig.of({}, base_dir=HERE, active=["Ready", "todo", " "], terminal=["Closed"])
    assert config.states == (*DEFAULT_STATES, "Ready", "Closed")
    assert config.active == ("Ready", "Todo")
    assert config.terminal == ("Closed",)


def test_an_empty_list_is_an_empty_list_and_not_the_default() -> None:
    config = BoardConfig.of({}, base_dir=HERE, active=[], terminal=[" "])
    assert (config.active, config.terminal) == ((), ())
    settings = TrackerSettings(kind="markdown", active_states=(), terminal_states=("Done",))
    filled = with_default_states(settings, base_dir=HERE, environment={})
    assert (filled.active_states, filled.terminal_states) == ((), ("Done",))


def test_own_states_keep_those_defaults_that_fit() -> None:
    config = BoardConfig.of({"states": ["todo", "Doing", "Done", "todo"]}, base_dir=HERE)
    assert config.states == ("todo", "Doing", "Done")
    assert (config.active, config.terminal) == (("todo",), ("Done",))
    assert config.state(" DOING ") == "Doing"
    assert config.state("nowhere") is None


@pytest.mark.conformance("C-2")
@pytest.mark.parametrize(
    ("provider", "key"),
    [
        ({"path": ""}, "tracker.provider.path"),
        ({"path": 3}, "tracker.provider.path"),
        ({"path": "a\0b"}, "tracker.provider.path"),
        ({"path": "~nobody-of-that-name/x"}, "tracker.provider.path"),
        ({"prefix": "1A"}, "tracker.provider.prefix"),
        ({"prefix": "../x"}, "tracker.provider.prefix"),
        ({"prefix": None}, "tracker.provider.prefix"),
        ({"states": "Todo"}, "tracker.provider.states"),
        ({"states": [1]}, "tracker.provider.states"),
        ({"states": [" "]}, "tracker.provider.states"),
        ({"states": ["A", "B"]}, "tracker.active_states"),
        ({"states": ["Todo"]}, "tracker.terminal_states"),
    ],
)
def test_bad_settings_are_refused_by_name(provider: dict[str, Any], key: str) -> None:
    with pytest.raises(TrackerError) as caught:
        BoardConfig.of(provider, base_dir=HERE)
    assert caught.value.failure.category is Category.INVALID_TRACKER_CONFIG
    assert caught.value.failure.message.startswith(key)


def test_an_active_state_that_the_board_does_not_have_is_refused_with_the_states() -> None:
    with pytest.raises(TrackerError) as caught:
        BoardConfig.of({"states": ["Todo", "Done"]}, base_dir=HERE, active=["Doing"])
    assert caught.value.failure.hint == "states: Todo, Done"


def test_the_registry_makes_the_board_and_knows_its_states() -> None:
    settings = TrackerSettings(kind="markdown")
    tracker = create_tracker(settings, base_dir=HERE, environment={})
    assert isinstance(tracker, MarkdownTracker)
    filled = with_default_states(settings, base_dir=HERE, environment={})
    assert filled.active_states == ("Todo", "In Progress")
    assert filled.terminal_states == ("Done", "Cancelled")


@pytest.mark.conformance("C-2")
def test_everything_that_does_not_fit_is_told_at_once() -> None:
    with pytest.raises(TrackerConfigError) as caught:
        BoardConfig.of(
            {"path": 3, "prefix": "", "states": ["Todo", "Done"]},
            base_dir=HERE,
            active=["Doing", "Todo", "Testing"],
            terminal=["Shipped"],
        )
    problems = caught.value.problems
    assert [".".join(map(str, problem.location)) for problem in problems] == [
        "tracker.provider.path",
        "tracker.provider.prefix",
        "tracker.active_states",
        "tracker.active_states",
        "tracker.terminal_states",
    ]


def test_state_lists_are_not_judged_by_legal_states_that_cannot_be_read() -> None:
    with pytest.raises(TrackerConfigError) as caught:
        BoardConfig.of({"states": "Todo"}, base_dir=HERE, active=["Doing"])
    assert [problem.location[-1] for problem in caught.value.problems] == ["states"]


def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(TrackerError) as caught:
        create_tracker(TrackerSettings(kind="jiro"), base_dir=HERE, environment={})
    assert caught.value.failure.category is Category.UNSUPPORTED_TRACKER_KIND
    assert caught.value.failure.hint == f'did you mean "jira"? supported: {", ".join(TRACKERS.names)}'
