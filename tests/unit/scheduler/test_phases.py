"""The phase of the work on an issue: by rules, judged before every turn."""

from typing import Any

import pytest

from harness.scheduling import Story, make_issue, make_settings
from symphony.domain import Phase
from symphony.scheduler import ContinueRun, PhaseRule, SettingsChanged, StartRun, phase_of

REVIEW = PhaseRule(phase="REVIEW", state="in review")
TEST = PhaseRule(phase="TEST", label="tests")
BOTH = PhaseRule(phase="PLAN", label="plan", state="todo")
RULES = (BOTH, REVIEW, TEST)


@pytest.mark.parametrize(
    ("labels", "state", "phase", "reason"),
    [
        ((), "Todo", "IMPLEMENT", "the default (agent.phases.default)"),
        (("plan", "tests"), " TODO", "PLAN", "the label 'plan' and state 'todo' (agent.phases.rules[0])"),
        (("plan", "Tests "), "In Progress", "TEST", "the label 'tests' (agent.phases.rules[2])"),
        (("tests",), "In Review", "REVIEW", "the state 'in review' (agent.phases.rules[1])"),
    ],
)
def test_the_first_rule_that_fits_names_the_phase(
    labels: tuple[str, ...], state: str, phase: str, reason: str
) -> None:
    settings = make_settings(phase="IMPLEMENT", phase_rules=RULES)
    assert phase_of(make_issue(labels=labels, state=state), settings) == Phase(name=phase, reason=reason)


def test_an_issue_that_no_rule_fits_has_no_phase_without_a_default() -> None:
    assert phase_of(make_issue(), make_settings(phase_rules=RULES)) is None


def test_the_phase_is_judged_before_every_turn_with_the_fresh_issue_and_the_present_settings() -> None:
    settings: dict[str, Any] = {"phase": "IMPLEMENT", "phase_rules": (TEST,), "max_turns": 9}
    story = Story(make_issue(), **settings).begin()
    (start,) = story.said(StartRun)
    assert start.phase is not None
    assert start.phase.name == "IMPLEMENT"

    story.streams()
    story.put("1", labels=("tests",))
    assert story.state.running["1"].phase == start.phase  # a running turn keeps its phase
    story.turn_ends()
    assert [go_on.phase and go_on.phase.name for go_on in story.said(ContinueRun)] == ["TEST"]
    assert story.state.running["1"].phase == story.said(ContinueRun)[0].phase

    story.forget()
    story.tell(SettingsChanged(settings=make_settings(max_turns=9)))
    story.streams().turn_ends()
    assert [go_on.phase for go_on in story.said(ContinueRun)] == [None]
