"""The contract of trackers on the Markdown board, over boards that nobody would write by hand."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symphony.domain import Issue, template_view
from symphony.frontmatter import quote
from symphony.trackers.base import TrackerError
from symphony.trackers.markdown import BoardConfig, MarkdownTracker

SCALARS = st.one_of(
    st.integers(-9, 9).map(str),
    st.text(max_size=12).map(quote),
    st.sampled_from(["[]", "{}", "~", '""', "[[a]]", "{a: b}", "2026-11-27T10:15:00Z", "true", "[a, ~, 3]"]),
)
OPTIONAL = st.dictionaries(st.sampled_from(["labels", "priority", "assignee", "created", "custom"]), SCALARS)

STATES = st.sampled_from(["Todo", "todo", "Done", "Backlog"])


def _text(front: Mapping[str, str], *, title: str = "A title", state: str = "Todo") -> str:
    lines = "".join(f"{key}: {value}\n" for key, value in front.items())
    return f"---\ntitle: {quote(title)}\nstate: {quote(state)}\n{lines}---\nDo it.\n"


def _fetch(files: Mapping[str, str], states: tuple[str, ...]) -> tuple[Issue, ...]:
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            (Path(directory) / f"{name}.md").write_text(text, encoding="utf-8")
        tracker = MarkdownTracker(BoardConfig(path=Path(directory)))
        return tuple(anyio.run(tracker.fetch_issues_by_states, states))


@pytest.mark.conformance("T-4")
@given(OPTIONAL)
@settings(deadline=None)
def test_whatever_stands_in_optional_fields_the_required_ones_stay_whole(front: dict[str, str]) -> None:
    (issue,) = _fetch({"SYM-1": _text(front, title="Kept: as it is", state="todo")}, ("Todo",))

    assert (issue.id, issue.identifier, issue.title) == ("SYM-1", "SYM-1", "Kept: as it is")
    assert issue.state.casefold() == "todo"
    assert issue.priority in {None, 1, 2, 3, 4}
    assert issue.created_at is None or issue.created_at.tzinfo is not None
    assert issue.assignee_id is None or issue.assignee_id.strip()
    assert issue.dispatchable is True


@pytest.mark.conformance("T-3")
@given(st.lists(st.text(st.characters(blacklist_categories=("Cc", "Cs")), max_size=8), max_size=6))
@settings(deadline=None)
def test_labels_of_any_board_are_lower_case_trimmed_and_unique(labels: list[str]) -> None:
    listed = ", ".join(quote(label) for label in labels)
    (issue,) = _fetch({"SYM-1": _text({"labels": f"[{listed}]"})}, ("Todo",))

    assert list(issue.labels) == list(dict.fromkeys(issue.labels))
    assert all(label and label == label.strip().lower() for label in issue.labels)
    assert set(issue.labels) == {label.strip().lower() for label in labels} - {""}


@pytest.mark.conformance("T-1")
@given(
    states=st.dictionaries(st.integers(1, 30), STATES, max_size=9),
    wanted=st.sets(st.sampled_from(["TODO ", "done", "Backlog"])),
)
@settings(deadline=None)
def test_a_list_is_exactly_what_stands_in_the_states_in_the_order_of_their_names(
    states: dict[int, str], wanted: set[str]
) -> None:
    files = {f"SYM-{number}": _text({}, state=state) for number, state in states.items()}
    found = _fetch(files, tuple(wanted))

    asked = {state.strip().casefold() for state in wanted}
    expected = sorted(f"SYM-{number}" for number, state in states.items() if state.casefold() in asked)
    assert [issue.id for issue in found] == expected


@pytest.mark.conformance("T-7")
def test_what_the_board_hands_on_can_be_written_as_json_and_holds_no_secret() -> None:
    (issue,) = _fetch({"SYM-1": _text({"custom": "{token: hunter2}"})}, ("Todo",))

    assert issue.native_ref is None
    assert "hunter2" not in json.dumps(template_view(issue))


@pytest.mark.conformance("T-5")
@pytest.mark.asyncio
async def test_a_refresh_names_the_culprit_among_many(tmp_path: Path) -> None:
    for name in ("SYM-1", "SYM-2", "SYM-3"):
        await anyio.Path(tmp_path / f"{name}.md").write_text(_text({}))
    await anyio.Path(tmp_path / "SYM-2.md").write_text("---\ntitle: no state\n---\n")
    tracker = MarkdownTracker(BoardConfig(path=tmp_path))

    found = await tracker.fetch_issues_by_ids(["SYM-3", "SYM-1"])
    assert {issue.id for issue in found} == {"SYM-1", "SYM-3"}
    with pytest.raises(TrackerError) as caught:
        await tracker.fetch_issues_by_ids(["SYM-1", "SYM-2", "SYM-3"])
    assert caught.value.culprits == frozenset({"SYM-2"})
    assert "SYM-2.md" in caught.value.failure.line
