from pathlib import Path
from typing import Any

import pytest

from symphony.config import AGENT_SECTIONS, WorkflowFile, parse_workflow
from symphony.daemon.context import build_isolation


def isolation_of(tmp_path: Path, workspace: str, **environment: str) -> Any:
    text = f"---\ntracker: {{kind: memory}}\nworkspace: {{root: {tmp_path}/root{workspace}}}\n---\nGo.\n"
    file = WorkflowFile(
        path=tmp_path / "WORKFLOW.md",
        data=text.encode(),
    )
    home = {"HOME": str(tmp_path / "home")}
    workflow = parse_workflow(file, environment=home, tracker_kinds={"memory"}, agent_kinds=AGENT_SECTIONS)
    return build_isolation(workflow, {**home, **environment})


def test_nothing_is_enclosed_unless_asked_for(tmp_path: Path) -> None:
    assert isolation_of(tmp_path, "") is None


def test_the_daemons_places_and_a_persons_keys_are_hidden(tmp_path: Path) -> None:
    found = isolation_of(
        tmp_path,
        ", isolation: bwrap",
        SYMPHONY_STATE_DIR="/state/mine",
        XDG_STATE_HOME="/elsewhere",
        XDG_RUNTIME_DIR="/run/user/7",
        CREDENTIALS_DIRECTORY="not/absolute",
        TMPDIR="/scratch",
    )
    hidden = {str(place) for place in found.hidden}
    assert {f"{tmp_path}/root", "/state/mine", "/elsewhere/symphony", "/run/user/7"} <= hidden
    assert f"{tmp_path}/home/.ssh" in hidden
    assert "not/absolute" not in hidden
    assert Path("/scratch") in found.scratch
    assert tmp_path / "home" / ".cache" in found.scratch
    assert tmp_path / "root" / ".symphony" / "mirrors" in found.readable
    assert found.network


def test_the_repository_that_clones_come_from_can_be_read(tmp_path: Path) -> None:
    found = isolation_of(tmp_path, f", isolation: bwrap, network: closed, repo: {tmp_path}/repo")
    assert tmp_path / "repo" in found.readable
    assert not found.network


def test_files_that_variables_name_and_git_configurations_are_judged(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("word")
    named = {"LINEAR_API_KEY_FILE": str(tmp_path / "token"), "GIT_CONFIG_GLOBAL": "/mine"}
    found = isolation_of(tmp_path, f", isolation: bwrap, repo: {tmp_path}/repo", **named)
    home = tmp_path / "home"
    assert tmp_path / "token" in found.hidden
    assert found.repositories == (tmp_path / "repo/.git", tmp_path / "repo")
    configurations = {Path("/etc/gitconfig"), Path("/mine"), home / ".gitconfig", home / ".config/git/config"}
    assert set(found.configurations) == configurations
    assert found.home == home


@pytest.mark.parametrize("repo", ["https://forge.example.invalid/a.git", "git@forge.example.invalid:a.git"])
def test_a_repository_elsewhere_is_no_place_here(tmp_path: Path, repo: str) -> None:
    found = isolation_of(tmp_path, f', isolation: bwrap, repo: "{repo}"', XDG_CACHE_HOME="/cache")
    assert not any("forge" in str(place) for place in found.readable)
    assert Path("/cache") in found.scratch
