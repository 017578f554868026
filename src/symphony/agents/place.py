"""The workspace of a session, judged before an agent is started in it (AG5)."""

from pathlib import Path

from anyio import to_thread

from symphony.agents.base import AgentError
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["resolve_workspace"]


async def resolve_workspace(cwd: Path) -> Path:
    """The workspace without links, checked to be a directory, since an agent may accept anything.

    Raises:
        AgentError: `invalid_workspace_cwd`.
    """
    return await to_thread.run_sync(_resolved, cwd)


def _resolved(cwd: Path) -> Path:
    try:
        resolved = cwd.resolve(strict=True)
        if cwd.is_absolute() and resolved.is_dir():
            return resolved
    except OSError as error:
        raise AgentError(_invalid_cwd(cwd)) from error
    raise AgentError(_invalid_cwd(cwd))


def _invalid_cwd(cwd: Path) -> Failure:
    return Failure(
        category=Category.INVALID_WORKSPACE_CWD,
        blame=Blame.WORKSPACE,
        message=redact(f"the workspace {cwd} is not an existing directory with an absolute path"),
    )
