"""One turn on the wire: items in the order of the original, token totals, and the end of the turn."""

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, assert_never

from symphony.testing.scripted_agent import protocol, script
from symphony.testing.scripted_agent.protocol import Wire
from symphony.testing.scripted_agent.script import path_of, value_in

_USAGE_KEYS = (
    "totalTokens",
    "inputTokens",
    "cachedInputTokens",
    "cacheWriteInputTokens",
    "outputTokens",
    "reasoningOutputTokens",
)
_CHARS_PER_TOKEN = 4


class InterruptedTurnError(Exception):
    """The client interrupted the turn."""


def new_id() -> str:
    """An id in the original's form (UUID version 7: time first, then chance)."""
    random = os.urandom(10).hex()
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{random[:3]}-8{random[3:6]}-{random[6:18]}"


class ScriptedThread:
    """The state between turns: place, system text, script, memory of a skill, totals.

    `usage` counts a token per four characters in both directions, so that totals change like a model's.
    `script` is the prompt with the script, `turns_done` the number of its ended turns, `asked` the questions
    that people got.
    """

    def __init__(
        self,
        thread_id: str,
        cwd: Path,
        *,
        instructions: str = "",
        skill_value: str | None = None,
        script: str | None = None,
        turns_done: int = 0,
        asked: Sequence[str] = (),
        usage: Mapping[str, int] | None = None,
    ) -> None:
        self.id = thread_id
        self.cwd = cwd
        self.instructions = instructions
        self.skill_value = skill_value
        self.script = script
        self.turns_done = turns_done
        self.asked = [*asked]
        self.usage = {**(usage or dict.fromkeys(_USAGE_KEYS, 0))}


