"""A directory for the check before the first dispatch, as near to a workspace as can be (DESIGN 9).

It lies below `<workspace_root>/.symphony`, a name that no workspace has, because what a sandbox permits
depends on the place.
"""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from symphony.agents.base import AgentError
from symphony.agents.redaction import redact
from symphony.domain.disk import is_full, make_room
from symphony.domain.failures import Blame, Category, Failure
from symphony.processes.base import Host

__all__ = ["preflight_failure", "scratch"]

_TIMEOUT_MS = 10_000
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
        done = await host.run(argv, env=dict(environ), timeout_ms=_TIMEOUT_MS, tethered=False)
    except OSError as error:
        raise preflight_failure(f"{argv[0]}: {error}", hint=hint, blame=Blame.WORKSPACE) from error
    if done.exit_code != 0:
        text = done.stderr.decode("utf-8", "replace") or f"{argv[0]} failed"
        hint = make_room("workspace.root") if is_full(text) else hint
        raise preflight_failure(text, hint=hint, blame=Blame.WORKSPACE)
