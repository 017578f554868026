import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.agents.codex.session import Policy, decide, tool_answer
from symphony.agents.events import AgentEvent, ApprovalAnswered, InputRequired, LogNotice, ToolCalled
from symphony.agents.session import OnApproval, ToolCall
from symphony.agents.wire import RequestAnswer, ServerRequest
from symphony.domain import ToolResult

CURRENT = ["item/commandExecution/requestApproval", "item/fileChange/requestApproval"]
LEGACY = ["execCommandApproval", "applyPatchApproval"]


def policy(on_approval: OnApproval = "decline", approval_policy: Any = "never") -> Policy:
    return Policy(approval_policy=approval_policy, on_approval=on_approval, tool_names=frozenset({"board"}))


def asked(method: str, params: Any, **how: Any) -> RequestAnswer | ToolCall:
    return decide(ServerRequest(3, method, msgspec.Raw(json.dumps(params).encode())), policy(**how))


def answer(method: str, params: Any, **how: Any) -> RequestAnswer:
    decision = asked(method, params, **how)
    assert isinstance(decision, RequestAnswer)
    return decision


@pytest.mark.conformance("A-9")
@pytest.mark.parametrize("method", CURRENT)
def test_an_approval_is_declined_unless_configured_otherwise(method: str) -> None:
    found = answer(method, {"command": "rm x"})
    assert found.result == {"decision": "decline"}
    assert isinstance(found.event, ApprovalAnswered)
    assert found.event.decision == "decline"


EDIT = [{"path": "a", "kind": "update", "diff": "+1"}]
OTHER_EDIT = [{"path": "a", "kind": "update", "diff": "+2"}]


@pytest.mark.parametrize(
    ("method", "params", "others", "approved"),
    [
        (
            CURRENT[0],
            {"command": "make", "cwd": "/w"},
            {"command": "rm", "cwd": "/w"},
            {"decision": "accept"},
        ),
        (
            CURRENT[0],
            {"command": "make", "cwd": "/w"},
            {"command": "make", "cwd": "/"},
            {"decision": "accept"},
        ),
        (CURRENT[1], {"itemId": "edit"}, {"itemId": "other"}, {"decision": "accept"}),
        (LEGACY[0], {"command": ["make"]}, {"command": ["make", "-B"]}, {"decision": "approved"}),
        (LEGACY[1], {"fileChanges": {"a": 1}}, {"fileChanges": {"a": 2}}, {"decision": "approved"}),
        (
            "item/permissions/requestApproval",
            {"permissions": {"network": True}},
            {"permissions": {"network": True, "root": True}},
            {"permissions": {"network": True}, "scope": "turn"},
        ),
    ],
    ids=["command", "directory", "edit", "old-command", "old-patch", "permissions"],
)
def test_a_person_decides_exactly_one_request(
    method: str, params: dict[str, Any], others: dict[str, Any], approved: dict[str, Any]
) -> None:
    def ask(what: dict[str, Any], item: str, decisions: Mapping[str, bool]) -> RequestAnswer:
        ids = {"threadId": item, "turnId": item, "itemId": item, "reason": f"because {item}"} | what
        raw = msgspec.Raw(json.dumps(ids).encode())
        changes = {"edit": EDIT, "again": EDIT, "other": OTHER_EDIT}
        bound = replace(policy("block"), decisions=decisions, changes=changes)
        found = decide(ServerRequest(3, method, raw), bound)
        assert isinstance(found, RequestAnswer)
        return found

    asked_first = ask(params, "one", {}).event
    assert isinstance(asked_first, InputRequired)
    assert asked_first.request is not None
    decisions = {asked_first.request: True}
    same = {**params, "itemId": "again"} if "itemId" in params else params
    assert ask(same, "two", decisions).result == approved
    assert isinstance(ask(others, "three", decisions).event, InputRequired)
    denied = ask(same, "four", {asked_first.request: False}).event
    assert isinstance(denied, ApprovalAnswered)
    assert denied.decision == "decline"


def test_the_change_of_an_unknown_item_cannot_be_approved() -> None:
    event = answer(CURRENT[1], {"itemId": "unknown"}, on_approval="block").event
    assert isinstance(event, InputRequired)
    assert event.request is None


@pytest.mark.conformance("A-9")
@pytest.mark.parametrize("method", LEGACY)
def test_the_older_approvals_are_declined_in_their_own_words(method: str) -> None:
    result = answer(method, {"command": ["rm", "x"]}).result
    assert result is not None
    assert set(result["decision"]) == {"denied"}


