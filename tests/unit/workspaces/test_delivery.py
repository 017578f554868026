import shlex
from pathlib import Path

from symphony.config import WorkspaceSettings
from symphony.workspaces import BranchLocation, locate_branch, mirror_path

BRANCH = "symphony/SYM-1"


def settings(root: Path, repo: str | None) -> WorkspaceSettings:
    return WorkspaceSettings.model_validate({"root": root, "repo": repo})


def test_a_local_repository_has_the_branch_and_nothing_is_to_be_fetched(tmp_path: Path) -> None:
    local = settings(tmp_path, "/srv/app")
    assert locate_branch(local, BRANCH, pushed=True) == BranchLocation(repository="/srv/app", fetch=None)
    assert locate_branch(settings(tmp_path, None), BRANCH, pushed=False) is None


def test_what_is_pushed_is_at_the_address_and_else_in_the_mirror(tmp_path: Path) -> None:
    remote = settings(tmp_path / "with blank", "https://ann:secret@host.test/x.git")
    assert locate_branch(remote, BRANCH, pushed=True) == BranchLocation(
        repository="https://host.test/x.git", fetch=f"git fetch origin {BRANCH}"
    )
    found = locate_branch(remote, BRANCH, pushed=False)
    assert found is not None
    assert found.repository == str(mirror_path(remote))
    assert shlex.split(found.fetch or "") == ["git", "fetch", found.repository, f"{BRANCH}:{BRANCH}"]


def test_a_root_that_leads_nowhere_is_no_reason_to_fail(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert mirror_path(settings(loop, "https://host.test/x.git")).is_relative_to(loop)
