import json

from symphony.domain import ToolResult


def test_an_answer_carries_its_payload_as_json() -> None:
    result = ToolResult.of({"état": "Fait"})
    assert result.success
    assert json.loads(result.text) == {"état": "Fait"}
    assert "é" in result.text


def test_a_failed_call_is_a_structured_answer() -> None:
    result = ToolResult.error("no such tool", supportedTools=["comment"])
    assert not result.success
    assert json.loads(result.text) == {"error": {"message": "no such tool", "supportedTools": ["comment"]}}
