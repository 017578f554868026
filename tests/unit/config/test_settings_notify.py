"""`notify`: what is wrong with a target is a warning with its place, and the rest of the file holds."""

from typing import TYPE_CHECKING

import pytest

from symphony.config import NOTIFY_EVENTS, WarningCode

if TYPE_CHECKING:
    from unit.config.conftest import Parse

GOOD = "{name: good, kind: slack, url: $URL}"


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("7", "notify"),
        (f"[{GOOD}, 7]", "notify[1]"),
        (f"[{GOOD}, {{kind: slack, url: $URL}}]", "notify[1].name"),
        (f"[{GOOD}, {{name: a b, kind: slack}}]", "notify[1].name"),
        (f"[{GOOD}, {{name: good, kind: slack}}]", "notify[1].name"),
        (f"[{GOOD}, {{name: x, kind: pigeon}}]", "notify[1].kind"),
        (f"[{GOOD}, {{name: x, kind: slack, timeout_ms: 0}}]", "notify[1].timeout_ms"),
        (f"[{GOOD}, {{name: x, kind: slack, quiet_hours: '22-7'}}]", "notify[1].quiet_hours"),
        (f"[{GOOD}, {{name: x, kind: command, command: mail}}]", "notify[1].command"),
        (f"[{GOOD}, {{name: x, kind: slack, on: ready}}]", "notify[1].on"),
    ],
)
def test_a_target_that_is_wrong_is_left_out_with_a_warning(parse: "Parse", given: str, place: str) -> None:
    workflow = parse(
        f"---\ntracker: {{kind: markdown}}\nnotify: {given}\n---\nx", environment={"URL": "https://x.example"}
    )
    (warning,) = workflow.warnings
    assert warning.code is WarningCode.IGNORED_NOTIFICATION
    assert warning.message.startswith(f"{place} ")
    assert warning.where == "/repo/WORKFLOW.md:3"
    assert [target.name for target in workflow.settings.notify] == (["good"] if "good" in given else [])
    if workflow.settings.notify:
        assert workflow.settings.notify[0].on == NOTIFY_EVENTS
        assert "URL" in workflow.secret_names


def test_quiet_hours_are_two_times_of_day(parse: "Parse") -> None:
    given = "[{name: x, kind: slack, url: $URL, quiet_hours: '22:00-07:00'}]"
    workflow = parse(f"---\ntracker: {{kind: markdown}}\nnotify: {given}\n---\nx", environment={"URL": "u"})
    assert workflow.settings.notify[0].quiet_hours == "22:00-07:00"


def test_an_unknown_event_and_an_unknown_key_leave_the_rest_of_the_target(parse: "Parse") -> None:
    given = "[{name: x, kind: slack, url: $URL, on: [redy, blocked], colour: red}]"
    workflow = parse(
        f"---\ntracker: {{kind: markdown}}\nnotify: {given}\n---\nx", environment={"URL": "https://x.example"}
    )
    event, key = workflow.warnings
    assert (event.message, event.hint and event.hint[:21]) == (
        'notify[0].on[0] is no event: "redy"',
        'did you mean "ready"?',
    )
    assert key.message.startswith("notify[0].colour ")
    assert workflow.settings.notify[0].on == ("blocked",)
