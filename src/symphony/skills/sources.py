"""Says which directories are looked at for skills, in the order of precedence."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from symphony.skills.codes import problem
from symphony.skills.model import DEFAULT_PATH, DEFAULT_USER_PATH, Code, Problem, Scope, SkillOptions

__all__ = ["Source", "anchored", "sources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One directory to look at.

    Attributes:
        base: absolute; no link may lead out of it.
        parts: the steps from `base` to the directory.
        root: absolute, the directory as the catalog names it.
        shown: what the paths of problems begin with; empty for `base` itself.
        optional: it is no fault that it is missing.
    """

    scope: Scope
    base: Path
    parts: tuple[str, ...]
    root: Path
    shown: str
    optional: bool

    def path(self, *names: str) -> str:
        """The path of what stands below the directory, as text that can be encoded."""
        return shown("/".join([self.shown, *names] if self.shown else names)) or "."


def shown(path: str) -> str:
    """A path as text that can be encoded, whatever bytes its names are made of."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")


def sources(workspace: Path, options: SkillOptions, root: Path | None) -> Iterator[Source | Problem]:
    """The roots of the options: the project's, the user's, the further ones; or why one is none."""
    base = workspace.absolute()
    named = base if root is None else root.absolute()
    yield _below(base, named, options.path, Scope.PROJECT, "path")
    for path in options.user_paths:
        yield _user(path)
    for path in options.extra_paths:
        yield _below(base, named, path, Scope.EXTRA, "extra_paths")


def _below(base: Path, named: Path, path: str, scope: Scope, key: str) -> Source | Problem:
    parts = PurePosixPath(path).parts
    if not _is_sane(path) or path.startswith("/") or ".." in parts:
        message = f"`agent.skills.{key}` is not a relative path inside the workspace."
        return problem(Code.OUTSIDE_WORKSPACE, ".", message=message, scope=scope)
    shown = "/".join(parts)
    return Source(
        scope=scope,
        base=base,
        parts=parts,
        root=named / shown,
        shown=shown,
        optional=scope is Scope.PROJECT and shown == DEFAULT_PATH,
    )


def _user(path: str) -> Source | Problem:
    if not _is_sane(path):
        message = "`agent.skills.user_path` is not a path."
        return problem(Code.NOT_A_DIRECTORY, ".", message=message, scope=Scope.USER)
    base = _user_root(path)
    return Source(
        scope=Scope.USER,
        base=base,
        parts=(),
        root=base,
        shown=path.rstrip("/"),
        optional=path.rstrip("/") == DEFAULT_USER_PATH,
    )


def anchored(scope: Scope, path: str, workspace: Path, options: SkillOptions) -> tuple[Path, str]:
    """The directory that no link of a skill may lead out of, and the skill's path below it.

    Args:
        scope: of a `Skill` or a `Problem`.
        path: of the same.
        workspace: the directory that it was loaded from.
        options: those that it was loaded with.
    """
    roots = [root.rstrip("/") for root in options.user_paths] if scope is Scope.USER else []
    within = [root for root in roots if f"{path}/".startswith(f"{shown(root)}/")]
    if not within:
        return workspace, path
    root = max(within, key=len)
    return _user_root(root or "/"), path.removeprefix(shown(root)).lstrip("/")


def _user_root(path: str) -> Path:
    """The user's directory, absolute; `path` is as it is configured."""
    base = Path(path).expanduser() if path == "~" or path.startswith("~/") else Path(path)
    return base.absolute()


def _is_sane(path: str) -> bool:
    return bool(path.strip()) and path.isprintable()
