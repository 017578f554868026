"""Every trace that an issue of a Markdown board leaves: `issue new` gives no number for a second time.

A deleted issue may have left a branch, which the next issue of that number would go on with. A fresh clone
knows the branches of its remote; a machine that worked on the board knows more. What cannot be read tells
nothing.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from symphony.cli.journal_place import journal_of
from symphony.config.resolve import STATE_DIR_VARIABLE, ResolveError, default_workspace_root, resolve_root
from symphony.daemon.state_place import locate
from symphony.domain.ids import BRANCH_PREFIX
from symphony.frontmatter import FrontMatterError, Profile, load, split
from symphony.trackers.markdown import Numbers
from symphony.workspaces.layout import Layout
from symphony.workspaces.refs import all_refs, common_dir
from symphony.workspaces.tenants import CLAIMS

__all__ = ["numbers_of"]

_PLACE = "symphony/numbers"
_MAX_BYTES = 1_048_576
_OF_A_TENANT = re.compile(r"-[0-9a-f]{8}")


def numbers_of(board: Path, workflow: Path | None, environment: Mapping[str, str]) -> Numbers:
    """What is known of the numbers of a board, whose WORKFLOW.md is looked for above it if none is named.

    The highest one is kept in the git directory around the board, which linked worktrees share and nobody
    commits; in the board's folder where there is none.
    """
    around = next((found for folder in board.parents if (found := _git_dir(folder))), None)
    workflow = workflow or next(
        (file for folder in board.parents if (file := folder / "WORKFLOW.md").is_file()), None
    )
    names = set(_of_git(around))
    if workflow is not None:
        names |= {*_of_workspaces(workflow, environment), *_of_journal(journal_of(workflow, environment))}
    names |= {name[: tail.start()] for name in names if (tail := _tail(name))}
    place = board if around is None or not os.access(around, os.W_OK) else around / _PLACE
    return Numbers(folder=place, names=frozenset(names))


def _tail(name: str) -> re.Match[str] | None:
    """The digest at the end of the key that an issue got because its own was taken (`workspace.tenants`)."""
    found = list(_OF_A_TENANT.finditer(name))
    return found[-1] if found and found[-1].end() == len(name) else None


def _git_dir(folder: Path) -> Path | None:
    return common_dir(folder) if os.path.lexists(folder / ".git") else None


def _of_git(git_dir: Path | None) -> Iterator[str]:
    """The issues that have a branch here or in a remote, or had one."""
    if git_dir is None:
        return
    for ref in (*all_refs(git_dir, "refs/heads/"), *all_refs(git_dir, "refs/remotes/")):
        _, found, name = ref.partition(f"/{BRANCH_PREFIX}")
        if found:
            yield name
    yield from _stems(git_dir / CLAIMS)


def _of_workspaces(workflow: Path, environment: Mapping[str, str]) -> Iterator[str]:
    section = _section(workflow)
    root, repo = section.get("root"), section.get("repo")
    known = {**environment, STATE_DIR_VARIABLE: str(locate(workflow, environment))}
    try:
        named = resolve_root(str(root or ""), base=workflow.parent, environment=known) if root else None
    except ResolveError:
        named = None
    layout = Layout(named or default_workspace_root(environment))
    yield from _stems(layout.records)
    for mirror in _entries(layout.mirrors):
        yield from _of_git(mirror if mirror.suffix == ".git" else None)
    if isinstance(repo, str) and (local := workflow.parent / Path(repo)).is_dir():
        yield from _of_git(common_dir(local))


def _of_journal(journal: Path) -> Iterable[str]:
    if not journal.is_file():
        return ()
    from symphony.journal.model import UnusableError  # SQLite: only where there is something to read
    from symphony.journal.reader import open_reader

    try:
        with open_reader(journal) as reader:
            return reader.identifiers()
    except UnusableError:
        return ()


def _stems(folder: Path) -> Iterator[str]:
    return (path.stem for path in _entries(folder) if path.suffix == ".json")


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _section(workflow: Path) -> Mapping[str, Any]:
    """The `workspace` section as it stands there."""
    try:
        with workflow.open("rb") as opened:
            pieces = split(opened.read(_MAX_BYTES))
        front = None if pieces is None else load(pieces.front, profile=Profile.CORE)
    except (OSError, FrontMatterError):
        return {}
    section = None if front is None else front.value.get("workspace")
    return section if isinstance(section, dict) else {}
