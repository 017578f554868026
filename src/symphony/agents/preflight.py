"""A backend whose processes are enclosed by bubblewrap: proves first that the enclosure holds (DESIGN 9).

Every backend is put behind this one where `workspace.isolation` asks for it: none can forget the proof.
"""

import os
import re
import secrets
import shlex
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
from anyio import Path as AsyncPath
from anyio import to_thread
from typing_extensions import override

from symphony.agents.base import (
    AgentBackend,
    AgentError,
    AgentSession,
    AgentSkillRoots,
    BackendContext,
    Capabilities,
    Preflight,
    Program,
    SessionRequest,
)
from symphony.agents.environment import child_environment
from symphony.agents.events import redact
from symphony.agents.isolation import Isolation
from symphony.agents.process import shell_argv
from symphony.domain import Blame, Category, Failure, disk_full_hint, is_disk_full
from symphony.processes.base import Completed, Host

# The agent's program: is it there, asked of the login shell that would start it (AG1)?


_LOOKUP_TIMEOUT_MS = 10_000
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9_@%+=:,.~/-]+")


def program_of(command: str) -> str | None:
    """The program that a shell command starts; null where only a shell could tell.

    A path that is relative to a workspace cannot be looked up either: there is no workspace yet.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    names = [word for word in words if not _ASSIGNMENT.fullmatch(word) and word != "exec"]
    first = names[0] if names else ""
    if not _WORD.fullmatch(first) or ("/" in first and not first.startswith(("/", "~/"))):
        return None
    return first


async def missing_program(program: Program, *, host: Host, environment: Mapping[str, str]) -> Failure | None:
    """Why a program could not be started; None where it is there, or nobody can tell."""
    name = program_of(program.command)
    if name is None:
        return None
    argv = shell_argv(f"command -v {name} >&2", (), search_path=environment.get("PATH"))
    try:
        done = await host.run(
            argv, env=child_environment(environment, run_id="check"), timeout_ms=_LOOKUP_TIMEOUT_MS
        )
    except OSError:
        return _missing("bash", program)
    return None if done.exit_code == 0 or done.timed_out else _missing(name, program)


def _missing(name: str, program: Program) -> Failure:
    return Failure(
        category=program.missing,
        blame=Blame.CONFIG,
        message=f"{program.key}: the login shell finds no program {name}",
        retryable=False,
        hint=program.hint,
    )


# A directory for the check before the first dispatch, as near to a workspace as can be (DESIGN 9).
#
# It lies below `<workspace_root>/.symphony`, a name that no workspace has, because what a sandbox permits
# depends on the place.


_SCRATCH_TIMEOUT_MS = 10_000
_NAME = "preflight-"
# An hour is far longer than any check takes, so another daemon of this root is not disturbed.
_LEFT_BEHIND = ("-name", f"{_NAME}*", "-mmin", "+60")


@asynccontextmanager
async def scratch(host: Host, environ: Mapping[str, str], root: Path) -> AsyncIterator[Path]:
    """A directory that looks like a workspace with a `.git`, removed afterwards with what others left.

    Raises:
        AgentError: `agent_preflight`; it cannot be made or removed.
    """
    home = root / ".symphony"
    place = home / f"{_NAME}{uuid.uuid4().hex}"
    await _run(host, environ, ["mkdir", "-p", "--", str(place / ".git")])
    try:
        resolved = await anyio.Path(place).resolve()
        yield Path(resolved)
    finally:
        ours = ("-mindepth", "1", "-maxdepth", "1", "(", "-name", place.name, "-o", *_LEFT_BEHIND, ")")
        with anyio.CancelScope(shield=True):
            await _run(host, environ, ["find", str(home), *ours, "-exec", "rm", "-rf", "--", "{}", "+"])


def preflight_failure(message: str, *, hint: str, blame: Blame = Blame.HOST) -> AgentError:
    """What the check found, as one line that is fit to be shown."""
    failure = Failure(
        category=Category.AGENT_PREFLIGHT, blame=blame, message=redact(message), retryable=False, hint=hint
    )
    return AgentError(failure)


async def _run(host: Host, environ: Mapping[str, str], argv: Sequence[str]) -> None:
    hint = "workspace.root must be a directory that the daemon can write to"
    try:
        done = await host.run(argv, env=dict(environ), timeout_ms=_SCRATCH_TIMEOUT_MS, supervised=False)
    except OSError as error:
        raise preflight_failure(f"{argv[0]}: {error}", hint=hint, blame=Blame.WORKSPACE) from error
    if done.exit_code != 0:
        text = done.stderr.decode("utf-8", "replace") or f"{argv[0]} failed"
        hint = disk_full_hint("workspace.root") if is_disk_full(text) else hint
        raise preflight_failure(text, hint=hint, blame=Blame.WORKSPACE)


MISSING_HINT = "install bubblewrap (apt install bubblewrap), or set workspace.isolation: none"
NAMESPACE_HINT = (
    "enable unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0), or set workspace.isolation: none where a container "
    "is the sandbox"
)
_PROOF_TIMEOUT_MS = 15_000
_OFFLINE = "workspace.network: closed leaves the agent without network, and so without a model that is there"
# Prints what is wrong; the marker at its end says that all of it was asked.
_PROBE = """
( : > made ) 2> /dev/null || echo the workspace cannot be written to
( : > "$1" ) 2> /dev/null && echo a file beside the workspace could be written
[ -e "$2" ] && echo another workspace can be seen
echo "$3"
"""


class IsolatedBackend(AgentBackend):
    """An `AgentBackend` like the one inside, with one more question before the first dispatch."""

    def __init__(self, inside: AgentBackend, context: BackendContext, isolation: Isolation) -> None:
        super().__init__(settings=inside.settings, context=context, name=inside.name)
        self._inside = inside
        self._isolation = isolation

    @property
    @override
    def capabilities(self) -> Capabilities:
        """Those of the backend inside."""
        return self._inside.capabilities

    @property
    @override
    def skill_roots(self) -> AgentSkillRoots:
        """Those of the backend inside."""
        return self._inside.skill_roots

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        """Try the enclosure, then what the backend inside tries.

        Raises:
            AgentError: `agent_preflight`: there is no bubblewrap, it does not work here, or it leaks; else as
                the backend inside.
        """
        async with scratch(self.context.host, self.context.environ, workspace_root) as place:
            await self._prove(place, run_id)
        found = await self._inside.preflight(workspace_root, run_id=run_id)
        notices = found.notices if self._isolation.network else (*found.notices, _OFFLINE)
        return Preflight(agent=found.agent, version=found.version, notices=notices)

    @override
    def open(self, request: SessionRequest) -> AbstractAsyncContextManager[AgentSession]:
        """A session of the backend inside."""
        return self._inside.open(request)

    async def _prove(self, place: Path, run_id: str) -> None:
        """A file beside the workspace is neither written nor seen from inside; the workspace is both."""
        marker, own, neighbour = secrets.token_hex(8), place / "own", place / "other"
        beside, other = neighbour / "written", neighbour / "seen"
        for directory in (own, neighbour):
            await AsyncPath(directory).mkdir()
        await AsyncPath(other).touch()
        isolation = replace(self._isolation, hidden=(*self._isolation.hidden, place))
        probe = ("/bin/sh", "-c", _PROBE, "probe", str(beside), str(other), marker)
        argv = await to_thread.run_sync(partial(isolation.enclose, probe, cwd=own))
        env = child_environment(self.context.environ, run_id=run_id)
        try:
            done = await self.context.host.run(argv, cwd=own, env=env, timeout_ms=_PROOF_TIMEOUT_MS)
        except OSError as error:
            text = f"workspace.isolation: {self._isolation.program} cannot be started: {error}"
            raise preflight_failure(text, hint=MISSING_HINT) from error
        _judge(done, marker, leaked=await AsyncPath(beside).exists())


def missing_bubblewrap(environment: Mapping[str, str]) -> Failure | None:
    """Why nothing could be enclosed here, seen without starting anything; looks at the disk."""
    program = Isolation().program
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is not None:
        return None
    text = f"workspace.isolation: there is no {program} on PATH"
    return preflight_failure(text, hint=MISSING_HINT).failure


def _judge(done: Completed, marker: str, *, leaked: bool) -> None:
    said = done.stdout.decode("utf-8", "replace").splitlines()
    if done.exit_code != 0 or marker not in said:
        told = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"exit code {done.exit_code}"
        text = f"workspace.isolation: bubblewrap does not work here: {told}"
        raise preflight_failure(text, hint=NAMESPACE_HINT)
    wrong = [line for line in said if line != marker] or (["a write outside came through"] if leaked else [])
    if wrong:
        hint = "keep workspace.root out of the directories that agents write to, such as their homes"
        raise preflight_failure(f"workspace.isolation does not hold: {'; '.join(wrong)}", hint=hint)
