"""Making a workspace from a large repository, beside `git worktree add` and a full clone."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from bench.kit import environment, median
from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import WorkspaceManager

__all__ = ["Workspaces", "big_repository", "workspaces"]

_FILE_BYTES = 6_000
_SLIM = "slim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """Medians in ms; of many workspaces on one branch with few files the KB of git data that each adds.

    `stores` counts the object stores that those borrow from.
    """

    files: int
    worktree_ms: float
    ours_ms: float
    clone_ms: float
    repository_mb: float
    own_kb: float
    count: int
    stores: int


def big_repository(place: Path, *, files: int, commits: int) -> Path:
    """A repository with much history; branch `main` has all files, `slim` one."""
    place.mkdir(parents=True)
    _git(place, "init", "--quiet", "--initial-branch=main")
    importer = subprocess.Popen(
        ["git", "-C", str(place), "fast-import", "--quiet"], stdin=subprocess.PIPE, env=_env(place)
    )
    assert importer.stdin is not None
    for piece in _stream(files, commits):
        importer.stdin.write(piece)
    importer.stdin.close()
    if importer.wait() != 0:
        raise RuntimeError("git fast-import failed")
    return place


def _stream(files: int, commits: int) -> Iterator[bytes]:
    """Content that does not compress away, the same in every run."""
    chance = random.Random(20_261_121)  # noqa: S311 - test data
    who = b"committer Bench <bench@localhost> 1700000000 +0000\n"
    for number in range(commits):
        first = number == 0
        yield b"commit refs/heads/main\n" + who + b"data 1\nx\n"
        names = range(files) if first else [chance.randrange(files)]
        for name in names:
            body = chance.randbytes(_FILE_BYTES)
            path = b"d%02d/f%04d.txt" % (name % 40, name)
            yield b"M 100644 inline %b\ndata %d\n%b\n" % (path, len(body), body)
    yield b"commit refs/heads/slim\n" + who + b"data 1\nx\nM 100644 inline README.md\ndata 2\nx\n\n"


def workspaces(place: Path, *, files: int, commits: int, rounds: int, count: int) -> Workspaces:
    """`git worktree add` and ours by turns; then a full clone, and many small workspaces."""
    repository = big_repository(place / "repository", files=files, commits=commits)
    return anyio.run(_measure, place, repository, files, rounds, count)


async def _measure(place: Path, repository: Path, files: int, rounds: int, count: int) -> Workspaces:
    ours = _manager(place, place / "big", repository, "main")
    worktree_ms: list[float] = []
    ours_ms: list[float] = []
    clone_ms: list[float] = []
    await ours.prepare(_issue("WARM-1"), None)  # makes the mirror, once per repository
    for number in range(rounds):
        target = place / f"worktree-{number}"
        await _written_back()
        worktree_ms.append(
            await _timed_git(
                place, "-C", repository, "worktree", "add", "--quiet", "-b", f"b{number}", target, "main"
            )
        )
        await _written_back()
        begun = time.perf_counter()
        made = await ours.prepare(_issue(f"BIG-{number}"), None)
        ours_ms.append((time.perf_counter() - begun) * 1000)
        await anyio.to_thread.run_sync(shutil.rmtree, target)
        await anyio.to_thread.run_sync(shutil.rmtree, made.path)
    for number in range(_CLONES):
        await _written_back()
        address = f"file://{repository}"
        clone_ms.append(await _timed_git(place, "clone", "--quiet", address, place / f"clone-{number}"))
        await anyio.to_thread.run_sync(shutil.rmtree, place / f"clone-{number}")
    small = _manager(place, place / "small", repository, _SLIM)
    made_small = [await small.prepare(_issue(f"SMALL-{number}"), None) for number in range(count)]
    lenders = {(one.path / ".git/objects/info/alternates").read_text("utf-8") for one in made_small}
    return Workspaces(
        files=files,
        worktree_ms=median(worktree_ms),
        ours_ms=median(ours_ms),
        clone_ms=median(clone_ms),
        repository_mb=_size(repository / ".git/objects") / 1e6,
        own_kb=sum(_size(one.path / ".git") for one in made_small) / count / 1000,
        count=count,
        stores=len(lenders),
    )


_CLONES = 2


async def _written_back() -> None:
    """Wait for the disk, so that nobody pays for what another has written before."""
    await anyio.to_thread.run_sync(os.sync)


def _manager(place: Path, root: Path, repository: Path, branch: str) -> WorkspaceManager:
    settings = WorkspaceSettings(root=root, repo=str(repository), base_branch=branch)
    return WorkspaceManager(LocalHost(), settings, HooksSettings(), _env(place), frozenset())


def _issue(identifier: str) -> Issue:
    return Issue(id=identifier, identifier=identifier, title="t", state="Todo", dispatchable=True)


def _env(place: Path) -> dict[str, str]:
    return environment(place)


async def _timed_git(place: Path, *arguments: str | Path) -> float:
    begun = time.perf_counter()
    done = await LocalHost().run(["git", *map(str, arguments)], env=_env(place), timeout_ms=600_000)
    if done.exit_code != 0:
        raise RuntimeError(done.stderr.decode())
    return (time.perf_counter() - begun) * 1000


def _git(place: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(place), *arguments], check=True, env=_env(place), stdout=subprocess.DEVNULL
    )


def _size(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size  # noqa: PTH118 - thousands of files
    return total
