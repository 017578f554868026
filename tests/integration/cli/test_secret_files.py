"""Secrets from files in the commands that need them, with real processes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.project import Project
from harness.shell import word

HELD = "correct-horse-battery"


def _ready(tmp_path: Path, environment: Mapping[str, str], **sections: Any) -> Project:
    made = Project(root=tmp_path, environment=dict(environment)).create()
    budget = {"max_attempts_without_progress": 1, "max_tokens_per_issue": 5_000_000}
    made.workflow(agent={"max_turns": 1, "budget": budget}, **sections)
    made.commit("Workflow")
    return made


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(f"{HELD}\n", encoding="utf-8")
    file.chmod(0o400)
    return file


@pytest.mark.parametrize(
    "arguments", [("run", "--once"), ("status",), ("clean", "--dry-run"), ("tracker", "check")]
)
def test_a_missing_file_is_one_line_with_a_hint_and_exit_code_3(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    project = _ready(tmp_path, {"LINEAR_API_KEY_FILE": str(tmp_path / "gone")})
    done = project.symphony(*arguments)
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    path = tmp_path / "gone"
    assert error == (
        f"error: the file of LINEAR_API_KEY, {path}, cannot be read: No such file or directory [secret_file]"
    )
    assert hint.startswith("hint: put the secret there")
    assert not project.state_dir.exists()


def test_check_and_doctor_tell_it_beside_what_else_there_is(tmp_path: Path) -> None:
    project = _ready(
        tmp_path, {"LINEAR_API_KEY_FILE": str(tmp_path / "gone")}, codex={"command": "not-there"}
    )
    done = project.symphony("check", "--json")
    assert done.returncode == 3
    codes = {problem["code"] for problem in json.loads(done.stdout)["problems"]}
    assert codes == {"secret_file", "codex_not_found"}
    done = project.symphony("doctor", "--json")
    assert done.returncode == 3
    found = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "secrets"]
    assert [check["status"] for check in found] == ["error"]


def test_what_a_file_held_is_masked_and_reaches_the_hook_as_a_path_only(tmp_path: Path, secret: Path) -> None:
    told = tmp_path / "told"
    hook = f'echo "value=$NPM_TOKEN file=$NPM_TOKEN_FILE" > {word(told)}; cat "$NPM_TOKEN_FILE"; exit 1'
    project = _ready(tmp_path, {"NPM_TOKEN_FILE": str(secret)}, hooks={"after_create": hook})
    project.issue("SYM-1")
    done = project.symphony("run", "--once", "--log-format", "json")
    assert done.returncode == 1
    assert told.read_text(encoding="utf-8") == f"value= file={secret}\n"
    assert "hook_failed" in done.stderr
    assert HELD not in done.stderr
    journal = (project.state_dir / "journal.db").read_bytes()
    assert HELD.encode() not in journal


def test_a_credential_of_the_service_manager_is_the_trackers(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "LINEAR_API_KEY").write_text(HELD, encoding="utf-8")
    project = _ready(
        tmp_path,
        {"CREDENTIALS_DIRECTORY": str(credentials)},
        tracker={
            "kind": "linear",
            "provider": {"project_slug": "app", "api_key": "$LINEAR_API_KEY"},
        },
    )
    assert json.loads(project.symphony("check", "--json").stdout)["problems"] == []
    del project.environment["CREDENTIALS_DIRECTORY"]
    assert [
        problem["code"] for problem in json.loads(project.symphony("check", "--json").stdout)["problems"]
    ] == ["missing_tracker_secret", "unset_variable"]


def test_a_file_that_others_can_read_is_told_and_used(tmp_path: Path, reachable: Path) -> None:
    secret = reachable / "secret"
    secret.write_text(f"{HELD}\n", encoding="utf-8")
    secret.chmod(0o444)
    project = _ready(tmp_path, {"GH_TOKEN_FILE": str(secret)})
    done = project.once()
    assert done.returncode == 0, done.stderr
    [line] = [json.loads(line) for line in done.stderr.splitlines() if "secret_file_exposed" in line]
    assert line["path"] == str(secret)
    report = json.loads(project.symphony("check", "--json").stdout)
    assert [problem["code"] for problem in report["problems"]] == ["exposed_secret"]
    checks = json.loads(project.symphony("doctor", "--json").stdout)["checks"]
    told = [check for check in checks if check["name"] == "secrets"]
    assert [check["status"] for check in told] == ["ok", "ok", "warning"]
    assert told[0]["message"] == "from files: GH_TOKEN"
