"""Settings of trackers over HTTP: where values come from, and how mistakes are reported."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from typing_extensions import override

from symphony.config import Secret, TrackerSettings
from symphony.domain import Category
from symphony.trackers.base import TrackerConfigError
from symphony.trackers.provider import (
    Address,
    Credential,
    ProviderSettings,
    ServiceAccess,
    StandInVariable,
    matches,
)

ENVIRONMENT = {"TOKEN": "secret-1", "OTHER": "secret-2", "EMPTY": "", "WHO": "ann"}
DEFAULT = "https://default.example.test"


class Example(ProviderSettings):
    kind = "example"
    closed_states = ("closed",)

    token: Annotated[Credential, StandInVariable("TOKEN")]
    needed: Annotated[str, StandInVariable("WHO"), matches("[a-z]+", "be letters")]
    text: str = "z"
    address: Address = DEFAULT
    flag: bool = False

    @property
    @override
    def access(self) -> ServiceAccess:
        return ServiceAccess(base=self.address, credential=self.token.reveal(), headers={})


def read(
    states: Mapping[str, Any] | None = None, environment: Mapping[str, str] = ENVIRONMENT, **provider: Any
) -> Example:
    chosen = {"active_states": ("Todo",), "terminal_states": ("Done",)} if states is None else states
    return Example.read(TrackerSettings(kind="example", provider=provider, **chosen), environment)


def problems(**given: Any) -> list[tuple[str, Category]]:
    """The settings with mistakes, and their categories."""
    with pytest.raises(TrackerConfigError) as caught:
        read(**given)
    failures = [problem.failure for problem in caught.value.problems]
    assert all(failure.hint for failure in failures)
    return [(failure.message.split()[0].rpartition(".")[2], failure.category) for failure in failures]


INVALID, NO_SECRET = Category.INVALID_TRACKER_CONFIG, Category.MISSING_TRACKER_SECRET


# --- credentials ---


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
    found = read(**({} if value is None else {"token": value}))
    assert found.token.reveal() == expected
    assert expected not in repr(found)


@pytest.mark.parametrize(
    ("value", "category"),
    [
        ("$EMPTY", NO_SECRET),
        (" ", NO_SECRET),
        ([7], INVALID),
        ("with blank", NO_SECRET),
        ("line\nbreak", NO_SECRET),
        ("schlüssel", NO_SECRET),
    ],
)
def test_a_credential_that_is_none_is_reported_without_its_value(value: Any, category: Category) -> None:
    assert problems(token=value) == [("token", category)]
    with pytest.raises(TrackerConfigError) as caught:
        read(token=value)
    assert not isinstance(value, str) or not value.strip() or value not in caught.value.failure.message


def test_a_missing_credential_names_the_variable_to_set() -> None:
    with pytest.raises(TrackerConfigError) as caught:
        read(environment={"WHO": "ann"})
    failure = caught.value.failure
    assert failure.category is NO_SECRET
    assert failure.hint == "set TOKEN where the daemon starts, and write $TOKEN here"


def test_a_mistyped_reference_suggests_the_variable_that_is_set() -> None:
    with pytest.raises(TrackerConfigError) as caught:
        read(token="$SERVICE_TOKNE", environment={"SERVICE_TOKEN": "secret-1", "WHO": "ann"})
    assert "$SERVICE_TOKEN" in str(caught.value.failure.hint)
    assert "secret-1" not in str(caught.value.failure)


def test_variables_with_credentials_are_known_from_the_model() -> None:
    assert Example.secret_names() == {"TOKEN"}
    assert set(Example.provider_keys()) == {
        *("token", "needed", "text", "address", "flag"),
        *("insecure_http", "scope"),
    }


# --- texts ---


@pytest.mark.conformance("C-3")
@pytest.mark.parametrize(
    ("value", "expected"),
    [("$WHO", "ann"), ("$UNSET", "z"), (" x ", "x"), (5, "5"), (Secret("y"), "y"), (" ", "z"), (None, "z")],
)
def test_texts_resolve_variables_and_fall_back(value: Any, expected: str) -> None:
    assert read(**({} if value is None else {"text": value})).text == expected


def test_a_required_text_falls_back_to_its_variable() -> None:
    assert read().needed == "ann"
    assert read(needed="$UNSET").needed == "ann"
    with pytest.raises(TrackerConfigError) as caught:
        read(environment={"TOKEN": "secret-1"})
    assert caught.value.failure.message == "tracker.provider.needed is required"
    assert caught.value.failure.hint == "set it, or the variable WHO"


def test_all_mistakes_are_reported_at_once() -> None:
    wrong = {"needed": "a b", "text": [1], "address": "x", "flag": "yes", "scope": "world"}
    assert dict(problems(**wrong)) == dict.fromkeys(wrong, INVALID)
    assert problems(insecure_http="yes") == [("insecure_http", INVALID)]


# --- addresses ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("https://a.example.test/api/v3/", "https://a.example.test/api/v3"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("http://[::1]:3000/x", "http://[::1]:3000/x"),
    ],
)
def test_an_address_keeps_its_path(value: str, expected: str) -> None:
    assert read(address=value).address == expected


def test_plain_http_can_be_allowed() -> None:
    assert problems(address="http://a.example.test") == [("address", INVALID)]
    assert read(address="http://a.example.test", insecure_http=True).address == "http://a.example.test"


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
    assert problems(address=value) == [("address", INVALID)]


# --- states ---


def test_states_are_trimmed_and_unique() -> None:
    found = read({"active_states": (" Todo ", "todo", "Doing"), "terminal_states": ()})
    assert (found.active_states, found.terminal_states) == (("Todo", "Doing"), ())
    assert found.is_terminal("Closed")
    assert not found.is_terminal("Done")
    assert not found.is_terminal(None)


def test_states_without_a_default_must_be_set() -> None:
    with pytest.raises(TrackerConfigError) as caught:
        read({})
    assert [problem.location for problem in caught.value.problems] == [
        ("tracker", "active_states"),
        ("tracker", "terminal_states"),
    ]