@pytest.mark.conformance("A-9")
@pytest.mark.parametrize("method", CURRENT)
def test_accepting_holds_for_the_session_where_that_is_offered(method: str) -> None:
    assert answer(method, {}, on_approval="accept").result == {"decision": "acceptForSession"}
    offered = {"availableDecisions": ["accept", "cancel"]}
    assert answer(method, offered, on_approval="accept").result == {"decision": "accept"}
    both = {"availableDecisions": [{"acceptWithExecpolicyAmendment": {}}, "acceptForSession", "accept"]}
    assert answer(method, both, on_approval="accept").result == {"decision": "acceptForSession"}


@pytest.mark.conformance("A-9")
@pytest.mark.parametrize("method", LEGACY)
def test_accepting_the_older_approvals_holds_for_the_session(method: str) -> None:
    found = answer(method, {}, on_approval="accept")
    assert found.result == {"decision": "approved_for_session"}
    assert isinstance(found.event, ApprovalAnswered)
    assert found.event.decision == "accept"


@pytest.mark.conformance("A-9")
@pytest.mark.parametrize(
    ("method", "word"), [*((m, "cancel") for m in CURRENT), *((m, "abort") for m in LEGACY)]
)
def test_blocking_stops_the_turn_and_asks_for_a_person(method: str, word: str) -> None:
    found = answer(method, {"command": ["rm", "x"], "reason": "to clean"}, on_approval="block")
    assert found.result == {"decision": word}
    assert isinstance(found.event, InputRequired)
    assert found.event.approval
    assert "rm x: to clean" in found.event.reason


def test_permissions_are_granted_as_asked_or_not_at_all() -> None:
    method, wanted = "item/permissions/requestApproval", {"permissions": {"network": {"enabled": True}}}
    assert answer(method, wanted).result == {"permissions": {}, "scope": "turn"}
    assert answer(method, wanted, on_approval="accept").result == {**wanted, "scope": "session"}
    assert answer(method, {}, on_approval="accept").result == {"permissions": {}, "scope": "session"}
    blocked = answer(method, wanted, on_approval="block")
    assert blocked.result == {"permissions": {}, "scope": "turn"}
    assert isinstance(blocked.event, InputRequired)


def question(name: str, *labels: str) -> dict[str, Any]:
    return {"id": name, "question": f"{name}?", "options": [{"label": label} for label in labels]}


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        (("Deny", "Approve Once", "Approve this Session"), "Approve this Session"),
        (("Deny", "Approve Once"), "Approve Once"),
        (("Deny", "allow it", "Approve all"), "allow it"),
    ],
)
def test_mcp_approvals_are_given_under_never_by_preference(labels: tuple[str, ...], chosen: str) -> None:
    name = "mcp_tool_call_approval_1"
    found = answer("item/tool/requestUserInput", {"questions": [question(name, *labels)]})
    assert found.result == {"answers": {name: {"answers": [chosen]}}}
    assert isinstance(found.event, ApprovalAnswered)


@pytest.mark.conformance("A-11")
@pytest.mark.parametrize(
    ("questions", "approval_policy"),
    [
        ([question("mcp_tool_call_approval_1", "Approve Once")], "on-request"),
        ([question("mcp_tool_call_approval_1", "Approve Once"), question("colour", "allow red")], "never"),
        ([question("mcp_tool_call_approval_1", "Deny")], "never"),
        ([{"id": "mcp_tool_call_approval_1", "question": "?", "options": None}], "never"),
        ([], "never"),
        (None, "never"),
    ],
)
def test_any_other_question_needs_a_person(questions: Any, approval_policy: str) -> None:
    params = {"questions": questions}
    found = answer("item/tool/requestUserInput", params, approval_policy=approval_policy)
    assert found.error is not None
    assert isinstance(found.event, InputRequired)
    assert not found.event.approval


@pytest.mark.conformance("A-11")
def test_an_elicitation_is_declined_and_needs_a_person() -> None:
    found = answer("mcpServer/elicitation/request", {"message": "Your name?"})
    assert found.result == {"action": "decline", "content": None}
    assert found.event == InputRequired(reason="MCP elicitation: Your name?")
    unworded = answer("mcpServer/elicitation/request", {})
    assert unworded.event == InputRequired(reason="MCP elicitation: an MCP server asks for input")


