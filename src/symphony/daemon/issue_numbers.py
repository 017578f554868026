"""Finds the used issue numbers of a Markdown board by the traces of issues.

It reads only single sections of WORKFLOW.md, so the board works even if the prompt does not compile or a
variable is not set.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from symphony.config import STATE_DIR_VARIABLE, ResolveError, default_workspace_root, resolve_root
from symphony.daemon.state_dir import journal_path, locate
from symphony.domain import BRANCH_PREFIX
from symphony.frontmatter import FrontMatterError, Profile, load, split
from symphony.journal.model import UnusableError
from symphony.journal.reader import open_reader
from symphony.trackers.markdown import IssueNumbers
from symphony.workspaces import BRANCH_CLAIMS, Layout, all_refs, common_dir

_MAX_BYTES: Final = 1_048_576
_NUMBERS: Final = "symphony/numbers"
_KEY_DIGEST: Final = re.compile(r"-[0-9a-f]{8}\Z")
"""The end of a workspace key that differs from the identifier, because another issue has that key."""


def used_numbers(board: Path, workflow: Path | None, environment: Mapping[str, str]) -> IssueNumbers:
    """The used numbers of a board, so that a new issue does not get the number and branch of a deleted one.

    Traces of issues are branches here and in remotes, records of workspaces, and the journal; an unreadable
    source is skipped. The highest number is stored in the git directory around the board, which linked
    worktrees share and which is never committed, or in the folder of the board if there is no writable git
    directory.

    Args:
        board: the folder of the issue files.
        workflow: the workflow file; `None` for the nearest one above the board.
        environment: variables that its `workspace` section may refer to.
    """
    git_dirs = (common_dir(folder) for folder in board.parents if os.path.lexists(folder / ".git"))
    git_dir = next((found for found in git_dirs if found is not None), None)
    if workflow is None:
        files = (folder / "WORKFLOW.md" for folder in board.parents)
        workflow = next((file for file in files if file.is_file()), None)
    names = set() if git_dir is None else set(_branch_names(git_dir))
    if workflow is not None:
        names.update(_workspace_names(workflow, environment))
        names.update(_journal_names(journal_path(workflow, environment)))
    names |= {_KEY_DIGEST.sub("", name) for name in names}
    folder = board if git_dir is None or not os.access(git_dir, os.W_OK) else git_dir / _NUMBERS
    return IssueNumbers(folder=folder, names=frozenset(names))


def read_section(file: Path, name: str) -> Mapping[str, object]:
    """A section of the front matter as written; empty if it is missing or not a map.

    Raises:
        OSError: the file cannot be read.
        FrontMatterError: its front matter cannot be read.
    """
    with file.open("rb") as opened:
        parts = split(opened.read(_MAX_BYTES))
    front = None if parts is None else load(parts.front, profile=Profile.CORE)
    section = None if front is None else front.value.get(name)
    return section if isinstance(section, dict) else {}


def _branch_names(git_dir: Path) -> Iterator[str]:
    """The issues that have or had a branch here or in a remote."""
    for ref in (*all_refs(git_dir, "refs/heads/"), *all_refs(git_dir, "refs/remotes/")):
        _, found, name = ref.partition(f"/{BRANCH_PREFIX}")
        if found:
            yield name
    yield from _json_stems(git_dir / BRANCH_CLAIMS)


def _workspace_names(workflow: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The issues that have a workspace, or a branch in a mirror or in the repository of the workspaces."""
    section: Mapping[str, object] = {}
    with suppress(OSError, FrontMatterError):
        section = read_section(workflow, "workspace")
    root = None
    if configured := section.get("root"):
        variables = {**environment, STATE_DIR_VARIABLE: str(locate(workflow, environment))}
        with suppress(ResolveError):
            root = resolve_root(str(configured), base=workflow.parent, environment=variables)
    layout = Layout(root or default_workspace_root(environment))
    yield from _json_stems(layout.records)
    repositories = [path for path in _entries(layout.mirrors) if path.suffix == ".git"]
    repo = section.get("repo")
    if isinstance(repo, str) and (local := workflow.parent / repo).is_dir():
        repositories += filter(None, [common_dir(local)])
    for repository in repositories:
        yield from _branch_names(repository)


def _journal_names(journal: Path) -> Iterable[str]:
    if not journal.is_file():
        return ()
    try:
        with open_reader(journal) as reader:
            return reader.identifiers()
    except UnusableError:
        return ()


def _json_stems(folder: Path) -> Iterator[str]:
    return (path.stem for path in _entries(folder) if path.suffix == ".json")


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
