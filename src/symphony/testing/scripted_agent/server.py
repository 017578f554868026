"""The agent's side of the protocol: answers the client, and runs each turn in a thread."""

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from symphony import __version__
from symphony.testing.scripted_agent import NO_MODEL, USER_AGENT_NAME, protocol, script
from symphony.testing.scripted_agent.protocol import ClientGoneError, Faults, Wire
from symphony.testing.scripted_agent.turn import (
    InterruptedTurnError,
    Memory,
    ScriptedThread,
    ScriptedTurn,
    StepFailedError,
    do,
    new_id,
    review,
)

_APPROVAL_POLICIES = ("untrusted", "on-request", "never")
_NO_SANDBOX = "The scripted agent has no sandbox: its commands run with the rights of its user."
_CLOSE_S = 10.0
_Params = Mapping[str, Any]
_Method = Callable[[_Params], tuple[_Params, Callable[[], None] | None]]


class _RefusedError(Exception):
    """The request gets a JSON-RPC error."""


class Server:
    """Answers the client. `handle` is called from one thread; each turn runs in its own thread.

    `env` are the variables of commands; by default those of this process.
    """

    def __init__(self, wire: Wire, faults: Faults, *, env: Mapping[str, str] | None = None) -> None:
        self._wire = wire
        self._faults = faults
        self._env = env
        self._initialized = False
        self._experimental = False
        self._threads: dict[str, ScriptedThread] = {}
        self._memory = Memory(faults.threads)
        self._turn: ScriptedTurn | None = None
        self._worker: threading.Thread | None = None

    def handle(self, frame: object) -> None:
        """Handle one frame of the client; skip anything else."""
        if not isinstance(frame, dict):
            return
        method = frame.get("method")
        if not isinstance(method, str):
            if "result" in frame or "error" in frame:
                self._wire.answered(frame)
            return
        self._wire.received(method)
        if "id" in frame:
            self._answer(method, frame["id"], frame.get("params") or {})

    def close(self) -> None:
        """The client is gone: let a running turn end its commands, and wait for that (10 s at most)."""
        if (turn := self._turn) is not None:
            turn.interrupted.set()
        self._wire.wake(gone=True)
        if self._worker is not None:
            self._worker.join(_CLOSE_S)

    def _answer(self, method: str, request_id: object, params: _Params) -> None:
        try:
            result, afterwards = self._method(method)(params)
        except _RefusedError as refusal:
            self._wire.error(request_id, str(refusal))
            return
        self._wire.result(request_id, result)
        if afterwards is not None:
            afterwards()

    def _method(self, name: str) -> _Method:
        methods: dict[str, _Method] = {
            "initialize": self._initialize,
            "account/read": lambda _: ({"account": None, "requiresOpenaiAuth": False}, None),
            "account/rateLimits/read": self._no_account,
            "command/exec": self._exec,
            "thread/start": self._thread_start,
            "thread/resume": self._thread_resume,
            "turn/start": self._turn_start,
            "turn/interrupt": self._turn_interrupt,
        }
        if name not in methods:
            known = ", ".join(f"`{method}`" for method in methods)
            raise _RefusedError(f"Invalid request: unknown variant `{name}`, expected one of {known}")
        if not self._initialized and name != "initialize":
            raise _RefusedError("Not initialized")
        return methods[name]

    def _initialize(self, params: _Params) -> tuple[_Params, Callable[[], None]]:
        if self._initialized:
            raise _RefusedError("Already initialized")
        self._initialized = True
        self._experimental = bool((params.get("capabilities") or {}).get("experimentalApi"))
        return {
            "userAgent": f"{USER_AGENT_NAME}/{__version__} (no model; no sandbox)",
            "codexHome": str(Path.home()),
            "platformFamily": "unix",
            "platformOs": "linux",
        }, self._greet

    def _greet(self) -> None:
        self._wire.garbage()
        self._wire.notify("configWarning", {"summary": f"{NO_MODEL} {_NO_SANDBOX}", "details": None})

    def _no_account(self, _: _Params) -> tuple[_Params, None]:
        raise _RefusedError("codex account authentication required to read rate limits")

    def _exec(self, params: _Params) -> tuple[_Params, None]:
        argv = params.get("command")
        if not isinstance(argv, list) or not argv:
            raise _RefusedError("command must not be empty")
        timeout_s = (params.get("timeoutMs") or 10_000) / 1000
        try:
            ended = subprocess.run(
                argv,
                cwd=params.get("cwd"),
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _RefusedError(f"failed to spawn command: {error}") from error
        return {
            "exitCode": ended.returncode,
            "stdout": ended.stdout.decode("utf-8", "replace"),
            "stderr": ended.stderr.decode("utf-8", "replace"),
        }, None

    def _thread_start(self, params: _Params) -> tuple[_Params, Callable[[], None]]:
        if params.get("dynamicTools") and not self._experimental:
            raise _RefusedError("thread/start.dynamicTools requires experimentalApi capability")
        thread = ScriptedThread(
            params.get("threadId") or new_id(),
            Path(params.get("cwd") or Path.cwd()),
            instructions=params.get("developerInstructions") or params.get("systemText") or "",
        )
        return self._opened(thread, params)

    def _thread_resume(self, params: _Params) -> tuple[_Params, Callable[[], None]]:
        """Resume a thread like the original: system text and tools stay unchanged, totals are reported again.

        The thread continues in the directory that the request names. The original has no `systemText`; it is
        for agents that replace their system text.
        """
        thread = self._memory.recall(str(params.get("threadId")))
        if thread is None:
            raise _RefusedError(f"no rollout found for thread id {params.get('threadId')}")
        thread.instructions = params.get("systemText", thread.instructions)
        thread.cwd = Path(params.get("cwd") or thread.cwd)
        result, afterwards = self._opened(thread, params)

        def tell() -> None:
            afterwards()
            usage = protocol.token_usage(thread.usage, thread.usage)
            ids = {"threadId": thread.id, "turnId": new_id()}
            self._wire.notify("thread/tokenUsage/updated", {**ids, "tokenUsage": usage})

        return result, tell

    def _opened(self, thread: ScriptedThread, params: _Params) -> tuple[_Params, Callable[[], None]]:
        sandbox = protocol.sandbox_policy(params.get("sandbox", "workspace-write"))
        approval = params.get("approvalPolicy", "on-request")
        if sandbox is None:
            raise _RefusedError(f"Invalid request: unknown variant `{params.get('sandbox')}`")
        if approval not in _APPROVAL_POLICIES and not isinstance(approval, dict):
            raise _RefusedError(f"Invalid request: unknown variant `{approval}`")
        self._threads[thread.id] = thread
        started = protocol.thread(thread.id, str(thread.cwd), version=__version__, now_s=int(time.time()))
        result = protocol.thread_start_result(started, approval_policy=approval, sandbox=sandbox)
        return result, lambda: self._wire.notify("thread/started", {"thread": started})

    def _turn_start(self, params: _Params) -> tuple[_Params, Callable[[], None] | None]:
        thread = self._threads.get(params.get("threadId", ""))
        if thread is None:
            raise _RefusedError(f"thread not found: {params.get('threadId')}")
        if (running := self._turn) is not None:
            return {"turn": protocol.turn(running.id, "inProgress")}, None
        inputs = params.get("input") or []
        prompt = "\n".join(part["text"] for part in inputs if part.get("type") == "text")
        turn = self._turn = ScriptedTurn(self._wire, thread, prompt, keep=self._memory.keep, env=self._env)
        self._worker = threading.Thread(target=self._run, args=(turn,), daemon=True)
        return {"turn": protocol.turn(turn.id, "inProgress")}, self._worker.start

    def _turn_interrupt(self, params: _Params) -> tuple[_Params, Callable[[], None]]:
        turn = self._turn
        if turn is None:
            raise _RefusedError("no active turn to interrupt")
        if params.get("turnId") != turn.id:
            raise _RefusedError(f"expected active turn id {params.get('turnId')} but found {turn.id}")
        return {}, turn.interrupt

    def interrupt(self) -> None:
        """End the running turn, if there is one; for protocols that do not name the turn."""
        if (turn := self._turn) is not None:
            turn.interrupt()

    def instruct(self, thread_id: str, text: str) -> None:
        """Use the text before a prompt as system-level text; for protocols that have no other."""
        self._threads[thread_id].instructions = text

    def _run(self, turn: ScriptedTurn) -> None:
        status, message = "completed", None
        try:
            turn.begin()
            self._steps(turn)
        except InterruptedTurnError:
            status = "interrupted"
        except (StepFailedError, script.ScriptError, OSError, UnicodeError) as error:
            status, message = "failed", str(error)
        except ClientGoneError:
            return
        if status == "interrupted":
            turn.keep()  # another process runs the turn again, but not this one
        turn.thread.turns_done += 1
        if status != "interrupted":
            turn.keep()
        self._turn = None  # before the end is reported, because the client may start the next turn at once
        turn.end(status, message, info=self._faults.refuses or "other")

    def _steps(self, turn: ScriptedTurn) -> None:
        if self._faults.refuses is not None:
            raise StepFailedError(f"the model refuses: {self._faults.refuses}")
        steps, remark = self._next_steps(turn)
        turn.say(f"{NO_MODEL} {remark}")
        turn.step_done()
        self._commit_faults(turn)
        if self._faults.review is not None:
            review(self._faults.review, turn)
        for step in steps:
            if turn.interrupted.is_set():
                raise InterruptedTurnError
            do(step, turn)
            turn.step_done()

    def _next_steps(self, turn: ScriptedTurn) -> tuple[tuple[script.Step, ...], str]:
        thread = turn.thread
        if self._faults.review is not None:
            return (), "It reviews by the command that it was started with."
        if script.parse(turn.prompt) is not None:
            thread.script, thread.turns_done = turn.prompt, 0
        turns = script.parse(thread.script or "")
        if turns is None:
            return (), "The prompt has no ```scripted block, so there is nothing to do."
        if thread.turns_done >= len(turns):
            return (), "The script has no further turn, so there is nothing left to do."
        left = len(turns) - thread.turns_done - 1
        remark = f"It follows the script of the issue; turns left after this one: {left}."
        return turns[thread.turns_done], remark

    def _commit_faults(self, turn: ScriptedTurn) -> None:
        if self._faults.huge_line:
            turn.say("x" * self._faults.huge_line)
        if self._faults.unknown_request:
            answer = turn.ask("scripted/unknownRequest")
            if "error" not in answer:
                raise StepFailedError("the client answered an unknown request")
