"""The workspace of a session, judged before an agent is started in it (AG5)."""

from pathlib import Path

from anyio import to_thread

from symphony.agents.base import AgentError, SessionRequest
from symphony.agents.process import size_of
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["resolve_workspace"]


async def resolve_workspace(request: SessionRequest) -> tuple[Path, int]:
    """The workspace without links, checked to be a directory, since an agent may accept anything (AG5).

    With it comes the size of the stderr file so far: both in one way to a thread.

    Raises:
        AgentError: `invalid_workspace_cwd`.
    """
    try:
        resolved, stderr_start = await to_thread.run_sync(_looked_at, request)
    except OSError as error:
        raise AgentError(_invalid_cwd(request.cwd)) from error
    if resolved is None:
        raise AgentError(_invalid_cwd(request.cwd))
    return resolved, stderr_start


def _looked_at(request: SessionRequest) -> tuple[Path | None, int]:
    return _directory(request.cwd), size_of(request.stderr_path)


def _directory(cwd: Path) -> Path | None:
    resolved = cwd.resolve(strict=True)
    return resolved if cwd.is_absolute() and resolved.is_dir() else None


def _invalid_cwd(cwd: Path) -> Failure:
    return Failure(
        category=Category.INVALID_WORKSPACE_CWD,
        blame=Blame.WORKSPACE,
        message=redact(f"the workspace {cwd} is not an existing directory with an absolute path"),
    )
