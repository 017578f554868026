"""Promise: a real Codex corrects a check that fails, and answers who reviews it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from contract.repository import ME, WRITER, Pull
from harness.forge_remote import Remote, at
from harness.project import Project, until
from harness.real import require_codex
from kit import model_server as models
from kit.codex_home import codex_home
from symphony.domain import CheckState

pytestmark = pytest.mark.real_codex
QUICK: dict[str, Any] = {
    "poll_interval_ms": 300,
    "checks_grace_ms": 0,
    "required_checks": ["test"],
    "open": "ready",
}


@pytest.fixture
def codex() -> Path:
    return require_codex()


def test_a_failing_check_is_corrected_and_a_reviewer_answered(project: Project, codex: Path) -> None:
    """CI runs what is on the branch; the whole loop is one conversation."""
    moved = (models.tool("board_move", {"state": "Human Review"}), models.say("It prints the answer."))
    work = (_commit("print(41)", "Print the answer"), *moved)
    fix = (_commit("print(42)", "Correct the answer"), models.say("It was off by one."))
    project.issue("SYM-1", text="[[work]] Write answer.py, which prints 42.")
    agent = {"command": f"{shlex.quote(str(codex))} app-server", "read_timeout_ms": 30_000}
    with (
        models.ModelServer({"work": work, "fix": fix}) as server,
        codex_home(server.base_url) as home,
        at(project, "gitlab", codex=agent, **QUICK) as remote,
    ):
        project.environment.update(home.env)
        with project.daemon() as daemon:
            daemon.wait_for("pull_request_judged", code="checks_not_started")
            (pull,) = remote.opened()
            first = pull.sha
            _run_checks(project, remote, pull)
            until(lambda: pull.sha != first or None, daemon.log.read_text)
            second = pull.sha
            _run_checks(project, remote, pull)
            daemon.wait_for("pull_request_judged", code="settled")

            asked = {"thread": "t7001", "text": "The issue says so.", "resolve": True}
            server.learn("answer", (models.tool("reply_to_review", asked), models.say("Answered.")))
            thread = remote.desk.repository.remark(
                pull, WRITER, "[[answer]] Why 42?", path="answer.py", thread_id=7_001
            )
            daemon.wait_for("review_answered")
            until(lambda: thread.resolved or None, daemon.log.read_text)
            assert pull.sha == second, "nothing was to be changed"
        told = json.dumps(server.requests[-1].body["input"])
    assert [each.login for each in thread.comments] == [WRITER, ME]
    assert project.branch_log("SYM-1") == ["Correct the answer", "Print the answer"]
    assert project.state("SYM-1") == "Human Review"
    begun = [line for line in daemon.events() if line["event"] == "turn_started"]
    assert len({line["session_id"][:36] for line in begun}) == 1
    assert len(begun) == 3
    assert "expected 42, got 41" in told
    assert told.count("Write answer.py, which prints 42.") == 1, "the task is told once"


def _commit(text: str, message: str) -> models.Answer:
    return models.shell(f"echo '{text}' > answer.py && git add . && git commit --quiet -m '{message}'")


def _run_checks(project: Project, remote: Remote, pull: Pull) -> None:
    """CI looks at the head of the branch."""
    is_right = "42" in project.git("show", f"{pull.sha}:answer.py", cwd=remote.bare)
    state = CheckState.PASSED if is_right else CheckState.FAILED
    log = b"" if is_right else b"\x1b[31m[[fix]] expected 42, got 41\x1b[0m\n"
    remote.desk.repository.check(pull, "test", state, log=log)
