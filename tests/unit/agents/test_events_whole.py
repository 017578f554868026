"""What the events of each backend have for a transcript: whole texts, results, changes and pieces."""

import json
from typing import Any

import msgspec

from symphony.agents.acp.protocol import Updates
from symphony.agents.claude.protocol import ClaudeCodec, ClaudeEvent, KeepAlive, Translator, message_piece
from symphony.agents.codex.protocol import item_completed, item_started, translate
from symphony.agents.codex.protocol import message_piece as codex_piece
from symphony.agents.events import (
    FileEdit,
    ItemFinished,
    ItemStarted,
    PlanStep,
    PlanUpdated,
    Reasoning,
    Text,
    line_changes,
)
from symphony.agents.session import MAX_PENDING_CHARS, PendingMessage
from symphony.agents.wire import JsonRpcCodec, ServerNotification, Suppressed

DELTA = "item/agentMessage/delta"
DIFF = "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n-old\n+new\n+and more\n same\n"


def codex(method: str, **params: Any) -> Any:
    (event,) = translate(ServerNotification(method, msgspec.Raw(json.dumps(params).encode()))).events
    return event


def test_codex_commands_have_their_whole_text_and_output() -> None:
    command = "make \\\n  " + "x" * 9_000
    item = {"type": "commandExecution", "id": "c1", "command": f"/bin/bash -lc '{command}'"}
    started = item_started(item)
    assert isinstance(started, ItemStarted)
    assert (started.item_id, started.input) == ("c1", command)
    ended = item_completed({**item, "status": "failed", "exitCode": 2, "aggregatedOutput": "no\n"})
    assert isinstance(ended, ItemFinished)
    assert (ended.item_id, ended.output, ended.exit_code) == ("c1", "no\n", 2)


def test_codex_changes_have_paths_and_lines() -> None:
    changes = [
        {"path": "/w/new", "kind": {"type": "add"}, "diff": "a\nb\n"},
        {"path": "/w/old", "kind": {"type": "delete"}, "diff": "a\n"},
        {"path": "/w/x", "kind": {"type": "update", "move_path": None}, "diff": DIFF},
        {"path": 3, "kind": None},
    ]
    started = item_started({"type": "fileChange", "id": "f", "changes": changes})
    assert isinstance(started, ItemStarted)
    assert started.changes == (
        FileEdit(path="/w/new", change="add", added=2),
        FileEdit(path="/w/old", change="delete", removed=1),
        FileEdit(path="/w/x", change="update", added=2, removed=1),
        FileEdit(path="", change="update"),
    )


def test_codex_tools_reasoning_and_plans_are_told() -> None:
    call = {"type": "dynamicToolCall", "id": "t", "tool": "move", "arguments": {"to": "Done"}}
    started, ended = item_started(call), item_completed({**call, "contentItems": [{"text": "moved"}]})
    assert isinstance(started, ItemStarted)
    assert json.loads(started.input) == {"to": "Done"}
    assert isinstance(ended, ItemFinished)
    assert ended.output == "moved"
    failed = item_completed({"type": "mcpToolCall", "id": "m", "error": {"message": "no"}})
    assert isinstance(failed, ItemFinished)
    assert json.loads(failed.output) == {"message": "no"}
    assert item_completed({"type": "reasoning", "summary": ["one", "two"]}) == Reasoning(text="one\n\ntwo")
    assert item_completed({"type": "reasoning", "content": ["raw"]}) == Reasoning(text="raw")
    assert item_completed({"type": "plan", "text": "- do"}) == PlanUpdated(text="- do")
    steps = [{"step": "look", "status": "inProgress"}]
    assert codex("turn/plan/updated", plan=steps, explanation="why") == PlanUpdated(
        steps=(PlanStep(text="look", status="inProgress"),), text="why"
    )


def test_pieces_of_a_codex_message_are_kept_undecoded_until_they_are_needed() -> None:
    codec = JsonRpcCodec(kept=DELTA)
    codec.suppress("item/reasoning/textDelta")
    sent = [
        {"method": DELTA, "params": {"threadId": "t", "itemId": "m", "delta": "Hel"}},
        {"method": "item/reasoning/textDelta", "params": {"delta": "hidden"}},
        {"method": DELTA, "params": {"threadId": "other", "delta": "of a helper"}},
        {"method": DELTA, "params": {"delta": 3}},
        {"method": DELTA, "params": {"threadId": "t", "itemId": "m", "delta": "lo"}},
    ]
    (message,) = codec.receive(b"".join(json.dumps(line).encode() + b"\n" for line in sent))
    assert isinstance(message, Suppressed)
    assert (message.count, len(message.params)) == (5, 4)
    pending = PendingMessage(lambda params: codex_piece(params, "t"))
    pending.add(message.params)
    assert pending.text == pending.text == "Hello"
    pending.clear()
    assert pending.text == ""


