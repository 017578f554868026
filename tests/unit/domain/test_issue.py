import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scheduling import make_issue
from symphony.domain import (
    Blocker,
    Issue,
    PeopleComments,
    PersonComment,
    Selection,
    is_routable,
    issues_named,
    normalise_labels,
    normalise_state,
    template_view,
)


@pytest.mark.conformance("T-8")
def test_nothing_is_dispatchable_unless_the_adapter_says_so() -> None:
    with pytest.raises(TypeError, match="dispatchable"):
        Issue(id="1", identifier="A-1", title="t", state="Todo")  # type: ignore[call-arg]


def test_states_are_compared_without_case_and_outer_space() -> None:
    assert normalise_state("  In Progress\t") == "in progress"


@pytest.mark.conformance("T-3")
def test_labels_are_trimmed_lowered_and_unique_in_order() -> None:
    assert normalise_labels([" Bug", "ui", "", "BUG ", "  "]) == ("bug", "ui")


@pytest.mark.conformance("T-3")
@given(st.lists(st.text()))
def test_normalising_labels_twice_changes_nothing(labels: list[str]) -> None:
    once = normalise_labels(labels)
    assert normalise_labels(once) == once


def test_an_issue_is_routable_when_it_has_every_required_label() -> None:
    issue = make_issue(labels=("ready", "ui"))
    assert is_routable(issue, [])
    assert is_routable(issue, [" Ready ", "UI"])
    assert not is_routable(issue, ["ready", "api"])


def test_a_blank_required_label_is_a_label_no_issue_has() -> None:
    assert not is_routable(make_issue(labels=("ready",)), ["ready", " "])


def test_an_issue_the_tracker_withholds_is_not_routable() -> None:
    assert not is_routable(make_issue(dispatchable=False), [])


@pytest.mark.conformance("P-1")
def test_a_template_sees_every_field_as_plain_data() -> None:
    issue = make_issue(
        native_ref={"number": 7},
        labels=("bug",),
        blocked_by=(Blocker(id="2", identifier="SYM-2", state="Done"),),
        updated_at=datetime(2025, 2, 3, 4, 5, tzinfo=UTC),
    )
    view = template_view(issue)
    assert set(view) == {*Issue.__dataclass_fields__, "comments", "new_comments"}
    assert view["labels"] == ["bug"]
    assert view["blocked_by"] == [{"id": "2", "identifier": "SYM-2", "state": "Done"}]
    assert view["native_ref"] == {"number": 7}
    assert view["updated_at"] == "2025-02-03T04:05:00+00:00"
    assert json.loads(json.dumps(view)) == view


def test_missing_fields_are_none_in_templates() -> None:
    view = template_view(make_issue(created_at=None))
    assert view["created_at"] is None
    assert view["description"] is None
    assert view["native_ref"] is None
    assert view["blocked_by"] == []


def test_a_selection_takes_issues_by_state_code_and_text() -> None:
    issue = make_issue("1", state="In Progress", title="Straße")
    assert Selection(text="sym-1").includes(issue, "no_slot")
    assert Selection(text="STRASSE").includes(issue, "no_slot")
    assert not Selection(text="2").includes(issue, "no_slot")
    assert Selection().includes(issue, "no_slot")
    assert Selection(states=frozenset({" in progress"})).includes(issue, "no_slot")
    assert not Selection(states=frozenset({"Todo"})).includes(issue, "no_slot")
    assert not Selection(codes=frozenset({"blocked"})).includes(issue, "no_slot")


def test_skills_are_called_for_by_labels() -> None:
    assert make_issue(labels=("skill:release", "bug")).called_skills == ("release",)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("gh-7", ("GH-7",)),
        ("7", ("GH-7", "SYM-7")),
        ("#17", ("GH-17",)),
        ("12", ("12",)),
        ("8", ()),
        ("x", ()),
    ],
)
def test_an_issue_is_named_by_its_identifier_or_its_number(wanted: str, found: tuple[str, ...]) -> None:
    assert issues_named(wanted, ["GH-7", "SYM-7", "GH-17", "12", "GH-7"]) == found


def test_comments_are_plain_data_in_templates() -> None:
    told = PersonComment(author="ann", created_at=datetime(2026, 1, 2, tzinfo=UTC), body="Blue.")
    timeless = PersonComment(author="bob", created_at=None, body="Red.")
    view = template_view(make_issue(), PeopleComments(known=(timeless, told), new=(told,)))
    assert view["comments"][0] == {"author": "bob", "created_at": None, "body": "Red."}
    assert view["new_comments"] == [
        {"author": "ann", "created_at": "2026-01-02T00:00:00+00:00", "body": "Blue."}
    ]
