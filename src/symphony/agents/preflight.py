"""Common parts of the checks before the first dispatch: the program, a scratch directory, the isolation."""

import os
import re
import secrets
import shlex
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from typing_extensions import override

from symphony import to_thread
from symphony.agents import base
from symphony.agents.environment import child_environment
from symphony.agents.events import redact
from symphony.agents.folders import located
from symphony.agents.isolation import TRIES, Isolation
from symphony.agents.process import shell_argv
from symphony.domain import Blame, Category, Failure, disk_full_hint, is_disk_full
from symphony.processes.base import Completed, Host

_LOOKUP_TIMEOUT_MS: Final = 10_000
_NOT_FOUND: Final = 1  # what bash's `command -v` ends with
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_@%+=:,.~/-]+")
_QUOTABLE: Final = re.compile(r'[^$`"\\!]+')  # means itself in double quotes

_SCRATCH_TIMEOUT_MS: Final = 10_000
_SCRATCH_PREFIX: Final = "preflight-"
_STALE: Final = ("-name", f"{_SCRATCH_PREFIX}*", "-mmin", "+60")  # no check of another daemon takes that long

_PROOF_TIMEOUT_MS: Final = 15_000
_MISSING_HINT: Final = "install bubblewrap (apt install bubblewrap), or set workspace.isolation: none"
_NAMESPACE_HINT: Final = (
    "enable unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0), or set workspace.isolation: none where a container "
    "is the sandbox"
)
_LEAK_HINT: Final = "keep workspace.root out of the directories that agents write to, such as their homes"
_OFFLINE: Final = "workspace.network: closed leaves the agent without network, and so without a remote model"
# Prints each problem on a line, and finally a marker which shows that the whole script ran.
_PROBE: Final = """
( : > made ) 2> /dev/null || echo the workspace cannot be written to
( : > "$1" ) 2> /dev/null && echo a file beside the workspace could be written
[ -e "$2" ] && echo another workspace can be seen
echo "$3"
"""


def preflight_failure(message: str, *, hint: str, blame: Blame = Blame.HOST) -> base.AgentError:
    """Return the error of a failed check."""
    failure = Failure(
        category=Category.AGENT_PREFLIGHT, blame=blame, message=redact(message), retryable=False, hint=hint
    )
    return base.AgentError(failure)


