"""Promise: `symphony check` finds every mistake at once, and a running daemon keeps the last good file."""

import json

import pytest

from harness.project import Project, scripted

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
WORK = [{"write": "a", "text": "a"}, {"commit": "A"}]
SECRET = "correct-horse-battery"
ACKNOWLEDGEMENT = "--i-understand-that-this-will-be-running-without-the-usual-guardrails"


def test_every_mistake_is_told_at_once_and_none_is_left_when_they_are_mended(project: Project) -> None:
    project.write(
        "WORKFLOW.md",
        "---\ntracker:\n  kind: markdown\n  provider:\n    prefix: '-'\nagent:\n  max_turns: 0\n"
        "polling:\n  intervall_ms: 5\nworkspace:\n  repo: .\n  base_branch: no-such\n"
        "---\n{{ issue.titel }}\n",
    )
    done = project.symphony("check")
    assert done.returncode == 3
    for place, word in {
        ":5: error:": "tracker.provider.prefix",
        ":7: error:": "agent.max_turns",
        ":12: error:": "no-such",
        ":14: error:": "issue.title",
        ":9: warning:": "interval_ms",
    }.items():
        assert f"WORKFLOW.md{place}" in done.stdout
        assert word in done.stdout
    assert "Traceback" not in done.stdout + done.stderr

    project.workflow()
    mended = project.symphony("check", "--json")
    assert mended.returncode == 0, mended.stdout
    assert json.loads(mended.stdout)["problems"] == []


def test_what_check_finds_usable_runs_and_what_it_refuses_does_not(project: Project) -> None:
    project.workflow()
    project.issue("SYM-1", [*WORK, DONE])
    assert project.symphony("check").returncode == 0
    assert project.once().returncode == 0
    assert project.state("SYM-1") == "Done"
    for broken in ({"worker": {"ssh_hosts": ["far away"]}}, {"tracker": {"kind": "bugzilla"}}):
        project.workflow(**broken)
        checked, run = project.symphony("check"), project.once()
        assert (checked.returncode, run.returncode) == (3, 3)
        (said,) = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
        assert said.split("WORKFLOW.md:")[1].split(" [")[0].replace(": ", ": error: ", 1) in checked.stdout


def test_a_daemon_at_work_keeps_the_last_good_file_and_says_what_waits_for_a_restart(
    project: Project,
) -> None:
    path = project.workflow()
    good = path.read_text()
    with project.daemon() as daemon:
        daemon.wait_for("serving")
        project.write(path.name, good.replace('"interval_ms": 300', '"interval_ms": -1'))
        assert "polling.interval_ms must be greater than 0" in daemon.wait_for("workflow_rejected")["reason"]
        path.unlink()
        project.workflow(server={"port": 0}, observability={"refresh_ms": 5})
        daemon.wait_for("workflow_reloaded")
        assert daemon.wait_for("restart_needed")["keys"] == ["server.port", "observability.refresh_ms"]
        project.issue("SYM-1", [*WORK, DONE])
        daemon.wait_for("run_ended", issue_identifier="SYM-1", outcome="succeeded")


@pytest.mark.conformance("L-4")
def test_sessions_without_a_sandbox_need_a_word_of_the_operator(project: Project) -> None:
    project.workflow(codex={"command": scripted(), "thread_sandbox": "danger-full-access"})
    project.issue("SYM-1", [*WORK, DONE])
    refused = project.symphony("run", "--once")
    assert refused.returncode == 3
    assert "codex.thread_sandbox lets sessions run without a sandbox" in refused.stderr
    assert ACKNOWLEDGEMENT in refused.stderr
    assert project.state("SYM-1") == "Todo"
    assert project.symphony("run", "--once", ACKNOWLEDGEMENT).returncode == 0
    assert project.state("SYM-1") == "Done"


@pytest.mark.conformance("L-4", "O-7")
def test_the_log_file_has_every_line_and_no_secret(project: Project) -> None:
    project.workflow(
        tracker={"kind": "markdown", "provider": {"token": SECRET}},
        hooks={"before_run": f"echo {SECRET} >&2; exit 1"},
        agent={"budget": {"max_attempts_without_progress": 1}},
    )
    project.issue("SYM-1", [DONE])
    done = project.symphony("run", "--once", "--logs-root", "logs", "--log-format", "console")
    text = (project.repo / "logs" / "log" / "symphony.log").read_text()
    events = [json.loads(line)["event"] for line in text.splitlines()]
    assert {"workflow_warning", "serving", "hook_failed", "issue_blocked", "stopped"} <= set(events)
    assert len(events) == len([line for line in done.stderr.splitlines() if line[:2].isdigit()])
    assert SECRET not in text + done.stderr + project.symphony("check", "--json").stdout
