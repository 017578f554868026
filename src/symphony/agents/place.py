"""The workspace of a session, judged before an agent is started in it (AG5)."""

from pathlib import Path

from anyio import to_thread

from symphony.agents.base import AgentError, Place, SessionRequest
from symphony.agents.process import size_of
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["look", "place_of", "resolve_workspace"]


async def resolve_workspace(request: SessionRequest) -> Place:
    """Where the session runs, by a look of the caller's a moment ago, or of ours.

    Raises:
        AgentError: `invalid_workspace_cwd`.
    """
    if request.place is not None:
        return request.place
    return await to_thread.run_sync(look, request.cwd, request.stderr_path)


def look(cwd: Path, stderr_path: Path) -> Place:
    """The workspace without links, checked to be a directory, since an agent may accept anything; blocking.

    Raises:
        AgentError: `invalid_workspace_cwd`.
    """
    try:
        resolved = cwd.resolve(strict=True)
        if cwd.is_absolute() and resolved.is_dir():
            return place_of(resolved, stderr_path)
    except OSError as error:
        raise AgentError(_invalid_cwd(cwd)) from error
    raise AgentError(_invalid_cwd(cwd))


def place_of(real: Path, stderr_path: Path) -> Place:
    """The place of a session in what was just found to be a real directory, without links; blocking."""
    return Place(cwd=real, stderr_start=size_of(stderr_path))


def _invalid_cwd(cwd: Path) -> Failure:
    return Failure(
        category=Category.INVALID_WORKSPACE_CWD,
        blame=Blame.WORKSPACE,
        message=redact(f"the workspace {cwd} is not an existing directory with an absolute path"),
    )
