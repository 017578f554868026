"""One way to play every agent, scripted and real: what the suite of the agents' contract is run with.

A test says what the agent shall do (`Act`); a player makes of it a script in the prompt, a shell script, or a
scenario of the model server that the real agent talks to. How to add one: a function that yields a `Player`,
and a line in `PLAYERS`.
"""

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from harness.acp_agents import DRIVEN, Driven, furnish
from harness.acp_agents import place as acp_place
from harness.real import require_acp, require_claude, require_codex
from harness.sessions import COMMENT, SOURCE, SessionBench
from harness.shell import word
from kit.claude_home import claude_home
from kit.codex_home import codex_home
from kit.model_server import Answer, ModelServer, Scenario, say, tool
from kit.model_server.scenario import shell as codex_shell
from kit.speakers import scripted_acp, scripted_claude
from symphony.agents.base import AgentBackend, AgentSession, Capabilities
from symphony.agents.events import AgentEvent
from symphony.agents.registry import create_backend
from symphony.config import AGENT_SECTIONS, NamedAgent
from symphony.testing.scripted_agent import command

__all__ = ["COMMENT", "PLAYERS", "Act", "Player"]


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
class Player(SessionBench):
    """One agent in one place. `real` means that no script of ours answers, but the agent itself."""

    name: str = field(kw_only=True)
    kind: str = field(kw_only=True)
    settings: Mapping[str, Any] = field(kw_only=True)
    prompt: Callable[[Sequence[Act]], str] = field(kw_only=True)
    faulty: Callable[[Sequence[str]], str] | None = None
    server: ModelServer | None = None

    @property
    def real(self) -> bool:
        return self.server is not None

    @property
    def able(self) -> Capabilities:
        return self.backend().capabilities

    def backend(self, *, faults: Sequence[str] = (), grace_ms: int = 2_000, **settings: Any) -> AgentBackend:
        given = {**self.settings, **settings}
        if faults:
            assert self.faulty is not None
            given["command"] = self.faulty(faults)
        section = AGENT_SECTIONS[self.kind].model_validate(given)
        context = self.context(secret_names=frozenset({"LINEAR_API_KEY"}), grace_ms=grace_ms)
        return create_backend(NamedAgent(name=self.kind, kind=self.kind, settings=section), context)

    def open(
        self,
        *,
        faults: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        grace_ms: int = 2_000,
        **changes: Any,
    ) -> Any:
        """A session; `grace_ms` bounds each step of its stop, `changes` are of its request."""
        backend = self.backend(faults=faults, grace_ms=grace_ms, **(settings or {}))
        return backend.open(self.request(**changes))

    async def play(self, session: AgentSession, *acts: Act) -> list[AgentEvent]:
        """One turn in which the agent does this, and all that it reports."""
        return await self.turn(session, self.prompt(acts))


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
    "codex": lambda *switches: f"PYTHONPATH={word(SOURCE)} {command(*switches)}",
    "claude": scripted_claude,
    "acp": scripted_acp,
}


@contextmanager
def _scripted(kind: str) -> Iterator[Player]:
    def spoken(switches: Sequence[str]) -> str:
        return _COMMANDS[kind](*switches)

    with _place() as top:
        switches = ["--threads", str(top / "threads")]
        yield Player.at(
            top,
            _plain(top),
            name=f"scripted-{kind}",
            kind=kind,
            settings={"command": spoken(switches), "read_timeout_ms": 20_000},
            prompt=_script,
            faulty=lambda faults: spoken([*switches, *faults]),
        )


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
        told = {"name": "one-shot", "kind": "command", "settings": settings, "prompt": _shell_script}
        yield Player.at(top, _plain(top), **told)


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
        told = {"name": "codex", "kind": "codex", "settings": settings, "prompt": prompt}
        yield Player.at(home.path.parent, dict(home.env), server=server, **told)


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
        told = {"name": "claude", "kind": "claude", "settings": settings, "prompt": prompt}
        yield Player.at(home.path, dict(home.env), server=server, **told)


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
        told = {"name": driven.profile, "kind": "acp", "settings": given, "prompt": prompt}
        yield Player.at(top, environ, server=server, **told)


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