def program_of(command: str) -> str | None:
    """Return the program that a shell command starts, as a word of a shell; None if only a shell can tell.

    A path relative to a workspace gives None too: there is no workspace yet.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    names = [word for word in words if not _ASSIGNMENT.fullmatch(word) and word != "exec"]
    first = names[0] if names else ""
    if "/" in first and not first.startswith(("/", "~/")):
        return None
    if _PROGRAM.fullmatch(first):
        return first
    quoted = shlex.quote(first)
    in_quotes = quoted in command or (_QUOTABLE.fullmatch(first) and f'"{first}"' in command)
    return quoted if in_quotes else None


async def missing_program(
    program: base.Program, *, host: Host, environment: Mapping[str, str]
) -> Failure | None:
    """Return why a program could not be started; None if the login shell finds it or cannot tell."""
    name = program_of(program.command)
    if name is None:
        return None
    argv = shell_argv(f"command -v {name} >&2", (), search_path=environment.get("PATH"))
    env = child_environment(environment, run_id="check")
    try:
        done = await host.run(argv, env=env, timeout_ms=_LOOKUP_TIMEOUT_MS)
    except (FileNotFoundError, PermissionError):
        name = "bash"
    except OSError:  # no memory, process or descriptor is left: the program may well be there
        return None
    else:
        # A shell that was killed, or that the deadline ended, did not look.
        if done.timed_out or done.exit_code != _NOT_FOUND:
            return None
    return Failure(
        category=program.category,
        blame=Blame.CONFIG,
        message=f"{program.key}: the login shell finds no program {name}",
        retryable=False,
        hint=program.hint,
    )


@asynccontextmanager
async def scratch_directory(host: Host, environ: Mapping[str, str], root: Path) -> AsyncIterator[Path]:
    """A directory that looks like a workspace with a `.git`; removed at the end, with stale ones of others.

    It lies below `<workspace_root>/.symphony`, a name that no workspace has, because what a sandbox permits
    depends on the place.

    Raises:
        AgentError: `agent_preflight`: it cannot be made or removed.
    """

    async def run(*argv: str) -> None:
        hint = "workspace.root must be a directory that the daemon can write to"
        try:
            done = await host.run(argv, env=environ, timeout_ms=_SCRATCH_TIMEOUT_MS, supervised=False)
        except OSError as error:
            raise preflight_failure(f"{argv[0]}: {error}", hint=hint, blame=Blame.WORKSPACE) from error
        if done.exit_code != 0:
            text = done.stderr.decode("utf-8", "replace") or f"{argv[0]} failed"
            hint = disk_full_hint("workspace.root") if is_disk_full(text) else hint
            raise preflight_failure(text, hint=hint, blame=Blame.WORKSPACE)

    parent = root / ".symphony"
    scratch = parent / f"{_SCRATCH_PREFIX}{uuid.uuid4().hex}"
    await run("mkdir", "-p", "--", str(scratch / ".git"))
    try:
        yield await to_thread.run_sync(scratch.resolve)
    finally:
        stale = ("find", str(parent), "-mindepth", "1", "-maxdepth", "1", *_STALE)
        with anyio.CancelScope(shield=True):
            await run("rm", "-rf", "--", str(scratch))
            with suppress(base.AgentError):  # another check may remove what it finds at the same time
                await run(*stale, "-exec", "rm", "-rf", "--", "{}", "+")


class IsolatedBackend(base.AgentBackend):
    """Proves that the isolation holds before the preflight of the backend inside.

    Every backend is put behind this one where `workspace.isolation` is set, so that none can skip the proof.
    """

    def __init__(self, inside: base.AgentBackend, context: base.BackendContext, isolation: Isolation) -> None:
        super().__init__(settings=inside.settings, context=context, name=inside.name)
        self.capabilities = inside.capabilities
        self.skill_roots = inside.skill_roots
        self.folders, self.home, self.environ = inside.folders, inside.home, inside.environ
        self._inside = inside
        self._isolation = isolation

    @override
    async def preflight(self, workspace_root: Path, *, run_id: str) -> base.Preflight:
        """Try the isolation, then run the preflight of the backend inside.

        Raises:
            AgentError: `agent_preflight`: there is no bubblewrap, it does not work here, or it leaks; else as
                the backend inside.
        """
        async with scratch_directory(self.context.host, self.context.environ, workspace_root) as scratch:
            await self._prove(scratch, run_id)
        found = await self._inside.preflight(workspace_root, run_id=run_id)
        notices = (*found.notices, *self._left_open(), *(() if self._isolation.network else (_OFFLINE,)))
        return replace(found, notices=notices)

    def _left_open(self) -> tuple[str, ...]:
        """Return the parts of the operator's home that the isolation leaves open."""
        home = self.environ.get("HOME")
        if self.home is not None or not home:
            return ()
        folders = located(self.folders, self.environ, Path("<workspace>"))
        written = [str(folder.path / name) for folder in folders for name in folder.kept]
        changed = f", and change {', '.join(written)}" if written else ""
        read = f"home: operator lets sessions read {home}, except for known places of secrets"
        return (f"{read}{changed}; home: private closes that",)

    @override
    @asynccontextmanager
    async def open(self, request: base.SessionRequest) -> AsyncIterator[base.AgentSession]:
        """Open a session of the backend inside, in an isolation that is made again if it could not be made.

        Raises:
            AgentError: as the backend inside.
        """
        async with AsyncExitStack() as stack:
            yield await self._begin(stack, request)

    async def _begin(self, stack: AsyncExitStack, request: base.SessionRequest) -> base.AgentSession:
        for _ in range(TRIES - 1):
            with suppress(base.IsolationError):
                return await stack.enter_async_context(self._inside.open(request))
        return await stack.enter_async_context(self._inside.open(request))

    async def run_command(self, command: str, **options: Any) -> Completed:
        """Run a command by the backend inside (`RunsCommands`).

        Raises:
            AgentError: the backend inside runs no commands; else as it says.
        """
        if not isinstance(self._inside, base.RunsCommands):
            raise preflight_failure(f"the agent {self.name} runs no commands", hint="name another agent")
        return await self._inside.run_command(command, **options)

    async def _prove(self, scratch: Path, run_id: str) -> None:
        """Try from inside to write and see a file beside the workspace; only the workspace is writable."""
        workspace, neighbour = scratch / "own", scratch / "other"
        written, seen = neighbour / "written", neighbour / "seen"

        def make() -> None:
            workspace.mkdir()
            neighbour.mkdir()
            seen.touch()

        await to_thread.run_sync(make)
        marker = secrets.token_hex(8)
        isolation = replace(self._isolation, hidden=(*self._isolation.hidden, scratch))
        probe = ("/bin/sh", "-c", _PROBE, "probe", str(written), str(seen), marker)
        env = child_environment(self.context.environ, run_id=run_id)
        tries = 0
        while True:
            argv = await to_thread.run_sync(partial(isolation.wrap, probe, cwd=workspace))
            try:
                done = await self.context.host.run(argv, cwd=workspace, env=env, timeout_ms=_PROOF_TIMEOUT_MS)
            except OSError as error:
                text = f"workspace.isolation: {self._isolation.program} cannot be started: {error}"
                raise preflight_failure(text, hint=_MISSING_HINT) from error
            lines = done.stdout.decode("utf-8", "replace").splitlines()
            if done.exit_code == 0 and marker in lines:
                break
            tries += 1
            if tries == TRIES:
                reason = " ".join(done.stderr.decode("utf-8", "replace").split())
                text = f"bubblewrap does not work here: {reason or f'exit code {done.exit_code}'}"
                raise preflight_failure(f"workspace.isolation: {text}", hint=_NAMESPACE_HINT)
        wrong = [line for line in lines if line != marker]
        if not wrong and await to_thread.run_sync(written.exists):
            wrong = ["a file beside the workspace was written"]
        if wrong:
            text = f"workspace.isolation does not hold: {'; '.join(wrong)}"
            raise preflight_failure(text, hint=_LEAK_HINT)


def missing_bubblewrap(environment: Mapping[str, str]) -> Failure | None:
    """Return why no isolation is possible, without starting anything; looks at the disk."""
    program = Isolation().program
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is not None:
        return None
    text = f"workspace.isolation: there is no {program} on PATH"
    return preflight_failure(text, hint=_MISSING_HINT).failure
