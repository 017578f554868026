"""One way to play every agent, scripted and real: what the suite of the agents' contract is run with.

A test says what the agent shall do (`Act`); a player makes of it a script in the prompt, a shell script, or a
scenario of the model server that the real agent talks to. How to add one: a function that yields a `Player`,
and a line in `PLAYERS`.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import symphony
from harness.acp_agents import DRIVEN, Driven, furnish
from harness.acp_agents import place as acp_place
from harness.real import require_acp, require_claude, require_codex
from symphony.agents.base import AgentBackend, AgentSession, Capabilities, SessionRequest, Surroundings
from symphony.agents.events import AgentEvent
from symphony.agents.registry import create_backend
from symphony.domain.tools import ToolResult, ToolSpec
from symphony.hosts.base import Identity
from symphony.hosts.local import LocalHost
from symphony.testing.claude_home import claude_home
from symphony.testing.codex_home import codex_home
from symphony.testing.model_server import Answer, ModelServer, Scenario, say, tool
from symphony.testing.model_server.scenario import shell as codex_shell
from symphony.testing.scripted_agent import acp_command, claude_command, command
from symphony.workflow.agents import AGENT_KINDS, NamedAgent

__all__ = ["COMMENT", "PLAYERS", "Act", "Player"]

SOURCE = Path(symphony.__file__).parents[1]
COMMENT = ToolSpec(
    name="board_comment",
    description="Comment on the issue.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
)
_HANG = "echo begun > begun; sleep 600"
ActKind = Literal["say", "skill", "run", "tool", "approve", "ask", "fail", "exit", "hang"]


@dataclass(frozen=True, slots=True)
class Act:
    """What the agent shall do: say or run a text, read the skill of that name, call `board_comment` with it.

    Also: ask whether a command may run, ask a person, fail with a text, exit with a code, hang until the end.
    """

    kind: ActKind
    text: str = ""


@dataclass
class Player:
    """One agent in one place. `real` means that no script of ours answers, but the agent itself."""

    name: str
    kind: str
    top: Path
    environ: Mapping[str, str]
    settings: Mapping[str, Any]
    prompt: Callable[[Sequence[Act]], str]
    faulty: Callable[[Sequence[str]], str] | None = None
    server: ModelServer | None = None
    host: LocalHost = field(default_factory=LocalHost)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    spawned: list[Identity] = field(default_factory=list)
    run_id: str = field(default_factory=lambda: f"test-{uuid4().hex}")

    @property
    def real(self) -> bool:
        return self.server is not None

    @property
    def workspace(self) -> Path:
        return self.top / "root" / "MT-1"

    @property
    def able(self) -> Capabilities:
        return self.backend().capabilities

    def make(self) -> "Player":
        self.workspace.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Test")
        self.git("config", "user.email", "test@example.invalid")
        self.git("commit", "--quiet", "--allow-empty", "--message", "start")
        return self

    def git(self, *arguments: str) -> str:
        argv = ["git", *arguments]
        done = subprocess.run(argv, cwd=self.workspace, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def backend(self, *, faults: Sequence[str] = (), grace_ms: int = 2_000, **settings: Any) -> AgentBackend:
        given = {**self.settings, **settings}
        if faults:
            assert self.faulty is not None
            given["command"] = self.faulty(faults)
        section = AGENT_KINDS[self.kind].model_validate(given, strict=False)
        around = Surroundings(
            host=self.host,
            environ=self.environ,
            secret_names=frozenset({"LINEAR_API_KEY"}),
            homes=self.top / "homes",
            grace_ms=grace_ms,
        )
        return create_backend(NamedAgent(name=self.kind, kind=self.kind, settings=section), around)

    async def run_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls.append((name, dict(arguments)))
        return ToolResult.of({"ok": True})

    def open(
        self,
        *,
        faults: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Any:
        """A session; `changes` are of its request."""
        values: dict[str, Any] = {
            "run_id": self.run_id,
            "cwd": self.workspace,
            "envelope": None,
            "tools": (),
            "run_tool": self.run_tool,
            "stderr_path": self.top / "stderr.log",
            "on_spawned": self.spawned.append,
        }
        request = SessionRequest(**{**values, **changes})
        return self.backend(faults=faults, **(settings or {})).open(request)

    async def play(self, session: AgentSession, *acts: Act) -> list[AgentEvent]:
        """One turn in which the agent does this, and all that it reports."""
        return [event async for event in session.run_turn(self.prompt(acts), title="MT-1: try")]

    def living(self) -> tuple[Identity, ...]:
        """Whatever still carries the run id."""
        return self.host.find_marked([self.run_id])


# --- scripted --------------------------------------------------------------------------------------------


def _script(acts: Sequence[Act]) -> str:
    steps = [_step(act) for act in acts]
    return f"Work.\n\n```scripted\n{json.dumps([steps])}\n```\n"


def _step(act: Act) -> dict[str, Any]:
    steps: Mapping[str, dict[str, Any]] = {
        "tool": {"tool": COMMENT.name, "arguments": {"text": act.text}},
        "approve": {"ask_approval": act.text},
        "ask": {"ask_input": act.text},
        "exit": {"exit": int(act.text) if act.kind == "exit" else 0},
        "hang": {"run": _HANG},
    }
    return steps.get(act.kind, {act.kind: act.text})


_COMMANDS: Mapping[str, Callable[..., str]] = {
    "codex": command,
    "claude": claude_command,
    "acp": acp_command,
}


@contextmanager
def _scripted(kind: str) -> Iterator[Player]:
    def spoken(switches: Sequence[str]) -> str:
        return f"PYTHONPATH={SOURCE} {_COMMANDS[kind](*switches)}"

    with _place() as top:
        switches = ["--threads", str(top / "threads")]
        yield Player(
            f"scripted-{kind}",
            kind,
            top,
            _plain(top),
            {"command": spoken(switches), "read_timeout_ms": 20_000},
            _script,
            faulty=lambda faults: spoken([*switches, *faults]),
        ).make()


def _shell_script(acts: Sequence[Act]) -> str:
    return "\n".join(["set -e", *(_line(act) for act in acts)]) + "\n"


def _line(act: Act) -> str:
    match act.kind:
        case "say":
            return f"printf '%s\\n' {shlex.quote(act.text)}"
        case "run":
            return act.text
        case "exit":
            return f"exit {act.text}"
        case "hang":
            return _HANG
        case "fail":
            return f"printf '%s\\n' {shlex.quote(act.text)} >&2; exit 3"
        case _:
            raise AssertionError(f"a shell script does not {act.kind}")


@contextmanager
def _one_shot() -> Iterator[Player]:
    with _place() as top:
        settings = {"command": "SYSTEM={envelope_file} sh {prompt_file}"}
        yield Player("one-shot", "command", top, _plain(top), settings, _shell_script).make()


# --- real ------------------------------------------------------------------------------------------------


def _scenario(
    server: ModelServer, run: Callable[[str], Answer], call: Callable[[str], Answer], acts: Sequence[Act]
) -> str:
    name = f"case-{uuid4().hex}"
    server.learn(name, _steps(run, call, acts))
    return f"Work. [[{name}]]"


def _steps(run: Callable[[str], Answer], call: Callable[[str], Answer], acts: Sequence[Act]) -> Scenario:
    steps: list[Any] = []
    for act in acts:
        match act.kind:
            case "say":
                steps.append(say(act.text))
            case "run":
                steps.append(run(act.text))
            case "hang":
                steps.append(run(_HANG))
            case "tool":
                steps.append(call(act.text))
            case _:
                raise AssertionError(f"a model does not {act.kind}")
    return tuple(steps) if acts and acts[-1].kind == "say" else (*steps, say("Done."))


@contextmanager
def _codex() -> Iterator[Player]:
    binary = require_codex()
    with ExitStack() as stack:
        server = stack.enter_context(ModelServer({}))
        home = stack.enter_context(codex_home(server.base_url))
        prompt = partial(_scenario, server, codex_shell, lambda text: tool(COMMENT.name, {"text": text}))
        settings = {"command": f"{binary} app-server", "read_timeout_ms": 20_000}
        yield Player("codex", "codex", home.path.parent, home.env, settings, prompt, server=server).make()


@contextmanager
def _claude() -> Iterator[Player]:
    binary = require_claude()
    with ExitStack() as stack:
        server = stack.enter_context(ModelServer({}))
        home = stack.enter_context(claude_home(server.base_url))

        def run(text: str) -> Answer:
            return tool("Bash", {"command": text, "description": "work"})

        def call(text: str) -> Answer:
            return tool(f"mcp__symphony__{COMMENT.name}", {"text": text})

        prompt = partial(_scenario, server, run, call)
        settings = {"command": str(binary), "on_approval": "accept"}
        yield Player("claude", "claude", home.path, home.env, settings, prompt, server=server).make()


@contextmanager
def _acp(driven: Driven) -> Iterator[Player]:
    command = require_acp(driven)
    with ModelServer({}) as server, acp_place() as top:
        environ = furnish(driven, top, server.base_url)
        prompt = partial(
            _scenario, server, driven.command, lambda text: driven.tool(COMMENT.name, {"text": text})
        )
        settings = {"profile": driven.profile, "on_approval": "accept", **driven.settings}
        given = {**settings, "command": command, "start_timeout_ms": 120_000}
        yield Player(driven.profile, "acp", top, environ, given, prompt, server=server).make()


PLAYERS: Mapping[str, Callable[[], AbstractContextManager[Player]]] = {
    "scripted-codex": partial(_scripted, "codex"),
    "scripted-claude": partial(_scripted, "claude"),
    "scripted-acp": partial(_scripted, "acp"),
    "one-shot": _one_shot,
    "codex": _codex,
    "claude": _claude,
    **{name: partial(_acp, driven) for name, driven in DRIVEN.items()},
}
"""Every agent by its name."""


# --- places ----------------------------------------------------------------------------------------------


@contextmanager
def _place() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="symphony-contract-", dir="/var/tmp"))
    try:
        (top / "home").mkdir()
        yield top
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _plain(top: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    return {"HOME": str(top / "home"), "PATH": path, "LANG": "C.UTF-8"}
