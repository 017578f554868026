"""A place for the check before the first dispatch: a directory that looks like a workspace (DESIGN 9)."""

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from symphony.agents.base import AgentError
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure
from symphony.hosts.base import Host

__all__ = ["preflight_failure", "scratch"]

_TIMEOUT_MS = 10_000
_PREFIX = "preflight-"
# An hour is far longer than any check takes, so another daemon of this root is not disturbed.
_LEFT_BEHIND = ("-name", f"{_PREFIX}*", "-mmin", "+60")


def preflight_failure(message: str, *, hint: str, blame: Blame = Blame.HOST) -> AgentError:
    """The error by which a check says no: an agent that fails it would fail every session."""
    failure = Failure(
        category=Category.AGENT_PREFLIGHT, blame=blame, message=redact(message), retryable=False, hint=hint
    )
    return AgentError(failure)


@asynccontextmanager
async def scratch(host: Host, environ: Mapping[str, str], root: Path) -> AsyncIterator[Path]:
    """A directory with a `.git` below `<root>/.symphony`, a name that no workspace has; removed afterwards.

    What earlier checks left there goes with it.

    Raises:
        AgentError: `agent_preflight`; it cannot be made.
    """
    home = root / ".symphony"
    place = home / f"{_PREFIX}{uuid.uuid4().hex}"
    await _files(host, environ, ["mkdir", "-p", "--", str(place / ".git")])
    try:
        resolved = await anyio.Path(place).resolve()
        yield Path(resolved)
    finally:
        ours = ("-mindepth", "1", "-maxdepth", "1", "(", "-name", place.name, "-o", *_LEFT_BEHIND, ")")
        with anyio.CancelScope(shield=True):
            await _files(host, environ, ["find", str(home), *ours, "-exec", "rm", "-rf", "--", "{}", "+"])


async def _files(host: Host, environ: Mapping[str, str], argv: list[str]) -> None:
    hint = "workspace.root must be a directory that the daemon can write to"
    try:
        done = await host.run(argv, env=dict(environ), timeout_ms=_TIMEOUT_MS)
    except OSError as error:
        raise preflight_failure(f"{argv[0]}: {error}", hint=hint, blame=Blame.WORKSPACE) from error
    if done.exit_code != 0:
        text = done.stderr.decode("utf-8", "replace") or f"{argv[0]} failed"
        raise preflight_failure(text, hint=hint, blame=Blame.WORKSPACE)
