import re
from typing import Any

import pytest

from symphony.config import Secret
from symphony.domain import Category
from symphony.trackers.base import TrackerConfigError
from symphony.trackers.provider import ProviderReader

ENVIRONMENT = {"TOKEN": "secret-1", "OTHER": "secret-2", "EMPTY": "", "WHO": "ann"}


def reader(**provider: Any) -> ProviderReader:
    return ProviderReader("service", provider, ENVIRONMENT)


def problems(made: ProviderReader) -> list[str]:
    try:
        made.done()
    except TrackerConfigError as error:
        return [problem.failure.message for problem in error.problems]
    return []


@pytest.mark.conformance("C-3")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "secret-1"),
        ("$OTHER", "secret-2"),
        ("$UNSET", "secret-1"),
        (Secret("literal"), "literal"),
        ("literal", "literal"),
    ],
)
def test_a_credential_is_found(value: Any, expected: str) -> None:
    made = reader(**({} if value is None else {"token": value}))
    assert made.secret("token", variable="TOKEN") == expected
    made.done()


@pytest.mark.parametrize("value", ["$EMPTY", " ", 7, "with blank", "line\nbreak", "schlüssel"])
def test_a_credential_that_is_none_is_told_without_its_value(value: Any) -> None:
    made = reader(token=value)
    made.secret("token", variable="TOKEN")
    (message,) = problems(made)
    assert message.startswith("tracker.provider.token ")
    assert str(value).strip() == "" or str(value) not in message or value == 7


def test_a_missing_credential_says_which_variable_to_set() -> None:
    made = ProviderReader("service", {}, {})
    made.secret("token", variable="TOKEN")
    with pytest.raises(TrackerConfigError) as caught:
        made.done()
    failure = caught.value.failure
    assert failure.category is Category.MISSING_TRACKER_SECRET
    assert failure.hint == "set TOKEN where the daemon starts, and write $TOKEN here"


def test_a_reference_that_is_mistyped_names_the_variable_that_was_meant() -> None:
    made = ProviderReader("service", {"token": "$SERVICE_TOKNE"}, {"SERVICE_TOKEN": "secret-1"})
    made.secret("token", variable="ANOTHER")
    with pytest.raises(TrackerConfigError) as caught:
        made.done()
    assert "$SERVICE_TOKEN" in str(caught.value.failure.hint)
    assert "secret-1" not in str(caught.value.failure)


@pytest.mark.conformance("C-3")
def test_texts_resolve_variables_and_fall_back() -> None:
    made = reader(a="$WHO", b="$UNSET", c=" x ", d=5, e=Secret("y"), f=[1])
    assert made.text("a") == "ann"
    assert made.text("b", variable="WHO") == "ann"
    assert made.text("b", default="z") == "z"
    assert (made.text("c"), made.text("d"), made.text("e"), made.text("g")) == ("x", "5", "y", None)
    assert made.text("f", default="z") == "z"
    assert problems(made) == ["tracker.provider.f must be a text"]


def test_what_is_needed_is_told_with_its_variable_and_rule() -> None:
    made = reader(b="a b")
    assert made.needed("a", variable="NOWHERE") == ""
    made.needed("b", rule=re.compile("[a-z]+"), must="be letters")
    assert problems(made) == ["tracker.provider.a is required", "tracker.provider.b must be letters"]


def test_a_value_of_another_type_is_told_once() -> None:
    made = reader(a={}, insecure_http="yes")
    assert made.needed("a") == ""
    assert problems(made) == [
        "tracker.provider.insecure_http must be true or false",
        "tracker.provider.a must be a text",
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("https://a.example.test/api/v3/", "https://a.example.test/api/v3"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("http://[::1]:3000/x", "http://[::1]:3000/x"),
    ],
)
def test_an_address_keeps_its_path(value: str, expected: str) -> None:
    made = reader(api_url=value)
    assert made.address("api_url", "https://default.example.test") == expected
    made.done()


@pytest.mark.parametrize(
    "value",
    [
        "http://a.example.test",
        "http://127.0.0.1.example.test",
        "https://u:p@a.example.test",
        "a.example.test",
        "https://a.example.test?x=1",
        "https://a.example.test/#x",
        "https://a b",
        "file:///etc/passwd",
        7.5,
    ],
)
def test_an_address_that_would_leak_or_mislead_is_refused(value: Any) -> None:
    made = reader(api_url=value)
    made.address("api_url", "https://default.example.test")
    assert len(problems(made)) == 1


def test_choices_flags_numbers_and_parts() -> None:
    made = reader(a="x", b=True, c=3, d={"k": 1})
    assert (made.choice("a", ("x", "y"), default="y"), made.flag("b", default=False)) == ("x", True)
    assert (made.whole("c"), made.whole("none", default=2), made.part("d")) == (3, 2, {"k": 1})
    assert made.given("a")
    assert not made.given("z")
    made.done()
    wrong = reader(a="z", b="yes", c=0, d=[1])
    wrong.choice("a", ("x", "y"), default="y")
    wrong.flag("b", default=False)
    wrong.whole("c")
    wrong.part("d")
    assert len(problems(wrong)) == 4


def test_states_are_trimmed_and_unique() -> None:
    made = reader()
    assert made.states("active_states", [" Todo ", "todo", " ", "Done"], default=("X",)) == ("Todo", "Done")
    assert made.states("active_states", None, default=("X",)) == ("X",)
    assert made.states("active_states", [], default=("X",)) == ()
    assert made.states("terminal_states", None, default=None) == ()
    assert problems(made) == ["tracker.terminal_states must be set"]
