import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from symphony.agents.session import MAX_RESULT_CHARS, ToolCall, run_tool
from symphony.domain import ToolResult

pytestmark = pytest.mark.asyncio

CALL = ToolCall(name="look", arguments={"at": "it"})


async def test_a_result_passes_as_it_is() -> None:
    async def runner(name: str, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult.of({"name": name, **arguments})

    assert await run_tool(CALL, runner) == ToolResult.of({"name": "look", "at": "it"})


async def test_a_tool_that_raises_is_a_failed_call_without_its_secrets() -> None:
    async def runner(_: str, __: Mapping[str, Any]) -> ToolResult:
        raise RuntimeError("no access with Authorization: Bearer abcdefghijklmnop1234")

    result = await run_tool(CALL, runner)
    assert not result.success
    assert "tool look failed: no access" in result.text
    assert "abcdefghijklmnop1234" not in result.text


async def test_a_tool_that_raises_without_words_is_named_by_what_it_raised() -> None:
    async def runner(_: str, __: Mapping[str, Any]) -> ToolResult:
        raise KeyError

    assert "KeyError" in (await run_tool(CALL, runner)).text


async def test_a_tool_that_hangs_is_given_up() -> None:
    async def runner(_: str, __: Mapping[str, Any]) -> ToolResult:
        await anyio.sleep_forever()
        raise AssertionError

    assert "did not answer within 1 ms" in (await run_tool(CALL, runner, timeout_ms=1)).text


async def test_an_answer_beyond_reason_is_not_passed_on() -> None:
    async def runner(_: str, __: Mapping[str, Any]) -> ToolResult:
        return ToolResult(success=True, text="x" * (MAX_RESULT_CHARS + 1))

    result = await run_tool(CALL, runner)
    assert not result.success
    assert json.loads(result.text)["error"]["hint"] == "ask for less"
