"""Who may work at a root, and whose a workspace or a branch is."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import Blame, Category, Issue, SymphonyError
from symphony.processes.local import LocalHost
from symphony.workspaces import Layout, StoredRecord, WorkspaceManager, common_dir, read_record, write_record

MakeIssue = Callable[[str], Issue]


@pytest.fixture
def tenant(tmp_path: Path, root: Path, environment: dict[str, str]) -> Callable[..., WorkspaceManager]:
    """The manager of a workflow file, which is made as well."""

    def make(name: str, *, lock_wait_s: float = 10, **settings: object) -> WorkspaceManager:
        workflow = tmp_path / name / "WORKFLOW.md"
        workflow.parent.mkdir(exist_ok=True)
        workflow.touch()
        return WorkspaceManager(
            LocalHost(),
            WorkspaceSettings.model_validate({"root": root, **settings}),
            HooksSettings(),
            environment,
            frozenset(),
            workflow=workflow,
            lock_wait_s=lock_wait_s,
        )

    return make


@pytest.fixture
def taken_root(root: Path) -> Path:
    """A file of somebody else stands where the root would be made."""
    root.write_text("no directory")
    return root


@pytest.fixture
def closed_root(made_root: Path) -> Path:
    made_root.chmod(0o500)
    return made_root


def refused(error: pytest.ExceptionInfo[SymphonyError]) -> Category:
    """The category of what is a mistake of configuration, with a hint."""
    failure = error.value.failure
    assert (failure.blame, failure.retryable) == (Blame.CONFIG, False)
    assert failure.hint
    return failure.category


@pytest.mark.asyncio
async def test_the_second_tenant_of_a_repository_is_refused_however_it_is_written(
    tenant: Callable[..., WorkspaceManager], repo: Path
) -> None:
    await tenant("a", repo=str(repo)).check_root()
    for address in (str(repo), str(repo / ".git"), f"{repo}/", f"file://{repo}"):
        second = tenant("b", repo=address)
        for look in (second.inspect_root, second.check_root):
            with pytest.raises(SymphonyError, match=r"/a/WORKFLOW\.md") as error:
                await look()
            assert refused(error) is Category.WORKSPACE_ROOT_TAKEN


@pytest.mark.asyncio
async def test_an_address_is_one_repository_whatever_login_stands_in_it(
    tenant: Callable[..., WorkspaceManager], root: Path
) -> None:
    await tenant("a", repo="https://user:secret@example.org/x.git").check_root()
    with pytest.raises(SymphonyError):
        await tenant("b", repo="https://example.org/x.git").check_root()
    await tenant("c", repo="https://example.org/y.git").check_root()
    files = [path.read_text() for path in Layout(root).tenant_files.iterdir()]
    assert len(files) == 2
    assert not any("secret" in text for text in files)


@pytest.mark.asyncio
async def test_the_same_workflow_file_comes_back_also_with_another_repository(
    tenant: Callable[..., WorkspaceManager], repo: Path
) -> None:
    await tenant("a", repo=str(repo)).check_root()
    await tenant("a", repo=str(repo)).check_root()
    await tenant("a").check_root()
    await tenant("b", repo=str(repo)).check_root()


@pytest.mark.asyncio
async def test_who_is_gone_is_replaced_and_the_work_is_gone_on_with(
    tenant: Callable[..., WorkspaceManager], repo: Path, tmp_path: Path, issue: MakeIssue
) -> None:
    first = tenant("a", repo=str(repo))
    await first.check_root()
    made = await first.prepare(issue("SYM-1"), None)
    (made.path / "half").touch()
    (tmp_path / "a" / "WORKFLOW.md").unlink()
    second = tenant("b", repo=str(repo))
    await second.inspect_root()
    with capture_logs() as log:
        await second.check_root()
        again = await second.prepare(issue("SYM-1"), None)
    assert (again.path, again.created_now, (again.path / "half").exists()) == (made.path, False, True)
    told = [line["event"] for line in log if line["log_level"] == "warning"]
    assert told == ["tenant_replaced", "branch_taken_over"]
    (tmp_path / "a" / "WORKFLOW.md").touch()
    with pytest.raises(SymphonyError, match=r"/b/WORKFLOW\.md"):
        await first.check_root()


@pytest.mark.parametrize("content", ["", "{", "[]", "\0\xff", '{"workflow": 5}', "[" * 100_000])
@pytest.mark.asyncio
async def test_a_damaged_tenant_file_is_one_clear_refusal_and_stays(
    tenant: Callable[..., WorkspaceManager], repo: Path, root: Path, content: str
) -> None:
    await tenant("a", repo=str(repo)).check_root()
    (file,) = Layout(root).tenant_files.iterdir()
    file.write_text(content)
    second = tenant("b")
    for look in (second.inspect_root, second.check_root):
        with pytest.raises(SymphonyError, match=str(file)) as error:
            await look()
        assert refused(error) is Category.WORKSPACE_ROOT_TAKEN
    assert file.read_text() == content
    await tenant("a", repo=str(repo)).check_root()  # its own it simply writes anew
    await second.check_root()


@pytest.mark.asyncio
async def test_workspaces_without_a_repository_are_told_apart_too(
    tenant: Callable[..., WorkspaceManager], issue: MakeIssue
) -> None:
    first, second = tenant("a"), tenant("b")
    one, other = await first.prepare(issue("SYM-1"), None), await second.prepare(issue("SYM-1"), None)
    assert one.path.name == "SYM-1"
    assert other.path.name.startswith("SYM-1-")
    assert (await second.prepare(issue("SYM-1"), None)).path == other.path
    assert [record.path for record in await first.records()] == [one.path]
    assert [record.path for record in await second.records()] == [other.path]
    assert (await second.locate("id", "SYM-1")).path == other.path
    (theirs,) = await first.records()
    kept = await second.remove(theirs)
    assert (kept.removed, str(one.path.parent) not in str(kept.kept_reason)) == (False, True)
    assert one.path.exists()
    assert (await first.remove(theirs)).removed
    assert (await second.prepare(issue("SYM-1"), None)).path == other.path, "also when the other one is free"


@pytest.mark.asyncio
async def test_a_workspace_of_nobody_belongs_to_whoever_finds_it_first(
    tenant: Callable[..., WorkspaceManager],
    make_manager: Callable[..., WorkspaceManager],
    repo: Path,
    issue: MakeIssue,
) -> None:
    old = await make_manager(repo=str(repo)).prepare(issue("SYM-1"), None)
    assert await tenant("c").records() == (), "one of another repo is not ours"
    found = await tenant("a", repo=str(repo)).prepare(issue("SYM-1"), None)
    assert (found.path, found.created_now) == (old.path, False)
    other = await tenant("c").prepare(issue("SYM-1"), None)
    assert other.path != old.path


@pytest.mark.asyncio
async def test_the_branch_of_an_issue_belongs_to_one_of_the_checkouts_that_share_it(
    tenant: Callable[..., WorkspaceManager], repo: Path, tmp_path: Path, issue: MakeIssue
) -> None:
    first = tenant("a", repo=str(repo))
    second = tenant("b", repo=str(repo), root=tmp_path / "another root")
    one, other = await first.prepare(issue("SYM-1"), None), await second.prepare(issue("SYM-1"), None)
    assert one.branch == "symphony/SYM-1"
    assert other.branch == f"symphony/{other.key}" != one.branch
    # Claims outlast workspaces: the second goes on with its own branch, whoever came first then.
    for manager in (first, second):
        for record in await manager.records():
            assert (await manager.remove(record)).removed
    assert (await second.prepare(issue("SYM-1"), None)).branch == other.branch
    assert (await first.prepare(issue("SYM-1"), None)).branch == one.branch


@pytest.mark.asyncio
async def test_a_damaged_claim_is_nobodys_to_go_on_with(
    tenant: Callable[..., WorkspaceManager], repo: Path, issue: MakeIssue
) -> None:
    claims = repo / ".git/symphony/branches"
    claims.mkdir(parents=True)
    (claims / "SYM-1.json").write_text("{")
    with capture_logs() as log:
        made = await tenant("a", repo=str(repo)).prepare(issue("SYM-1"), None)
    assert made.key != "SYM-1"
    (line,) = [line for line in log if line["event"] == "branch_claim_unreadable"]
    assert line["path"] == str(claims / "SYM-1.json")
    assert line["hint"]


@pytest.mark.asyncio
async def test_a_repository_that_takes_no_claim_is_worked_on_all_the_same(
    tenant: Callable[..., WorkspaceManager], repo: Path, issue: MakeIssue
) -> None:
    (repo / ".git/symphony").write_text("in the way")
    with capture_logs() as log:
        made = await tenant("a", repo=str(repo)).prepare(issue("SYM-1"), None)
    assert made.branch == "symphony/SYM-1"
    assert "branch_not_claimed" in [line["event"] for line in log]


@pytest.mark.asyncio
async def test_an_identifier_may_be_as_long_as_a_name_can_be(
    tenant: Callable[..., WorkspaceManager], repo: Path, tmp_path: Path, issue: MakeIssue
) -> None:
    long = issue("x" * 255)
    first = tenant("a", repo=str(repo))
    second = tenant("b", repo=str(repo), root=tmp_path / "another root")
    assert (await first.prepare(long, None)).branch != (await second.prepare(long, None)).branch


@pytest.mark.asyncio
async def test_who_holds_the_lock_for_ever_stops_a_start_with_one_line(
    tenant: Callable[..., WorkspaceManager], root: Path
) -> None:
    manager = tenant("a", lock_wait_s=0.1)
    await manager.check_root()
    lock = os.open(Layout(root).tenants_lock, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SymphonyError) as error:
            await manager.check_root()
    finally:
        os.close(lock)
    assert error.value.failure.category is Category.WORKSPACE_ROOT_TAKEN
    await manager.check_root()


@pytest.mark.asyncio
async def test_a_root_of_somebody_else_is_said_to_be_theirs(
    tenant: Callable[..., WorkspaceManager], taken_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_242_424)
    for look in (tenant("a").inspect_root, tenant("a").check_root):
        with pytest.raises(SymphonyError, match=f"{taken_root} belongs to ") as error:
            await look()
        failure = error.value.failure
        assert (failure.category, failure.blame) == (Category.WORKSPACE_PREPARE_FAILED, Blame.CONFIG)
        assert "$SYMPHONY_STATE_DIR" in str(failure.hint)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.asyncio
async def test_a_root_that_cannot_be_written_is_seen_without_writing(
    tenant: Callable[..., WorkspaceManager], closed_root: Path
) -> None:
    with pytest.raises(SymphonyError, match=f"{closed_root} cannot be written"):
        await tenant("a").inspect_root()


def test_a_worktree_and_its_repository_have_one_git_directory(
    repo: Path, tmp_path: Path, git: Callable[..., str]
) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    (tmp_path / "link").symlink_to(repo)
    own = (repo / ".git").resolve()
    for path in (repo, tmp_path / "linked", tmp_path / "link", own):
        assert common_dir(path) == own
    assert common_dir(tmp_path / "bare.git") == (tmp_path / "bare.git").resolve()
    for path in (tmp_path, tmp_path / "none", Path("/dev/null")):
        assert common_dir(path) is None


@pytest.mark.parametrize("links", [True, False])
def test_of_two_records_of_one_key_the_first_stays(
    made_root: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    layout = Layout(made_root)
    first = StoredRecord(issue_id="1", identifier="SYM-1", key="SYM-1", ready=False, tenant="/a/WORKFLOW.md")
    second = replace(first, tenant="/b/WORKFLOW.md")
    write_record(layout, first, new=True)
    with pytest.raises(FileExistsError):
        write_record(layout, second, new=True)
    assert read_record(layout, "SYM-1") == first
    layout.record("SYM-1").write_text("{")
    write_record(layout, second, new=True)
    assert read_record(layout, "SYM-1") == second, "one that is damaged is in nobody's way"
    assert [path.name for path in layout.records.iterdir()] == ["SYM-1.json"]
