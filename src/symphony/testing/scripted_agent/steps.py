"""What each step of a script does, for real, and how it shows on the wire."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from symphony.testing.scripted_agent import frames, script
from symphony.testing.scripted_agent.skill_file import path_of, value_in
from symphony.testing.scripted_agent.turn import InterruptedTurnError, Turn

__all__ = ["StepFailedError", "do"]

_LOOK_EVERY_S = 0.02
_GRANTED = frozenset({"accept", "acceptForSession"})


class StepFailedError(Exception):
    """The turn fails; the message says why."""


def do(step: script.Step, turn: Turn) -> None:  # noqa: C901, PLR0912 - one case per kind of step
    """Carry out one step in the turn's workspace.

    Raises:
        StepFailedError: the turn has failed.
        InterruptedTurnError: the client interrupted the turn.
        ClientGoneError: the client is gone.
    """
    match step:
        case script.Say():
            turn.say(_filled(step.text, turn))
        case script.Skill():
            _skill(step, turn)
        case script.Write():
            _store(turn, step.path, _filled(step.text, turn))
        case script.Append():
            _append(turn, step.path, _filled(step.text, turn))
        case script.Run():
            _check(step.argv, _run(turn, [_filled(word, turn) for word in step.argv]), step.may_fail)
        case script.Commit():
            _commit(turn, _filled(step.message, turn))
        case script.Tool():
            _tool(step, turn)
        case script.AskApproval():
            _ask_approval(step, turn)
        case script.AskInput():
            _ask_input(step, turn)
        case script.Sleep() | script.WaitFor():
            _wait(step, turn)
        case script.Fail():
            raise StepFailedError(_filled(step.message, turn))
        case script.Exit():
            os._exit(step.code)
        case _:
            assert_never(step)


def _filled(text: str, turn: Turn) -> str:
    if "{skill_value}" not in text:
        return text
    if turn.thread.skill_value is None:
        raise StepFailedError("{skill_value} is used before a skill with a value was read")
    return text.replace("{skill_value}", turn.thread.skill_value)


def _skill(step: script.Skill, turn: Turn) -> None:
    path = path_of(turn.thread.instructions, step.name)
    if path is None:
        raise StepFailedError(f"skill {step.name!r} is not listed under '## Available skills'")
    code, text = _run(turn, ["cat", "--", path])
    if code != 0:
        raise StepFailedError(f"skill {step.name!r} cannot be read: {text.strip()}")
    value = value_in(text, step.value_of)
    if value is None and step.value_of is not None:
        raise StepFailedError(f"skill {step.name!r} has no line '{step.value_of}: …' ({path})")
    turn.thread.skill_value = value or turn.thread.skill_value


def _inside(turn: Turn, path: str) -> Path:
    root = turn.thread.cwd.resolve()
    target = (root / path).resolve()
    if root not in target.parents:
        raise StepFailedError(f"{path!r} is not below the workspace, and this agent writes nowhere else")
    return target


def _append(turn: Turn, path: str, text: str) -> None:
    target = _inside(turn, path)
    old = target.read_text("utf-8") if target.exists() else ""
    if text not in old:
        _store(turn, path, old + text)


def _store(turn: Turn, path: str, text: str) -> None:
    target = _inside(turn, path)
    old = target.read_text("utf-8") if target.exists() else None
    shown = text if old is None else _diff(path, old, text)
    item = frames.file_change(
        turn.item_id("patch"), str(target), kind="add" if old is None else "update", diff=shown
    )
    turn.item_started(item)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, "utf-8")
    turn.item_completed({**item, "status": "completed"})
    turn.diff(_diff(path, old or "", text))


def _diff(path: str, old: str, new: str) -> str:
    from difflib import unified_diff  # noqa: PLC0415 - costs start time, and few scripts change a file twice

    lines = unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(lines)


def _commit(turn: Turn, message: str) -> None:
    _check(["git", "add"], _run(turn, ["git", "add", "--all"]))
    unchanged, _ = _run(turn, ["git", "diff", "--cached", "--quiet"])
    if unchanged != 0:
        _check(["git", "commit"], _run(turn, ["git", "commit", "--quiet", "--message", message]))


def _check(argv: Sequence[str], ended: tuple[int, str], may_fail: bool = False) -> None:  # noqa: FBT001, FBT002 - the script's own flag
    code, text = ended
    if code != 0 and not may_fail:
        raise StepFailedError(f"{shlex.join(argv)} ended with {code}: {text.strip()[-500:]}")


def _run(turn: Turn, argv: Sequence[str], item_id: str | None = None) -> tuple[int, str]:
    """Run a command in the workspace; its whole process group ends with an interrupt of the turn."""
    began, shown, cwd = time.monotonic(), shlex.join(argv), str(turn.thread.cwd)
    item_id = item_id or turn.item_id("call")
    turn.item_started(frames.command_execution(item_id, shown, cwd))
    code, text = _outcome(turn, argv, cwd)
    if text:
        turn.output(item_id, text)
    turn.item_completed(
        frames.command_execution(
            item_id,
            shown,
            cwd,
            status="completed" if code == 0 else "failed",
            output=text,
            exit_code=code,
            duration_ms=round((time.monotonic() - began) * 1000),
        )
    )
    return code, text


def _outcome(turn: Turn, argv: Sequence[str], cwd: str) -> tuple[int, str]:
    try:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return 127, f"{error}\n"
    with child:
        while True:
            try:
                output, _ = child.communicate(timeout=_LOOK_EVERY_S)
            except subprocess.TimeoutExpired:
                if turn.interrupted.is_set():
                    os.killpg(child.pid, signal.SIGKILL)
                    raise InterruptedTurnError from None
                continue
            return child.returncode, output.decode("utf-8", "replace")


def _tool(step: script.Tool, turn: Turn) -> None:
    item_id = turn.item_id("tool")
    arguments = {
        key: _filled(value, turn) if isinstance(value, str) else value
        for key, value in step.arguments.items()
    }
    turn.item_started(frames.dynamic_tool_call(item_id, step.name, arguments))
    answer = turn.ask("item/tool/call", callId=item_id, namespace=None, tool=step.name, arguments=arguments)
    result = answer.get("result") or {"success": False, "contentItems": []}
    turn.item_completed(frames.dynamic_tool_call(item_id, step.name, arguments, answer=result))
    if not result.get("success") and not step.may_fail:
        raise StepFailedError(f"tool {step.name!r} failed: {_tool_text(answer)}")


def _tool_text(answer: Mapping[str, Any]) -> str:
    if "error" in answer:
        return str(answer["error"].get("message", "dynamic tool request failed"))
    return " ".join(str(item.get("text", "")) for item in answer["result"].get("contentItems", []))


def _ask_approval(step: script.AskApproval, turn: Turn) -> None:
    item_id, shown, cwd = turn.item_id("call"), shlex.join(step.argv), str(turn.thread.cwd)
    turn.item_started(frames.command_execution(item_id, shown, cwd))
    answer = turn.ask(
        "item/commandExecution/requestApproval",
        flag="waitingOnApproval",
        kind="command",
        itemId=item_id,
        startedAtMs=time.time_ns() // 1_000_000,
        reason="the script asks for it",
        command=shown,
        cwd=cwd,
        availableDecisions=["accept", "acceptForSession", "decline", "cancel"],
    )
    decision = (answer.get("result") or {}).get("decision")
    if decision in _GRANTED:
        _check(step.argv, _run(turn, step.argv, item_id))
        return
    turn.item_completed(frames.command_execution(item_id, shown, cwd, status="declined"))
    if decision == "cancel":
        raise InterruptedTurnError


def _ask_input(step: script.AskInput, turn: Turn) -> None:
    if step.question in turn.thread.asked:
        turn.say(f"I have asked: {step.question}")
        return
    turn.thread.asked.append(step.question)
    turn.keep()
    question = {"id": "q1", "header": "Question", "question": step.question, "options": None}
    answer = turn.ask(
        "item/tool/requestUserInput",
        flag="waitingOnUserInput",
        itemId=turn.item_id("input"),
        questions=[question],
        isBlocking=True,
    )
    given = (answer.get("result") or {}).get("answers", {}).get("q1", {}).get("answers", [])
    turn.say(f"Answered: {', '.join(given)}" if given else "Nobody answered.")


def _wait(step: script.Sleep | script.WaitFor, turn: Turn) -> None:
    if isinstance(step, script.WaitFor):
        turn.wait((turn.thread.cwd / step.path).exists, _LOOK_EVERY_S)
        return
    until = time.monotonic() + step.duration_ms / 1000
    turn.wait(lambda: time.monotonic() >= until, _LOOK_EVERY_S)