def test_a_pending_message_takes_bounded_room() -> None:
    pending = PendingMessage(str)
    for _ in range(300):
        pending.add(["x" * 10] * 100)
    assert MAX_PENDING_CHARS <= len(pending.text) < MAX_PENDING_CHARS + 20_000


def test_pieces_of_a_claude_message_are_kept_and_those_of_a_helper_are_not_said() -> None:
    def line(text: str, parent: str | None = None) -> bytes:
        delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
        body = {"type": "stream_event", "event": delta, "parent_tool_use_id": parent}
        return json.dumps(body, separators=(",", ":")).encode() + b"\n"

    other = b'{"type":"stream_event","event":{"type":"ping"}}\n'
    (message,) = ClaudeCodec().receive(line("Hel") + other + line("of a helper", "t1") + line("lo"))
    assert isinstance(message, KeepAlive)
    assert (message.count, len(message.pieces)) == (4, 3)
    assert "".join(map(message_piece, message.pieces)) == "Hello"
    assert message_piece(b'{"event":3,"text_delta":1}') == ""


def claude(translator: Translator, kind: str, *blocks: Any) -> tuple[Any, ...]:
    body = {"type": kind, "message": {"id": kind, "content": list(blocks)}}
    return translator.translate(ClaudeEvent(kind, "", msgspec.Raw(json.dumps(body).encode())))


def test_claude_tools_have_input_result_and_changes() -> None:
    translator = Translator()
    edit = {"file_path": "/w/a.py", "old_string": "a\nb\n", "new_string": "a\nc\nd\n"}
    uses = [
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make"}},
        {"type": "tool_use", "id": "t2", "name": "Edit", "input": edit},
        {
            "type": "tool_use",
            "id": "t3",
            "name": "Write",
            "input": {"file_path": "/w/b", "content": "1\n2\n"},
        },
    ]
    bash, edited, wrote = claude(translator, "assistant", *uses)
    assert (bash.item_id, bash.input, bash.changes) == ("t1", "make", ())
    assert edited.changes == (FileEdit(path="/w/a.py", change="update", added=2, removed=1),)
    assert wrote.changes == (FileEdit(path="/w/b", change="write", added=2),)
    answer = {"type": "tool_result", "tool_use_id": "t1", "is_error": True}
    parts = [{"type": "text", "text": "Exit code 3"}, {"type": "text", "text": "no"}]
    (ended,) = claude(translator, "user", {**answer, "content": parts})
    assert (ended.item_id, ended.output, ended.exit_code) == ("t1", "Exit code 3\nno", 3)


def test_claude_todos_are_a_plan() -> None:
    todos = [{"content": "look", "status": "pending"}]
    use = {"type": "tool_use", "id": "t", "name": "TodoWrite", "input": {"todos": todos}}
    plan, _ = claude(Translator(), "assistant", use)
    assert plan == PlanUpdated(steps=(PlanStep(text="look", status="pending"),))


def test_acp_thoughts_messages_plans_and_results_stand_in_their_order() -> None:
    updates, events = Updates(), list[Any]()
    call = {"toolCallId": "c", "kind": "edit", "title": "Edit", "rawInput": {"path": "/w/x"}}
    diff = {"type": "diff", "path": "/w/x", "oldText": None, "newText": "1\n2\n"}
    text = {"type": "content", "content": {"type": "text", "text": "edited"}}
    for update in (
        {"sessionUpdate": "agent_thought_chunk", "content": {"text": "H"}},
        {"sessionUpdate": "agent_thought_chunk", "content": {"text": "m"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"text": "I "}},
        {"sessionUpdate": "agent_message_chunk", "content": {"text": "edit"}},
        {"sessionUpdate": "plan", "entries": [{"content": "edit", "status": "pending"}]},
        {"sessionUpdate": "tool_call", **call, "status": "in_progress"},
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c",
            "content": [diff, text],
            "status": "completed",
        },
        {"sessionUpdate": "agent_message_chunk", "content": {"text": "Done"}},
    ):
        events += updates.translate(update)
    plan = PlanUpdated(steps=(PlanStep(text="edit", status="pending"),))
    assert events[:3] == [Reasoning(text="Hm"), Text(message="I edit"), plan]
    started, ended = events[3:]
    assert (started.item_id, json.loads(started.input)) == ("c", {"path": "/w/x"})
    assert (ended.item_id, ended.output) == ("c", "edited")
    assert ended.changes == (FileEdit(path="/w/x", change="add", added=2),)
    assert updates.pending_message == "Done"


def test_lines_are_counted_by_what_only_one_text_has() -> None:
    assert line_changes("a\nb\nb\n", "b\nc\n") == (1, 2)
    assert line_changes("", "") == (0, 0)
