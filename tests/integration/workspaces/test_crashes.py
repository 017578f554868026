"""What a crash leaves of a workspace is mended by the next attempt, and work in it is never thrown away."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import Category, FaultPoint, Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import WorkspaceError, WorkspaceManager, directories, files, find_work

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
MakeIssue = Callable[[str], Issue]


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up behind it, which `unkempt` sees to."""


def dies_at(wanted: FaultPoint) -> Callable[[FaultPoint], None]:
    def fault(point: FaultPoint) -> None:
        if point is wanted:
            raise Killed

    return fault


@contextmanager
def unkempt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What would take a step back does nothing, as in a process that is gone."""
    with monkeypatch.context() as patch:
        patch.setattr(directories, "undo_creation", lambda *_, **__: None)
        patch.setattr(directories, "forget", lambda *_: None)
        with pytest.raises(Killed):
            yield


def found(root: Path) -> dict[str, list[str]]:
    """What lies below the root: workspaces, records, and what is half-done."""
    inner = root / ".symphony"
    folders = {name: inner / name for name in ("records", "staging", "trash")}
    shown = {name: sorted(path.name for path in folder.iterdir()) for name, folder in folders.items()}
    return {"": sorted(path.name for path in root.iterdir() if path != inner), **shown}


@pytest.mark.parametrize("population", ["built in", "by hooks", "empty"])
@pytest.mark.parametrize("point", [FaultPoint.WORKSPACE_RECORDED, FaultPoint.WORKSPACE_POPULATED])
async def test_a_half_made_workspace_is_made_anew(
    make_manager: Make,
    root: Path,
    repo: Path,
    issue: MakeIssue,
    monkeypatch: pytest.MonkeyPatch,
    population: str,
    point: FaultPoint,
) -> None:
    settings: dict[str, object] = {"repo": str(repo)} if population == "built in" else {}
    if population != "empty":
        settings["hooks"] = HooksSettings(after_create="touch created")
    with unkempt(monkeypatch):
        await make_manager(fault=dies_at(point), **settings).prepare(issue("MT-1"), None)
    assert found(root)["records"] == ["MT-1.json"], "half-made: the control"

    successor = make_manager(**settings)
    await successor.check_root()
    made = await successor.prepare(issue("MT-1"), 1)

    assert made.created_now
    assert (made.path / "created").exists() is (population != "empty")
    assert (made.path / "README.md").exists() is (population == "built in")
    assert found(root) == {"": ["MT-1"], "records": ["MT-1.json"], "staging": [], "trash": []}


async def test_a_half_removed_workspace_is_removed_to_the_end_or_made_anew(
    make_manager: Make, root: Path, repo: Path, issue: MakeIssue, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make_manager(repo=str(repo), fault=dies_at(FaultPoint.MOVED_ASIDE))
    for name in ("MT-1", "MT-2"):
        await manager.prepare(issue(name), None)
        (record,) = [one for one in await manager.records() if one.identifier == name]
        with unkempt(monkeypatch):
            await manager.remove(record)
    left = found(root)
    assert (left[""], left["records"], len(left["trash"])) == ([], ["MT-1.json", "MT-2.json"], 2)

    successor = make_manager(repo=str(repo))
    await successor.check_root()
    first, _ = await successor.records()
    assert not (await successor.remove(first)).removed
    made = await successor.prepare(issue("MT-2"), None)

    assert made.created_now
    assert (made.path / "README.md").exists()
    assert found(root) == {"": ["MT-2"], "records": ["MT-2.json"], "staging": [], "trash": []}


async def test_work_in_a_workspace_without_its_record_is_kept(
    make_manager: Make, root: Path, repo: Path, issue: MakeIssue
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    (made.path / "work.txt").write_text("work\n")
    damages: tuple[Callable[[Path], object], ...] = (lambda path: path.write_bytes(b"\0\0"), Path.unlink)
    for damage in damages:
        damage(root / ".symphony" / "records" / "MT-1.json")

        again = await make_manager(repo=str(repo)).prepare(issue("MT-1"), 1)

        assert not again.created_now
        assert (again.path / "work.txt").read_text() == "work\n"


async def test_what_a_check_of_the_root_left_is_cleared_unless_it_holds_something(
    make_manager: Make, made_root: Path
) -> None:
    for name in ("empty", "full"):
        (made_root / f".symphony-check-{name}").mkdir()
    (made_root / ".symphony-check-full" / "mine").touch()

    await make_manager().check_root()

    assert found(made_root)[""] == [".symphony-check-full"]


@pytest.mark.parametrize("whose", ["recorded", "unrecorded"])
async def test_the_workspace_of_another_user_is_refused_and_kept(
    make_manager: Make,
    root: Path,
    repo: Path,
    issue: MakeIssue,
    monkeypatch: pytest.MonkeyPatch,
    whose: str,
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)
    (record,) = await manager.records()
    path = root / ".symphony" / "records" / "MT-1.json"
    text = path.read_text()
    uid = os.geteuid()
    if whose == "recorded":  # as if somebody had taken it over since it was made
        path.write_text(text.replace(f'"owner": {uid}', f'"owner": {uid + 1}'))
        assert path.read_text() != text
    else:
        path.unlink()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)

    with pytest.raises(WorkspaceError) as caught:
        await manager.prepare(issue("MT-1"), 1)
    kept = await manager.remove(record)
    foreseen = await find_work(
        record.path,
        host=LocalHost(),
        settings=WorkspaceSettings(root=made.path.parent),
        environment=os.environ,
        secret_names=frozenset(),
    )

    failure = caught.value.failure
    assert failure.category is Category.WORKSPACE_PREPARE_FAILED
    assert failure.message == f"{made.path} cannot be worked in: it belongs to another user (uid {uid})"
    assert "chown" in (failure.hint or "")
    assert failure.retryable, "it may be given back"
    assert foreseen is not None
    assert kept.kept_reason == foreseen.reason == f"it belongs to another user (uid {uid})"
    assert (made.path / "README.md").exists()


async def test_a_file_of_another_user_in_the_place_of_a_workspace_is_not_deleted(
    make_manager: Make, made_root: Path, issue: MakeIssue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made_root / "MT-1").write_text("theirs")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)

    with pytest.raises(WorkspaceError, match="belongs to another user"):
        await make_manager().prepare(issue("MT-1"), None)

    assert (made_root / "MT-1").read_text() == "theirs"


async def test_a_workspace_that_cannot_be_read_is_refused_and_kept(
    make_manager: Make, repo: Path, issue: MakeIssue, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make_manager(repo=str(repo))
    made = await manager.prepare(issue("MT-1"), None)

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(files, "is_empty", refuse)
    with pytest.raises(
        WorkspaceError, match=r"workspace_prepare_failed: .* cannot be made: .*denied"
    ) as caught:
        await manager.prepare(issue("MT-1"), 1)

    assert "read and write" in (caught.value.failure.hint or "")
    assert (made.path / "README.md").exists()
