import json
from typing import Any

import msgspec
import pytest

from symphony.agents.claude.protocol import ControlRequest
from symphony.agents.claude.session import ControlAnswer, decide
from symphony.agents.events import ApprovalAnswered, InputRequired, LogNotice
from symphony.agents.session import OnApproval

POLICIES: tuple[OnApproval, ...] = ("decline", "accept", "block")


def ask(request: dict[str, Any], on_approval: OnApproval = "decline") -> ControlAnswer:
    raw = msgspec.Raw(json.dumps(request).encode())
    return decide(ControlRequest("q1", raw), on_approval)


def tool(name: str, given: Any, **more: Any) -> dict[str, Any]:
    return {"subtype": "can_use_tool", "tool_name": name, "input": given, **more}


def test_an_approval_is_declined_and_the_turn_goes_on() -> None:
    answer = ask(tool("Bash", {"command": "make"}))
    assert answer.response is not None
    assert (answer.response["behavior"], answer.response["interrupt"]) == ("deny", False)
    assert "no person can approve" in answer.response["message"]
    assert answer.event == ApprovalAnswered(kind="Bash", decision="decline")


def test_accepting_hands_back_what_was_asked_for() -> None:
    answer = ask(tool("Bash", {"command": "make"}), "accept")
    assert answer.response == {"behavior": "allow", "updatedInput": {"command": "make"}}
    assert answer.event == ApprovalAnswered(kind="Bash", decision="accept")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (
            tool("Bash", {"command": "make"}, decision_reason="needs it"),
            "approval required for Bash: make: needs it",
        ),
        (tool("Write", {"file_path": "/etc/x", "content": "c"}), "approval required for Write: /etc/x"),
        (tool("ExitPlanMode", {"plan": "first this"}), "approval required for ExitPlanMode: first this"),
        (tool("Odd", "no object"), "approval required for Odd"),
    ],
)
def test_blocking_ends_the_turn_and_says_what_was_asked_for(request_: dict[str, Any], reason: str) -> None:
    answer = ask(request_, "block")
    assert answer.response is not None
    assert (answer.response["behavior"], answer.response["interrupt"]) == ("deny", True)
    assert answer.event == InputRequired(reason=reason, approval=True)


def _request_of(answer: ControlAnswer) -> str:
    assert isinstance(answer.event, InputRequired)
    assert answer.event.request is not None
    return answer.event.request


@pytest.mark.parametrize(("approved", "behavior"), [(True, "allow"), (False, "deny")])
def test_a_person_decides_exactly_one_request(behavior: str, *, approved: bool) -> None:
    make = tool("Bash", {"command": "make", "description": "first words"})
    decisions = {_request_of(ask(make, "block")): approved}

    def again(request: dict[str, Any]) -> ControlAnswer:
        raw = msgspec.Raw(json.dumps(request).encode())
        return decide(ControlRequest("q2", raw), "block", decisions)

    same = again(tool("Bash", {"command": "make", "description": "other words"}))
    assert same.response is not None
    assert same.response["behavior"] == behavior
    assert same.response.get("interrupt") is not True
    for other in (
        tool("Bash", {"command": "make all"}),
        tool("Bash", {"command": "make", "run_in_background": True}),
        tool("Write", {"command": "make"}),
    ):
        assert isinstance(again(other).event, InputRequired), other


@pytest.mark.parametrize("on_approval", POLICIES)
def test_our_own_tools_are_always_granted_and_questions_go_to_people(on_approval: OnApproval) -> None:
    granted = ask(tool("mcp__symphony__board_move", {"state": "Done"}), on_approval)
    assert granted == ControlAnswer(response={"behavior": "allow", "updatedInput": {"state": "Done"}})
    questions = [
        {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}, {"label": 3}, "x"]},
        {"question": "Why?"},
        {"question": 7},
        "none",
    ]
    asked = ask(tool("AskUserQuestion", {"questions": questions}), on_approval)
    assert asked.response is not None
    assert asked.response["interrupt"] is True
    assert asked.event == InputRequired(
        reason="the agent asks: Which?; Why?", question="Which? (A / B)\nWhy?"
    )


@pytest.mark.parametrize("given", [{}, {"questions": 7}, {"questions": [{}]}, None])
def test_a_question_without_words_is_one_all_the_same(given: Any) -> None:
    assert ask(tool("AskUserQuestion", given)).event == InputRequired(
        reason="the agent asks: a question without words"
    )


@pytest.mark.parametrize("subtype", ["hook_callback", "elicitation", "mcp_message", None])
def test_what_nobody_knows_is_refused(subtype: str | None) -> None:
    answer = ask({"subtype": subtype}, "accept")
    text = f"unsupported request {subtype}"
    assert answer == ControlAnswer(
        error=text, event=LogNotice(level="warning", message=f"{text} was refused")
    )


def test_what_cannot_be_read_is_refused() -> None:
    answer = decide(ControlRequest("q1", msgspec.Raw(b'"\xff"')), "accept")
    assert answer.error is not None
    assert answer.error.startswith("unreadable request")
