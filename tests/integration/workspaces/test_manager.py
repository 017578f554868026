import json
import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import psutil
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from harness.shell import word
from harness.workspaces import delivered_branch
from symphony.config import HooksSettings
from symphony.domain import Blame, Category, Issue
from symphony.workspaces import (
    Removal,
    Workspace,
    WorkspaceError,
    WorkspaceManager,
    WorkspaceRecord,
    files,
)

pytestmark = pytest.mark.asyncio

Make = Callable[..., WorkspaceManager]
Git = Callable[..., str]
MakeIssue = Callable[[str], Issue]


async def _only(manager: WorkspaceManager) -> WorkspaceRecord:
    (record,) = await manager.records()
    return record


def _commit(git: Git, workspace: Workspace) -> None:
    (workspace.path / "work.txt").write_text("work\n")
    git(workspace.path, "add", "-A")
    git(workspace.path, "commit", "-qm", "work")


class TestCreation:
    @pytest.mark.conformance("K-1", "K-2")
    async def test_without_a_repository_it_is_an_empty_directory_then_reused(
        self, make_manager: Make, root: Path, issue: MakeIssue
    ) -> None:
        manager = make_manager()
        made = await manager.prepare(issue("a/b"), None)
        (made.path / "kept.txt").write_text("kept\n")

        again = await manager.prepare(issue("a/b"), 1)

        assert made.path == root / "a_b--c14cddc033f64b9d"
        assert (made.created_now, again.created_now) == (True, False)
        assert (again.path / "kept.txt").read_text() == "kept\n"

    @pytest.mark.conformance("K-4")
    async def test_a_symlinked_root_is_fine_and_the_path_is_the_real_one(
        self, make_manager: Make, made_root: Path, tmp_path: Path, issue: MakeIssue
    ) -> None:
        (tmp_path / "link").symlink_to(made_root)

        made = await make_manager(root=tmp_path / "link").prepare(issue("MT-1"), None)

        assert made.path == made_root / "MT-1"

    @pytest.mark.conformance("K-3")
    async def test_a_stale_file_in_its_place_is_replaced(
        self, make_manager: Make, made_root: Path, issue: MakeIssue
    ) -> None:
        (made_root / "MT-1").write_text("stale")

        made = await make_manager().prepare(issue("MT-1"), None)

        assert made.created_now
        assert made.path.is_dir()

    @pytest.mark.conformance("K-3", "K-4")
    async def test_a_link_out_of_the_root_is_refused(
        self, make_manager: Make, made_root: Path, tmp_path: Path, issue: MakeIssue
    ) -> None:
        (tmp_path / "outside").mkdir()
        (made_root / "MT-1").symlink_to(tmp_path / "outside")

        with pytest.raises(WorkspaceError, match="workspace_symlink_escape"):
            await make_manager().prepare(issue("MT-1"), None)

    @pytest.mark.conformance("K-3")
    async def test_a_link_to_another_workspace_is_refused(
        self, make_manager: Make, root: Path, issue: MakeIssue
    ) -> None:
        other = await make_manager().prepare(issue("MT-2"), None)
        (root / "MT-1").symlink_to(other.path)

        with pytest.raises(WorkspaceError, match="workspace_path_not_directory"):
            await make_manager().prepare(issue("MT-1"), None)

    @pytest.mark.conformance("K-3")
    async def test_a_special_file_is_refused(
        self, make_manager: Make, made_root: Path, issue: MakeIssue
    ) -> None:
        os.mkfifo(made_root / "MT-1")

        with pytest.raises(WorkspaceError, match="workspace_path_not_directory"):
            await make_manager().prepare(issue("MT-1"), None)

    @pytest.mark.conformance("K-3")
    @pytest.mark.parametrize("identifier", ["", ".", "..", ".git", ".symphony", "x" * 256])
    async def test_unsafe_identifiers_are_refused_before_anything_is_made(
        self, make_manager: Make, root: Path, issue: MakeIssue, identifier: str
    ) -> None:
        with pytest.raises(WorkspaceError, match="workspace_unsafe_key"):
            await make_manager().prepare(issue(identifier), None)

        assert not (root / ".").exists()

    async def test_an_empty_directory_is_populated(
        self, make_manager: Make, root: Path, repo: Path, issue: MakeIssue
    ) -> None:
        (root / "MT-1").mkdir(parents=True)

        made = await make_manager(repo=str(repo)).prepare(issue("MT-1"), None)

        assert made.created_now
        assert (made.path / "README.md").exists()

    @pytest.mark.conformance("K-2")
    async def test_a_directory_without_a_record_is_adopted(
        self, make_manager: Make, root: Path, repo: Path, issue: MakeIssue
    ) -> None:
        (root / "MT-1").mkdir(parents=True)
        (root / "MT-1" / "mine.txt").write_text("mine\n")
        manager = make_manager(repo=str(repo))

        made = await manager.prepare(issue("MT-1"), None)

        assert (made.created_now, made.branch, made.base_commit) == (False, "symphony/MT-1", None)
        assert (await _only(manager)).issue_id == "id-of-MT-1"
        kept = await manager.remove(await _only(manager))
        assert "work might be lost" in (kept.kept_reason or "")

    async def test_an_adopted_clone_delivers_like_any_other(
        self, make_manager: Make, root: Path, repo: Path, issue: MakeIssue, git: Git
    ) -> None:
        manager = make_manager(repo=str(repo))
        _commit(git, await manager.prepare(issue("MT-1"), None))
        shutil.rmtree(root / ".symphony" / "records")

        made = await manager.prepare(issue("MT-1"), None)

        delivery = await manager.deliver(made)
        assert (delivered_branch(delivery).work.commits, delivery.warnings) == (1, ())

    async def test_the_record_follows_an_issue_that_was_made_anew(
        self, make_manager: Make, issue: MakeIssue
    ) -> None:
        manager = make_manager()
        await manager.prepare(issue("MT-1"), None)

        await manager.prepare(replace(issue("MT-1"), id="another"), None)

        assert (await _only(manager)).issue_id == "another"