class ScriptedTurn:
    """Sends the events of one turn. The thread that runs the steps calls its methods."""

    def __init__(
        self,
        wire: Wire,
        thread: ScriptedThread,
        prompt: str,
        *,
        keep: Callable[[ScriptedThread], None] = lambda _: None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.id = new_id()
        self.thread = thread
        self.prompt = prompt
        self.env = env
        self.leave = wire.leave
        self.interrupted = threading.Event()
        self._wire = wire
        self._keep = keep
        self._last_said: dict[str, Any] | None = None
        self._items = 0
        self._exchanged = len(prompt) + len(thread.instructions)

    def begin(self) -> None:
        """Report that the turn runs."""
        self._status({"type": "active", "activeFlags": []})
        self._notify("turn/started", turn=protocol.turn(self.id, "inProgress"), turn_id=False)
        self._wire.garbage()
        item = protocol.user_message(new_id(), self.prompt)
        self.item_started(item)
        self.item_completed(item)

    def end(self, status: str, error: str | None = None, *, info: str = "other") -> None:
        """Report how the turn ended: `completed`, `interrupted`, or `failed` with a message and its kind."""
        items = [] if self._last_said is None or status != "completed" else [self._last_said]
        ended = protocol.turn(self.id, status, items=items, error=error, info=info)
        self._status({"type": "idle"} if error is None else {"type": "systemError"})
        if error is not None:
            self._notify("error", error=ended["error"], willRetry=False)
        self._notify("turn/completed", turn=ended, turn_id=False)

    def say(self, text: str) -> None:
        """Send a message to people."""
        item = protocol.agent_message(self.item_id("msg"), text)
        self.item_started({**item, "text": ""})
        self._notify("item/agentMessage/delta", itemId=item["id"], delta=text)
        self.item_completed(item)
        self._last_said = item
        self._exchanged += len(text)

    def item_id(self, kind: str) -> str:
        """An id for the next item, unique on the thread."""
        self._items += 1
        return f"{kind}_{self.id[-12:]}_{self._items}"

    def item_started(self, item: Mapping[str, Any]) -> None:
        """Report that a piece of work began."""
        self._notify("item/started", item=item, startedAtMs=_now_ms())

    def item_completed(self, item: Mapping[str, Any]) -> None:
        """Report that a piece of work ended."""
        self._notify("item/completed", item=item, completedAtMs=_now_ms())

    def output(self, item_id: str, text: str) -> None:
        """Report the output of a command."""
        self._notify("item/commandExecution/outputDelta", itemId=item_id, delta=text)
        self._exchanged += len(text)

    def diff(self, text: str) -> None:
        """Report the diff of the turn."""
        self._notify("turn/diff/updated", diff=text)

    def step_done(self) -> None:
        """Report token totals and rate limits, as the original does after each call of its model."""
        last = _usage(self._exchanged)
        self._exchanged = 0
        total = self.thread.usage
        total.update({key: total[key] + last[key] for key in _USAGE_KEYS})
        self.keep()
        self._notify("thread/tokenUsage/updated", tokenUsage=protocol.token_usage(total, last))
        self._wire.notify("account/rateLimits/updated", {"rateLimits": protocol.rate_limits()})

    def keep(self) -> None:
        """Store the state of the thread."""
        self._keep(self.thread)

    def ask(self, method: str, *, flag: str | None = None, **params: Any) -> Mapping[str, Any]:
        """Ask the client and return its answer with `result` or `error`; `flag` is shown meanwhile.

        Raises:
            InterruptedTurnError: the client interrupted the turn instead.
            ClientGoneError: the client has closed the connection.
        """
        if flag is not None:
            self._status({"type": "active", "activeFlags": [flag]})
        answer = self._wire.ask(
            method, {"threadId": self.thread.id, "turnId": self.id, **params}, self.interrupted
        )
        if answer is None:
            raise InterruptedTurnError
        if flag is not None:
            self._notify("serverRequest/resolved", requestId=answer["id"], turn_id=False)
            self._status({"type": "active", "activeFlags": []})
        return answer

    def wait(self, ready: Callable[[], bool], step_s: float) -> None:
        """Wait until `ready`, looking every `step_s` seconds.

        Raises:
            InterruptedTurnError: the client interrupted the turn.
        """
        while not ready():
            if self.interrupted.wait(step_s):
                raise InterruptedTurnError

    def interrupt(self) -> None:
        """End the turn at the next step; all waits end."""
        self.interrupted.set()
        self._wire.wake()

    def _status(self, status: Mapping[str, Any]) -> None:
        self._notify("thread/status/changed", status=status, turn_id=False)

    def _notify(self, method: str, *, turn_id: bool = True, **params: Any) -> None:
        ids = {"threadId": self.thread.id} | ({"turnId": self.id} if turn_id else {})
        self._wire.notify(method, ids | params)


def _usage(characters: int) -> dict[str, int]:
    tokens = characters // _CHARS_PER_TOKEN + 2
    counts = (tokens, tokens - 1, 0, 0, 1, 0)
    return dict(zip(_USAGE_KEYS, counts, strict=True))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# The state of threads on disk, so that a later process of the agent can continue them. There is one file per
# thread, which is replaced as a whole. An unfinished turn runs again from its first step, like a script that
# runs again from its first turn; a question is not asked again.


class Memory(NamedTuple):
    """A directory of threads; with `None`, the default, nothing is remembered."""

    folder: Path | None = None

    def keep(self, thread: ScriptedThread) -> None:
        """Store the state of the thread."""
        if self.folder is None:
            return
        facts = {
            "cwd": str(thread.cwd),
            "instructions": thread.instructions,
            "skill_value": thread.skill_value,
            "usage": thread.usage,
            "script": thread.script,
            "turns_done": thread.turns_done,
            "asked": thread.asked,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f".{thread.id}.tmp"
        unfinished.write_text(json.dumps(facts), "utf-8")
        unfinished.replace(self.folder / f"{thread.id}.json")

    def recall(self, thread_id: str) -> ScriptedThread | None:
        """The last state of a thread; None if it is unknown."""
        file = None if self.folder is None else self.folder / f"{Path(thread_id).name}.json"
        if file is None or not file.is_file():
            return None
        facts = json.loads(file.read_text("utf-8"))
        return ScriptedThread(thread_id, **{**facts, "cwd": Path(facts["cwd"])})


# Carries out each step of a script, and shows it on the wire.


_LOOK_EVERY_S = 0.02
_GRANTED = frozenset({"accept", "acceptForSession"})


class StepFailedError(Exception):
    """The turn fails; the message says why."""


def do(step: script.Step, turn: ScriptedTurn) -> None:  # noqa: C901, PLR0912 - one case per kind of step
    """Carry out one step in the turn's workspace.

    Raises:
        StepFailedError: the turn has failed.
        InterruptedTurnError: the client interrupted the turn.
        ClientGoneError: the client is gone.
    """
    match step:
        case script.SayStep():
            turn.say(_filled(step.text, turn))
        case script.SkillStep():
            _skill(step, turn)
        case script.WriteStep():
            _store(turn, step.path, _filled(step.text, turn))
        case script.AppendStep():
            _append(turn, step.path, _filled(step.text, turn))
        case script.RunStep():
            _check(step.argv, _run(turn, [_filled(word, turn) for word in step.argv]), may_fail=step.may_fail)
        case script.CommitStep():
            _commit(turn, _filled(step.message, turn))
        case script.ToolStep():
            _tool(step, turn)
        case script.ApprovalStep():
            _ask_approval(step, turn)
        case script.InputStep():
            _ask_input(step, turn)
        case script.SleepStep() | script.WaitStep():
            _wait(step, turn)
        case script.FailStep():
            raise StepFailedError(_filled(step.message, turn))
        case script.ExitStep():
            turn.leave(step.code)
        case _:
            assert_never(step)


def _filled(text: str, turn: ScriptedTurn) -> str:
    if "{skill_value}" not in text:
        return text
    if turn.thread.skill_value is None:
        raise StepFailedError("{skill_value} is used before a skill with a value was read")
    return text.replace("{skill_value}", turn.thread.skill_value)


def _skill(step: script.SkillStep, turn: ScriptedTurn) -> None:
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


def _inside(turn: ScriptedTurn, path: str) -> Path:
    root = turn.thread.cwd.resolve()
    target = (root / path).resolve()
    if root not in target.parents:
        raise StepFailedError(f"{path!r} is not below the workspace, and this agent writes nowhere else")
    return target


def _append(turn: ScriptedTurn, path: str, text: str) -> None:
    target = _inside(turn, path)
    old = target.read_text("utf-8") if target.exists() else ""
    if text not in old:
        _store(turn, path, old + text)


def _store(turn: ScriptedTurn, path: str, text: str) -> None:
    target = _inside(turn, path)
    old = target.read_text("utf-8") if target.exists() else None
    shown = text if old is None else _diff(path, old, text)
    item = protocol.file_change(
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


def _commit(turn: ScriptedTurn, message: str) -> None:
    _check(["git", "add"], _run(turn, ["git", "add", "--all"]))
    unchanged, _ = _run(turn, ["git", "diff", "--cached", "--quiet"])
    if unchanged != 0:
        # There is no person to type a passphrase.
        commit = ["git", "commit", "--quiet", "--no-gpg-sign", "--message", message]
        _check(["git", "commit"], _run(turn, commit))


def _check(argv: Sequence[str], ended: tuple[int, str], *, may_fail: bool = False) -> None:
    code, text = ended
    if code != 0 and not may_fail:
        raise StepFailedError(f"{shlex.join(argv)} ended with {code}: {text.strip()[-500:]}")


def _run(turn: ScriptedTurn, argv: Sequence[str], item_id: str | None = None) -> tuple[int, str]:
    """Run a command in the workspace; its whole process group ends with an interrupt of the turn."""
    began, shown, cwd = time.monotonic(), shlex.join(argv), str(turn.thread.cwd)
    item_id = item_id or turn.item_id("call")
    turn.item_started(protocol.command_execution(item_id, shown, cwd))
    code, text = _outcome(turn, argv, cwd)
    if text:
        turn.output(item_id, text)
    turn.item_completed(
        protocol.command_execution(
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


def _outcome(turn: ScriptedTurn, argv: Sequence[str], cwd: str) -> tuple[int, str]:
    try:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=turn.env,
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


def review(command: str, turn: ScriptedTurn) -> None:
    """Give a verdict from the output of a shell command: see the switch `--review`."""
    code, written = _run(turn, ["bash", "-c", command])
    if code != 0:
        return
    comments = []
    for line in written.splitlines():
        file, _, rest = line.partition(":")
        number, _, text = rest.partition(":")
        comments.append({"file": file, "line": int(number), "text": text.strip()})
    verdict = "request_changes" if comments else "approve"
    _tool(script.ToolStep("submit_review", {"verdict": verdict, "comments": comments}), turn)


def _tool(step: script.ToolStep, turn: ScriptedTurn) -> None:
    item_id = turn.item_id("tool")
    arguments = {
        key: _filled(value, turn) if isinstance(value, str) else value
        for key, value in step.arguments.items()
    }
    turn.item_started(protocol.dynamic_tool_call(item_id, step.name, arguments))
    answer = turn.ask("item/tool/call", callId=item_id, namespace=None, tool=step.name, arguments=arguments)
    result = answer.get("result") or {"success": False, "contentItems": []}
    turn.item_completed(protocol.dynamic_tool_call(item_id, step.name, arguments, answer=result))
    if not result.get("success") and not step.may_fail:
        raise StepFailedError(f"tool {step.name!r} failed: {_tool_text(answer)}")


def _tool_text(answer: Mapping[str, Any]) -> str:
    if "error" in answer:
        return str(answer["error"].get("message", "dynamic tool request failed"))
    return " ".join(str(item.get("text", "")) for item in answer["result"].get("contentItems", []))


def _ask_approval(step: script.ApprovalStep, turn: ScriptedTurn) -> None:
    item_id, shown, cwd = turn.item_id("call"), shlex.join(step.argv), str(turn.thread.cwd)
    turn.item_started(protocol.command_execution(item_id, shown, cwd))
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
    turn.item_completed(protocol.command_execution(item_id, shown, cwd, status="declined"))
    if decision == "cancel":
        raise InterruptedTurnError


def _ask_input(step: script.InputStep, turn: ScriptedTurn) -> None:
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


def _wait(step: script.SleepStep | script.WaitStep, turn: ScriptedTurn) -> None:
    if isinstance(step, script.WaitStep):
        turn.wait((turn.thread.cwd / step.path).exists, _LOOK_EVERY_S)
        return
    until = time.monotonic() + step.duration_ms / 1000
    turn.wait(lambda: time.monotonic() >= until, _LOOK_EVERY_S)
