"""What a hook sees, and how its end is told."""

from pathlib import Path

import anyio
import pytest

from symphony.config import HooksSettings
from symphony.domain import Category, Redaction
from symphony.processes.local import LocalHost
from symphony.workspaces import WorkspaceError
from symphony.workspaces.hooks import Hook, HookCall, HookRunner

pytestmark = pytest.mark.asyncio


def runner(environment: dict[str, str], **settings: object) -> HookRunner:
    return HookRunner(
        LocalHost(),
        HooksSettings.model_validate(settings),
        environment,
        frozenset({"TRACKER_TOKEN"}),
        Redaction(["hunter2-hunter2"]),
    )


def call(path: Path, attempt: int | None = None) -> HookCall:
    return HookCall(issue_id="id-1", identifier="SYM-1", path=path, attempt=attempt, run_id="r1")


async def seen(tmp_path: Path, environment: dict[str, str], attempt: int | None = None) -> dict[str, str]:
    hooks = runner(environment, before_run="env > seen; pwd > where")
    await hooks.run(Hook.BEFORE_RUN, call(tmp_path, attempt))
    lines = (tmp_path / "seen").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


async def test_a_hook_knows_its_issue_and_stands_in_the_workspace(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    found = await seen(tmp_path, environment, attempt=2)
    assert {name: value for name, value in found.items() if name.startswith("SYMPHONY_")} == {
        "SYMPHONY_ISSUE_ID": "id-1",
        "SYMPHONY_ISSUE_IDENTIFIER": "SYM-1",
        "SYMPHONY_WORKSPACE": str(tmp_path),
        "SYMPHONY_ATTEMPT": "2",
        "SYMPHONY_RUN_ID": "r1",
    }
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)
    assert (await seen(tmp_path, environment))["SYMPHONY_ATTEMPT"] == "0"


async def test_a_hook_gets_no_secret_and_no_place_of_another_git(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    profile = anyio.Path(environment["HOME"], ".profile")
    await profile.write_text("env > profile\n")
    inherited = {"TRACKER_TOKEN": "hunter2-hunter2", "GIT_DIR": "/elsewhere", "SYMPHONY_INSTANCE": "x"}
    found = await seen(tmp_path, {**environment, **inherited, "COLOUR": "blue"})
    assert found["COLOUR"] == "blue"
    assert found.keys().isdisjoint(inherited)
    assert "hunter2" not in (tmp_path / "profile").read_text(), "not even before the script begins"


async def test_a_secret_that_a_login_profile_exports_again_is_unset(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    profile = anyio.Path(environment["HOME"], ".profile")
    await profile.write_text("export TRACKER_TOKEN=again COLOUR=red\n")
    found = await seen(tmp_path, environment)
    assert "TRACKER_TOKEN" not in found
    assert found["COLOUR"] == "red"


@pytest.mark.parametrize("status", [1, 2, 78])
async def test_a_hook_that_fails_is_told_by_its_status_and_its_masked_output(
    tmp_path: Path, environment: dict[str, str], status: int
) -> None:
    hooks = runner(environment, after_create=f"echo hunter2-hunter2 is wrong >&2; exit {status}")
    with pytest.raises(WorkspaceError) as caught:
        await hooks.run(Hook.AFTER_CREATE, call(tmp_path))
    failure = caught.value.failure
    assert failure.category is Category.WORKSPACE_HOOK_FAILED
    assert f"status {status}" in failure.message
    assert "is wrong" in failure.message
    assert "hunter2" not in failure.message
    await hooks.run_ignoring_failure(Hook.AFTER_CREATE, call(tmp_path))


async def test_a_hook_that_takes_too_long_is_ended(tmp_path: Path, environment: dict[str, str]) -> None:
    hooks = runner(environment, before_run="sleep 300", timeout_ms=50)
    with pytest.raises(WorkspaceError) as caught:
        await hooks.run(Hook.BEFORE_RUN, call(tmp_path))
    assert caught.value.failure.category is Category.WORKSPACE_HOOK_TIMEOUT


async def test_a_hook_that_cannot_be_started_is_told(tmp_path: Path, environment: dict[str, str]) -> None:
    hooks = runner(environment, before_run="true")
    with pytest.raises(WorkspaceError) as caught:
        await hooks.run(Hook.BEFORE_RUN, call(tmp_path / "gone"))
    assert caught.value.failure.category is Category.WORKSPACE_HOOK_FAILED


async def test_only_the_hook_that_is_set_is_run(tmp_path: Path, environment: dict[str, str]) -> None:
    hooks = runner(environment, after_run="touch ran")
    assert [hook for hook in Hook if hooks.has(hook)] == [Hook.AFTER_RUN]
    await hooks.run(Hook.BEFORE_RUN, call(tmp_path))
    assert not (tmp_path / "ran").exists()
    await hooks.run(Hook.AFTER_RUN, call(tmp_path))
    assert (tmp_path / "ran").exists()
