from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit.raw_client import RawClient
from symphony.testing.scripted_agent import NO_MODEL
from symphony.testing.scripted_agent.script import block

Start = Callable[..., RawClient]
Git = Callable[..., str]


def said(client: RawClient) -> list[str]:
    return [item["text"] for item in client.items("agentMessage")]


def skill_block(root: Path) -> str:
    return (
        "Work on one issue.\n\n## Available skills\n"
        f"Supplied by the repository; read `{root}/<directory>/SKILL.md` before following a skill.\n"
        "- commit-style — every commit\n"
    )


def write_skill(root: Path, text: str) -> None:
    (root / "commit-style").mkdir(parents=True)
    (root / "commit-style/SKILL.md").write_text(text)


def test_a_script_reads_a_skill_writes_a_file_and_commits_with_what_the_skill_says(
    scripted: Start, workspace: Path, git: Git
) -> None:
    root = workspace / ".symphony/skills"
    write_skill(root, "---\nname: commit-style\n---\nBegin the subject with\n\ncommit-prefix: docs\n")
    client = scripted()
    thread = client.open_thread(workspace, developerInstructions=skill_block(root))
    prompt = "Issue\n" + block(
        [
            {"skill": "commit-style"},
            {"write": "docs/a.txt", "text": "{skill_value}\n"},
            {"commit": "{skill_value}: add a page"},
        ]
    )

    ended = client.run_turn(thread, prompt)

    assert ended["status"] == "completed"
    assert git("log", "-1", "--format=%s") == "docs: add a page"
    assert (workspace / "docs/a.txt").read_text() == "docs\n"
    assert said(client)[0].startswith(NO_MODEL)
    assert [item["changes"][0]["kind"] for item in client.items("fileChange")] == [{"type": "add"}]


def test_later_turns_run_the_next_lists_and_then_say_that_nothing_is_left(
    scripted: Start, workspace: Path
) -> None:
    client = scripted()
    thread = client.open_thread(workspace)
    client.run_turn(thread, block([{"say": "one"}], [{"say": "two"}]))
    client.run_turn(thread, "Go on.")
    ended = client.run_turn(thread, "Go on.")

    assert ended["status"] == "completed"
    assert [text for text in said(client) if text in {"one", "two"}] == ["one", "two"]
    assert said(client)[-1] == f"{NO_MODEL} The script has no further turn, so there is nothing left to do."


def test_running_a_script_again_in_a_new_process_changes_nothing_twice(
    scripted: Start, workspace: Path, git: Git
) -> None:
    prompt = block([{"append": "log.txt", "text": "entry\n"}, {"commit": "log"}])
    for _ in range(2):
        client = scripted()
        ended = client.run_turn(client.open_thread(workspace), prompt)
        assert ended["status"] == "completed"
    assert (workspace / "log.txt").read_text() == "entry\n"
    assert git("rev-list", "--count", "HEAD") == "2"


def test_a_tool_of_the_client_is_called_and_its_answer_awaited(scripted: Start, workspace: Path) -> None:
    client = scripted()
    tool: dict[str, Any] = {"type": "function", "name": "board_move", "description": "", "inputSchema": {}}
    thread = client.open_thread(workspace, dynamicTools=[tool])
    client.start_turn(thread, block([{"tool": "board_move", "arguments": {"state": "Done"}}]))
    asked = client.until_method("item/tool/call")
    assert asked["params"]["arguments"] == {"state": "Done"}
    client.send(
        {
            "id": asked["id"],
            "result": {"success": True, "contentItems": [{"type": "inputText", "text": "ok"}]},
        }
    )
    ended = client.until_method("turn/completed")
    assert ended["params"]["turn"]["status"] == "completed"
    assert [item["success"] for item in client.items("dynamicToolCall")] == [True]


def test_closing_stdin_ends_the_process(scripted: Start, workspace: Path) -> None:
    client = scripted()
    client.open_thread(workspace)
    client.close_stdin()
    assert client.process.wait(60) == 0