MAY_IT_RUN = {
    "message": "May ask run?",
    "_meta": {"codex_approval_kind": "mcp_tool_call", "tool_name": "ask"},
}


@pytest.mark.parametrize(
    ("on_approval", "result", "event"),
    [
        (
            "accept",
            {"action": "accept", "content": {}},
            ApprovalAnswered(kind="mcpToolCall", decision="accept"),
        ),
        (
            "decline",
            {"action": "decline", "content": None},
            ApprovalAnswered(kind="mcpToolCall", decision="decline"),
        ),
        (
            "block",
            {"action": "decline", "content": None},
            InputRequired(
                reason="approval required for mcpToolCall: ask: May ask run?",
                approval=True,
            ),
        ),
    ],
)
def test_whether_a_tool_of_an_mcp_server_may_run_is_an_approval_and_no_form(
    on_approval: OnApproval, result: dict[str, Any], event: AgentEvent
) -> None:
    found = answer("mcpServer/elicitation/request", MAY_IT_RUN, on_approval=on_approval)
    assert (found.result, found.event) == (result, event)


def test_a_tool_of_ours_is_to_be_run() -> None:
    params = {"tool": "board", "arguments": {"a": 1}, "namespace": None, "callId": "c"}
    assert asked("item/tool/call", params) == ToolCall(name="board", arguments={"a": 1})
    assert asked("item/tool/call", {"tool": "board", "arguments": None}) == ToolCall(
        name="board", arguments={}
    )


@pytest.mark.conformance("A-10")
@pytest.mark.parametrize(
    "params",
    [
        {"tool": "other", "arguments": {}},
        {"tool": "board", "namespace": "x", "arguments": {}},
        {"tool": 3},
        {},
    ],
)
def test_an_unsupported_tool_fails_in_structure(params: Any) -> None:
    found = answer("item/tool/call", params)
    assert found.result is not None
    assert found.result["success"] is False
    error = json.loads(found.result["output"])["error"]
    assert error["supportedTools"] == ["board"]
    assert error["message"].startswith("unsupported tool")


@pytest.mark.conformance("A-13")
def test_arguments_that_are_no_object_fail_in_structure() -> None:
    found = answer("item/tool/call", {"tool": "board", "arguments": "x"})
    assert found.result is not None
    assert found.result["success"] is False
    assert found.event == ToolCalled(name="board", success=False)


def test_a_tools_answer_has_the_shape_of_both_generations() -> None:
    found = tool_answer("board", ToolResult(success=True, text="ok"))
    assert found.result == {
        "success": True,
        "output": "ok",
        "contentItems": [{"type": "inputText", "text": "ok"}],
    }


def test_the_time_is_told() -> None:
    before = int(time.time())
    told = answer("currentTime/read", {"threadId": "t"}).result
    assert told in [{"currentTimeAt": second} for second in range(before, int(time.time()) + 1)]


@pytest.mark.conformance("A-10")
@pytest.mark.parametrize(
    "method", ["account/chatgptAuthTokens/refresh", "attestation/generate", "what/is/this"]
)
def test_what_we_do_not_know_is_refused(method: str) -> None:
    found = answer(method, {})
    assert found.error == (-32601, f"unsupported request {method}")
    assert isinstance(found.event, LogNotice)


def test_params_that_cannot_be_read_are_refused() -> None:
    request = ServerRequest(1, "item/tool/call", msgspec.Raw(b'{"tool": "\xff"}'))
    found = decide(request, policy())
    assert isinstance(found, RequestAnswer)
    assert found.error is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["tool", "arguments", "questions", "permissions", "command", "availableDecisions", "message", "reason"]
METHODS = [
    *CURRENT,
    *LEGACY,
    "item/permissions/requestApproval",
    "item/tool/requestUserInput",
    "mcpServer/elicitation/request",
    "item/tool/call",
    "currentTime/read",
    "x",
]


@given(
    st.sampled_from(METHODS),
    st.dictionaries(st.sampled_from(KEYS), JSON),
    st.sampled_from(["decline", "accept", "block"]),
)
def test_for_any_request_there_is_exactly_one_answer(
    method: str, params: Any, on_approval: OnApproval
) -> None:
    decision = asked(method, params, on_approval=on_approval)
    if isinstance(decision, RequestAnswer):
        assert (decision.result is None) != (decision.error is None)