class TestRoot:
    async def test_a_good_root_is_made_and_cleared_of_leftovers(self, make_manager: Make, root: Path) -> None:
        left = root / ".symphony" / "trash" / "left"
        left.mkdir(parents=True)
        staged = root / ".symphony" / "staging" / "clone-now"
        staged.mkdir(parents=True)
        old = root / ".symphony" / "staging" / "clone-old"
        old.mkdir()
        os.utime(old, (1, 1))

        await make_manager().check_root()

        assert (left.exists(), staged.exists(), old.exists()) == (False, True, False)
        assert [entry.name for entry in (root / ".").glob("*")] == [".symphony"]

    async def test_a_root_that_cannot_be_written_is_one_clear_line(
        self, make_manager: Make, tmp_path: Path, issue: MakeIssue
    ) -> None:
        (tmp_path / "file").write_text("")
        manager = make_manager(root=tmp_path / "file" / "below")

        for attempt in (manager.check_root(), manager.prepare(issue("MT-1"), None)):
            with pytest.raises(WorkspaceError) as caught:
                await attempt
            failure = caught.value.failure
            assert (failure.category, failure.blame) == (Category.WORKSPACE_PREPARE_FAILED, Blame.CONFIG)
            assert (
                failure.message == f"workspace.root {tmp_path}/file/below cannot be written: Not a directory"
            )
            assert "workspace.root" in (failure.hint or "")

    async def test_a_root_that_became_read_only_is_noticed(
        self, make_manager: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = make_manager()
        await manager.check_root()

        def refuse(**_: object) -> str:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr("tempfile.mkdtemp", refuse)
        with pytest.raises(WorkspaceError, match="cannot be written: Read-only file system"):
            await manager.check_root()


class TestHooks:
    @pytest.mark.conformance("K-5")
    async def test_after_create_runs_in_the_populated_directory_and_only_once(
        self, make_manager: Make, repo: Path, issue: MakeIssue
    ) -> None:
        script = 'cat README.md >> log; echo "$PWD|$SYMPHONY_ISSUE_ID|$SYMPHONY_ISSUE_IDENTIFIER" >> log\n'
        script += 'echo "$SYMPHONY_WORKSPACE|$SYMPHONY_ATTEMPT" >> log'
        manager = make_manager(repo=str(repo), hooks=HooksSettings(after_create=script))

        made = await manager.prepare(issue("MT-1"), 2)
        await manager.prepare(issue("MT-1"), 3)

        lines = ["hello", f"{made.path}|id-of-MT-1|MT-1", f"{made.path}|2"]
        assert (made.path / "log").read_text().splitlines() == lines

    @pytest.mark.conformance("K-5")
    @pytest.mark.parametrize("population", ["built in", "by hooks"])
    async def test_a_failed_after_create_leaves_nothing_and_runs_again(
        self, make_manager: Make, repo: Path, root: Path, issue: MakeIssue, tmp_path: Path, population: str
    ) -> None:
        script = f"echo x >> {word(tmp_path)}/runs; echo too bad >&2; [ -e {word(tmp_path)}/fixed ] || exit 3"
        address = str(repo) if population == "built in" else None
        manager = make_manager(repo=address, hooks=HooksSettings(after_create=script))

        with pytest.raises(WorkspaceError) as caught:
            await manager.prepare(issue("MT-1"), None)

        assert caught.value.failure.category is Category.WORKSPACE_HOOK_FAILED
        assert caught.value.failure.message == "hook after_create ended with status 3: too bad"
        assert not (root / "MT-1").exists()
        assert await manager.records() == ()
        (tmp_path / "fixed").touch()
        assert (await manager.prepare(issue("MT-1"), 1)).created_now
        assert (tmp_path / "runs").read_text() == "x\nx\n"

    @pytest.mark.conformance("K-5", "K-9")
    async def test_a_hook_that_takes_too_long_ends_with_all_it_started(
        self, make_manager: Make, root: Path, issue: MakeIssue, tmp_path: Path
    ) -> None:
        nap = f"611.{os.getpid()}"
        script = f"setsid sleep {nap} & sleep {nap} & echo $! > {word(tmp_path)}/pid; sleep {nap}"
        manager = make_manager(hooks=HooksSettings(after_create=script, timeout_ms=4_000))

        with pytest.raises(WorkspaceError) as caught:
            await manager.prepare(issue("MT-1"), None)

        assert caught.value.failure.category is Category.WORKSPACE_HOOK_TIMEOUT
        assert "after_create did not end within 4000 ms" in caught.value.failure.message
        assert not (root / "MT-1").exists()
        left = [child for child in psutil.process_iter(["cmdline"]) if nap in (child.info["cmdline"] or ())]
        assert left == []
        assert not _runs(int((tmp_path / "pid").read_text()))

    @pytest.mark.conformance("K-5")
    async def test_a_crash_in_after_create_is_not_taken_for_a_workspace(
        self, make_manager: Make, repo: Path, root: Path, issue: MakeIssue
    ) -> None:
        """What kill -9 leaves: the directory is there, the record says that it is not ready."""
        manager = make_manager(repo=str(repo))
        made = await manager.prepare(issue("MT-1"), None)
        record = root / ".symphony" / "records" / "MT-1.json"
        record.write_text(record.read_text().replace('"ready": true', '"ready": false'))
        (made.path / "half.txt").write_text("half\n")

        again = await make_manager(repo=str(repo)).prepare(issue("MT-1"), 1)

        assert again.created_now
        assert not (again.path / "half.txt").exists()

    @pytest.mark.conformance("K-5")
    async def test_a_cancelled_after_create_leaves_nothing(
        self, make_manager: Make, root: Path, issue: MakeIssue, tmp_path: Path
    ) -> None:
        os.mkfifo(tmp_path / "begun")
        manager = make_manager(hooks=HooksSettings(after_create=f"echo > {word(tmp_path)}/begun; sleep 612"))

        async with anyio.create_task_group() as group:
            group.start_soon(manager.prepare, issue("MT-1"), None)
            await anyio.Path(tmp_path / "begun").read_text()
            group.cancel_scope.cancel()

        assert not (root / "MT-1").exists()
        assert await manager.records() == ()

    @pytest.mark.conformance("K-6")
    async def test_before_run_runs_each_time_and_its_failure_is_fatal(
        self, make_manager: Make, issue: MakeIssue
    ) -> None:
        manager = make_manager(
            hooks=HooksSettings(before_run='echo "$SYMPHONY_ATTEMPT" >> log; [ ! -e bad ]')
        )
        made = await manager.prepare(issue("MT-1"), None)

        await manager.before_run(made, issue("MT-1"), None)
        await manager.before_run(made, issue("MT-1"), 1)
        (made.path / "bad").touch()
        with pytest.raises(WorkspaceError, match="hook before_run ended with status 1"):
            await manager.before_run(made, issue("MT-1"), 2)

        assert (made.path / "log").read_text() == "0\n1\n2\n"

    @pytest.mark.conformance("K-7")
    @pytest.mark.parametrize("script", ["touch ran; exit 1", "touch ran; sleep 613"])
    async def test_after_run_failures_and_timeouts_are_only_logged(
        self, make_manager: Make, issue: MakeIssue, script: str
    ) -> None:
        manager = make_manager(hooks=HooksSettings(after_run=script, timeout_ms=4_000))
        made = await manager.prepare(issue("MT-1"), None)

        with capture_logs() as logs:
            await manager.after_run(made, issue("MT-1"), 1)

        assert (made.path / "ran").exists()
        (failed,) = (line for line in logs if line["event"] == "hook_failed")
        assert failed["hook"] == "after_run"
        assert (failed["issue_id"], failed["issue_identifier"]) == ("id-of-MT-1", "MT-1")

    @pytest.mark.conformance("K-7")
    async def test_after_run_works_shielded_in_a_cancelled_scope(
        self, make_manager: Make, issue: MakeIssue
    ) -> None:
        manager = make_manager(hooks=HooksSettings(after_run="touch ran"))
        made = await manager.prepare(issue("MT-1"), None)

        with anyio.CancelScope() as scope:
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await manager.after_run(made, issue("MT-1"), None)

        assert (made.path / "ran").exists()

    async def test_a_hook_sees_the_environment_but_no_secret_and_no_foreign_git(
        self, make_manager: Make, issue: MakeIssue, environment: dict[str, str]
    ) -> None:
        profile = anyio.Path(environment["HOME"], ".profile")
        await profile.write_text("export TRACKER_TOKEN=hunter2\n")
        manager = make_manager(
            hooks=HooksSettings(before_run="env > seen"),
            environment={
                "TOOL_HOME": "kept",
                "TRACKER_TOKEN": "hunter2",
                "GIT_DIR": "/nowhere",
                "SYMPHONY_RUN_ID": "outer",
            },
        )
        made = await manager.prepare(issue("MT-1"), None)

        await manager.before_run(made, issue("MT-1"), None)

        seen = (made.path / "seen").read_text()
        assert "TOOL_HOME=kept" in seen
        assert not any(word in seen for word in ("hunter2", "TRACKER_TOKEN", "GIT_DIR", "SYMPHONY_RUN_ID"))

    async def test_a_hook_is_not_run_where_a_secret_cannot_be_taken_away(
        self, make_manager: Make, issue: MakeIssue, environment: dict[str, str]
    ) -> None:
        profile = anyio.Path(environment["HOME"], ".profile")
        await profile.write_text("TRACKER_TOKEN=hunter2; export TRACKER_TOKEN; readonly TRACKER_TOKEN\n")
        manager = make_manager(hooks=HooksSettings(before_run="env > seen"))
        made = await manager.prepare(issue("MT-1"), None)

        with pytest.raises(WorkspaceError, match="workspace_hook_failed"):
            await manager.before_run(made, issue("MT-1"), None)

        assert not (made.path / "seen").exists()

    async def test_a_hook_in_a_directory_that_is_gone_fails_cleanly(
        self, make_manager: Make, issue: MakeIssue
    ) -> None:
        manager = make_manager(hooks=HooksSettings(before_run="true"))
        made = await manager.prepare(issue("MT-1"), None)
        made.path.rmdir()

        with pytest.raises(WorkspaceError, match="hook before_run could not be started"):
            await manager.before_run(made, issue("MT-1"), None)


class TestVerify:
    async def test_the_workspace_is_a_fit_place_to_launch_an_agent(
        self, make_manager: Make, issue: MakeIssue
    ) -> None:
        manager = make_manager()

        await manager.verify(await manager.prepare(issue("MT-1"), None))

    @pytest.mark.conformance("K-4")
    async def test_any_other_place_is_refused_with_the_reason(
        self, make_manager: Make, root: Path, tmp_path: Path, issue: MakeIssue
    ) -> None:
        manager = make_manager()
        made = await manager.prepare(issue("MT-1"), None)
        (root / "link").symlink_to(made.path)
        (root / "out").symlink_to(tmp_path)
        expected = {
            tmp_path: "workspace_outside_root",
            root: "workspace_equals_root",
            root / "out": "workspace_symlink_escape",
            root / "link": "no directory",
            root / "missing": "no directory",
        }

        for path, reason in expected.items():
            with pytest.raises(WorkspaceError, match=f"invalid_workspace_cwd.*{reason}"):
                await manager.verify(structs.replace(made, path=path))


class TestRemoval:
    async def test_delivered_work_makes_a_workspace_removable(
        self, make_manager: Make, repo: Path, root: Path, issue: MakeIssue, git: Git
    ) -> None:
        manager = make_manager(repo=str(repo))
        made = await manager.prepare(issue("MT-1"), None)
        _commit(git, made)

        assert await manager.remove(await _only(manager)) == Removal(removed=True)

        assert not made.path.exists()
        assert git(repo, "log", "-1", "--format=%s", "symphony/MT-1") == "work"
        assert await manager.records() == ()
        assert list((root / ".symphony" / "trash").iterdir()) == []

    async def test_ignored_files_do_not_keep_a_workspace(
        self, make_manager: Make, repo: Path, issue: MakeIssue
    ) -> None:
        manager = make_manager(repo=str(repo))
        made = await manager.prepare(issue("MT-1"), None)
        (made.path / "ignored").mkdir()
        (made.path / "ignored" / "junk").write_text("junk\n")
        (made.path / ".git" / "info").mkdir()
        (made.path / ".git" / "info" / "exclude").write_text("*.tmp\n")
        (made.path / "x.tmp").write_text("x\n")

        assert (await manager.remove(await _only(manager))).removed

    @pytest.mark.parametrize("kind", ["edited", "staged", "untracked", "deleted"])
    async def test_uncommitted_work_keeps_it(
        self, make_manager: Make, repo: Path, issue: MakeIssue, git: Git, kind: str
    ) -> None:
        manager = make_manager(repo=str(repo))
        made = await manager.prepare(issue("MT-1"), None)
        match kind:
            case "edited" | "staged":
                (made.path / "README.md").write_text("edited\n")
            case "untracked":
                (made.path / "new.txt").write_text("new\n")
            case _:
                (made.path / "README.md").unlink()
        if kind == "staged":
            git(made.path, "add", "-A")

        removal = await manager.remove(await _only(manager))

        look = shlex.join(["git", "-C", str(made.path), "status"])
        assert removal == Removal(removed=False, kept_reason="1 uncommitted or untracked file(s)", look=look)
        assert made.path.exists()
        assert len(await manager.records()) == 1

    async def test_uncommitted_work_goes_where_the_operator_does_not_keep_it(
        self, make_manager: Make, repo: Path, issue: MakeIssue, git: Git
    ) -> None:
        manager = make_manager(repo=str(repo), keep_dirty=False)
        made = await manager.prepare(issue("MT-1"), None)
        _commit(git, made)
        (made.path / "draft").write_text("draft\n")

        assert (await manager.remove(await _only(manager))).removed
        assert git(repo, "log", "-1", "--format=%s", "symphony/MT-1") == "work"

    @pytest.mark.parametrize("where", ["side", "stash"])
    async def test_commits_beside_the_branch_keep_it(
        self, make_manager: Make, repo: Path, issue: MakeIssue, git: Git, where: str
    ) -> None:
        manager = make_manager(repo=str(repo))
        made = await manager.prepare(issue("MT-1"), None)
        if where == "side":
            git(made.path, "checkout", "-q", "-b", "side")
            _commit(git, made)
            git(made.path, "checkout", "-q", "symphony/MT-1")
        else:
            (made.path / "README.md").write_text("stashed\n")
            git(made.path, "stash", "-q")

        removal = await manager.remove(await _only(manager))

        expected = {"side": "commits on side that were not delivered", "stash": "a stash"}
        assert removal.kept_reason == expected[where]

    async def test_work_that_cannot_be_delivered_keeps_it(
        self, make_manager: Make, repo: Path, root: Path, issue: MakeIssue, git: Git
    ) -> None:
        manager = make_manager(repo=str(repo), keep_dirty=False)
        made = await manager.prepare(issue("MT-1"), None)
        _commit(git, made)
        shutil.rmtree(root / ".symphony" / "mirrors")

        removal = await manager.remove(await _only(manager))

        assert not removal.removed
        assert (made.path / "work.txt").exists()

    @pytest.mark.conformance("K-8")
    @pytest.mark.parametrize(
        "script", ["exit 1", "sleep 614", "head -c 300000 /dev/zero | tr '\\0' x; exit 1"]
    )
    async def test_a_failing_before_remove_does_not_stop_the_deletion(
        self, make_manager: Make, root: Path, issue: MakeIssue, script: str
    ) -> None:
        hooks = HooksSettings(before_remove=f"touch {word(root)}/../ran; {script}", timeout_ms=4_000)
        manager = make_manager(hooks=hooks)
        made = await manager.prepare(issue("MT-1"), None)
        (made.path / "file").write_text("content\n")

        with capture_logs() as logs:
            assert await manager.remove(await _only(manager)) == Removal(removed=True)

        assert not made.path.exists()
        assert (root.parent / "ran").exists()
        assert len(str(logs[-1]["error"])) < 2_200

    @pytest.mark.conformance("K-8")
    async def test_before_remove_may_remove_it_itself_and_is_not_run_without_a_directory(
        self, make_manager: Make, root: Path, issue: MakeIssue
    ) -> None:
        hooks = HooksSettings(before_remove='echo x >> ../ran; rm -rf "$SYMPHONY_WORKSPACE"')
        manager = make_manager(hooks=hooks)
        await manager.prepare(issue("MT-1"), None)
        record = await _only(manager)

        assert await manager.remove(record) == Removal(removed=True)
        assert await manager.remove(record) == Removal(removed=False)

        assert (root / "ran").read_text() == "x\n"

    async def test_read_only_directories_are_deleted_too(
        self, make_manager: Make, root: Path, issue: MakeIssue
    ) -> None:
        manager = make_manager()
        made = await manager.prepare(issue("MT-1"), None)
        (made.path / "cache" / "deep").mkdir(parents=True)
        (made.path / "cache" / "link").symlink_to(root)
        (made.path / "cache").chmod(0o500)
        mode = (root / ".").stat().st_mode
        assert (await manager.remove(await _only(manager))).removed
        assert (root / ".").stat().st_mode == mode

    async def test_what_cannot_be_deleted_waits_in_the_trash(
        self, make_manager: Make, root: Path, issue: MakeIssue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = make_manager()
        made = await manager.prepare(issue("MT-1"), None)

        def refuse(_: Path) -> None:
            raise OSError(16, "Device or resource busy")

        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(files, "delete_tree", refuse)
            assert (await manager.remove(await _only(manager))).removed

        assert not made.path.exists()
        assert [line["event"] for line in logs] == ["trash_not_emptied"]
        await manager.check_root()
        assert list((root / ".symphony" / "trash").iterdir()) == []

    async def test_what_cannot_be_moved_aside_is_kept(
        self, make_manager: Make, issue: MakeIssue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = make_manager()
        made = await manager.prepare(issue("MT-1"), None)

        def refuse(*_: object, **__: object) -> None:
            raise OSError(16, "Device or resource busy")

        monkeypatch.setattr(os, "rename", refuse)
        removal = await manager.remove(await _only(manager))

        assert not removal.removed
        assert "it cannot be deleted" in (removal.kept_reason or "")
        assert made.path.exists()

    @pytest.mark.conformance("K-10")
    async def test_a_workspace_under_a_former_root_is_removed_there_and_nothing_else_is(
        self, make_manager: Make, tmp_path: Path, repo: Path, issue: MakeIssue, git: Git
    ) -> None:
        before = make_manager(repo=str(repo))
        made = await before.prepare(issue("MT-1"), None)
        _commit(git, made)
        record = await _only(before)
        after = make_manager(repo=str(repo), root=tmp_path / "new-root")
        other = await after.prepare(issue("MT-1"), None)

        assert await after.remove(record) == Removal(removed=True)

        assert not made.path.exists()
        assert other.path.exists()
        assert git(repo, "log", "-1", "--format=%s", "symphony/MT-1") == "work"
        assert await before.records() == ()

    @pytest.mark.conformance("K-4", "K-10")
    async def test_a_record_that_points_out_of_its_root_is_refused(
        self, make_manager: Make, root: Path, tmp_path: Path, issue: MakeIssue
    ) -> None:
        manager = make_manager()
        await manager.prepare(issue("MT-1"), None)
        record = await _only(manager)
        (tmp_path / "precious").mkdir()
        (root / "MT-2").symlink_to(tmp_path / "precious")

        with pytest.raises(WorkspaceError, match="workspace_symlink_escape"):
            await manager.remove(structs.replace(record, path=root / "MT-2"))
        with pytest.raises(WorkspaceError, match="workspace_unsafe_key"):
            await manager.remove(structs.replace(record, path=root / ".symphony"))
        with pytest.raises(WorkspaceError, match="workspace_outside_root"):
            await manager.remove(structs.replace(record, path=Path("MT-1")))
        assert (tmp_path / "precious").exists()

    async def test_an_issue_without_a_record_is_located_by_its_identifier(
        self, make_manager: Make, root: Path
    ) -> None:
        manager = make_manager()

        located = await manager.locate("id-of-a b", "a b")
        key = "a_b--c8687a08aa5d6ed2"

        assert located == WorkspaceRecord(issue_id="id-of-a b", identifier="a b", key=key, path=root / key)
        assert await manager.remove(located) == Removal(removed=False)


class TestHookPopulated:
    """Where hooks clone, the clone's own tracking refs tell what a remote has."""

    async def test_pushed_work_is_removable_unpushed_work_is_not(
        self, make_manager: Make, repo: Path, issue: MakeIssue, git: Git
    ) -> None:
        manager = make_manager(hooks=HooksSettings(after_create=f"git clone -q --shared {word(repo)} ."))
        made = await manager.prepare(issue("MT-1"), None)
        git(made.path, "checkout", "-q", "-b", "topic")
        _commit(git, made)
        record = await _only(manager)

        kept = await manager.remove(record)
        assert kept.kept_reason == "commits on topic that were not delivered"

        git(made.path, "push", "-q", "origin", "topic")
        assert await manager.remove(record) == Removal(removed=True)

    async def test_a_dirty_clone_is_kept(self, make_manager: Make, repo: Path, issue: MakeIssue) -> None:
        manager = make_manager(hooks=HooksSettings(after_create=f"git clone -q {word(repo)} ."))
        made = await manager.prepare(issue("MT-1"), None)
        (made.path / "README.md").write_text("edited\n")

        assert not (await manager.remove(await _only(manager))).removed
        assert (await manager.progress(made)).head is not None

    async def test_a_linked_work_tree_is_kept(self, make_manager: Make, repo: Path, issue: MakeIssue) -> None:
        script = f'git -C {word(repo)} worktree add -q -f "$PWD" -b topic'
        manager = make_manager(hooks=HooksSettings(after_create=script))
        await manager.prepare(issue("MT-1"), None)

        removal = await manager.remove(await _only(manager))

        assert "work might be lost" in (removal.kept_reason or "")


class TestRecords:
    async def test_malformed_records_are_skipped_with_a_warning_each(
        self, make_manager: Make, root: Path, issue: MakeIssue
    ) -> None:
        manager = make_manager()
        await manager.prepare(issue("MT-1"), None)
        good = (root / ".symphony" / "records" / "MT-1.json").read_text()
        for name, content in {
            "bad": "{",
            "empty": "",
            "other": good,
            "unsafe": good.replace('"MT-1"', '".."'),
            "partial": "{}",
            "strict": good.replace("true", "1"),
            "latin": good.replace("MT-1", "MT-\xe9"),
            "deep": '{"x":' + "[" * 100_000,
        }.items():
            (root / ".symphony" / "records" / f"{name}.json").write_text(content, encoding="latin-1")

        with capture_logs() as logs:
            records = await manager.records()

        assert [record.key for record in records] == ["MT-1"]
        assert [line["event"] for line in logs] == ["workspace_record_skipped"] * 8

    async def test_a_record_is_plain_json_with_every_key(
        self, make_manager: Make, root: Path, issue: MakeIssue
    ) -> None:
        await make_manager().prepare(issue("MT-1"), None)
        text = (root / ".symphony" / "records" / "MT-1.json").read_text()
        assert text.startswith('{\n "issue_id": ')
        assert list(json.loads(text)) == [
            "issue_id",
            "identifier",
            "key",
            "ready",
            "repo",
            "branch",
            "base_commit",
            "owner",
            "tenant",
            "sealed",
            "tags",
            "work",
            "look",
        ]

    async def test_long_keys_have_records_too(self, make_manager: Make, issue: MakeIssue) -> None:
        manager = make_manager()
        await manager.prepare(issue("k" * 255), None)

        assert (await _only(manager)).key == "k" * 255


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
