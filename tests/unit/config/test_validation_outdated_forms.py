"""Texts where the first published specification took them for numbers and lists: read, with one warning."""

from typing import Any

import pytest

from symphony.config import WarningCode
from unit.config.conftest import Parse, Refuse

HEAD = "tracker: {kind: memory}\n"


def read(parse: Parse, text: str) -> tuple[Any, list[tuple[WarningCode, str | None]]]:
    workflow = parse(f"---\n{text}---\nDo it.\n")
    return workflow.settings, [(one.code, one.where) for one in workflow.warnings]


@pytest.mark.parametrize(
    ("section", "key", "written"),
    [
        ("polling", "interval_ms", "'45000'"),
        ("polling", "interval_ms", '" 45000 "'),
        ("polling", "interval_ms", "'+45000'"),
        ("agent", "max_concurrent_agents", "'45000'"),
        ("agent", "max_turns", "'45000'"),
        ("agent", "max_retry_backoff_ms", "'45000'"),
    ],
)
def test_digits_are_a_number(parse: Parse, section: str, key: str, written: str) -> None:
    settings, warnings = read(parse, f"{HEAD}{section}:\n  {key}: {written}\n")
    assert getattr(getattr(settings, section), key) == 45_000
    assert warnings == [(WarningCode.OUTDATED_FORM, "/repo/WORKFLOW.md:4")]


def test_the_hint_is_the_line_to_write(parse: Parse) -> None:
    text = "tracker:\n  kind: memory\n  active_states: Todo, In Progress,\npolling: {interval_ms: '9'}\n"
    workflow = parse(f"---\n{text}---\nDo it.\n")
    assert workflow.settings.tracker.active_states == ("Todo", "In Progress")
    assert {one.hint for one in workflow.warnings} == {
        "write interval_ms: 9",
        'write active_states: ["Todo", "In Progress"]',
    }


@pytest.mark.parametrize("written", ["'Done, Closed'", '"Done,"', '" Done ,, Closed "'])
def test_names_between_commas_are_a_list(parse: Parse, written: str) -> None:
    settings, warnings = read(parse, f"tracker:\n  kind: memory\n  terminal_states: {written}\n")
    assert settings.tracker.terminal_states[0] == "Done"
    assert warnings == [(WarningCode.OUTDATED_FORM, "/repo/WORKFLOW.md:4")]


def test_what_is_written_as_it_should_be_is_no_warning(parse: Parse) -> None:
    text = (
        "tracker: {kind: memory, active_states: [Todo]}\npolling: {interval_ms: 9}\nagent: {max_turns: 3}\n"
    )
    assert read(parse, text)[1] == []


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}polling: {{interval_ms: '0'}}\n",
        f"{HEAD}polling: {{interval_ms: '-5'}}\n",
        f"{HEAD}polling: {{interval_ms: '5s'}}\n",
        f"{HEAD}polling: {{interval_ms: '1.5'}}\n",
        f"{HEAD}polling: {{interval_ms: ''}}\n",
        f"{HEAD}polling: {{interval_ms: '٤٥'}}\n",
        f"{HEAD}polling: {{interval_ms: '{'9' * 40}'}}\n",
        f"{HEAD}polling: {{interval_ms: $INTERVAL}}\n",
        f"{HEAD}hooks: {{timeout_ms: '60000'}}\n",
        f"{HEAD}codex: {{turn_timeout_ms: '60000'}}\n",
        f"{HEAD}agent: {{max_turns: 'true'}}\n",
        "tracker: {kind: memory, active_states: ''}\n",
        "tracker: {kind: memory, active_states: Todo}\n",
        "tracker: {kind: memory, active_states: ' , '}\n",
        "tracker: {kind: memory, active_states: $STATES}\n",
        "tracker: {kind: memory, required_labels: 'a, b'}\n",
    ],
)
def test_any_other_text_is_an_error_as_before(refuse: Refuse, text: str) -> None:
    (failure,) = refuse(f"---\n{text}---\nDo it.\n")
    assert failure.where is not None
