"""Promise: people hear once of what needs them, also if the daemon is killed meanwhile; work never waits."""

import json
import re
import signal
from typing import Any

import pytest

from harness.project import Project, until
from harness.receiver import HANG, receiving
from harness.scraping import scrape
from published.schemas import conforms_to

ASKS = [{"ask_input": "Which colour, <!channel>?"}]


def notify(project: Project, *targets: dict[str, Any]) -> None:
    """Write the workflow with these targets."""
    path = project.workflow()
    text = path.read_text()
    path.write_text(text.replace("---\n{", f'---\n{{"notify": {json.dumps(targets)},', 1))


def told(body: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((each["event"], each["issue"]["issue_identifier"]) for each in body["notifications"])


def counted(project: Project, kind: str, result: str) -> float:
    return scrape(project).value("symphony_notifications_total", kind=kind, result=result)


def test_a_question_is_told_once_although_the_daemon_is_killed_before_the_delivery(
    project: Project,
) -> None:
    with receiving() as receiver:
        project.environment["HOOK_URL"] = receiver.url
        target = {
            "name": "hook",
            "kind": "webhook",
            "url": "$HOOK_URL",
            "secret": "$HOOK_KEY",
            "on": ["question"],
        }
        project.environment["HOOK_KEY"] = "signing-key-of-the-test"
        notify(project, {**target, "on": ["question"], "gather_ms": 3_600_000})
        project.issue("SYM-1", ASKS, title="<https://evil.example|Log in>")
        with project.daemon() as daemon:
            daemon.wait_for("comment_posted", issue_identifier="SYM-1", kind="blocked")
            (row,) = json.loads(project.symphony("notify", "list", "--json").stdout)["targets"]
            assert row["pending"] == 1
            daemon.kill_with_subreapers()
            daemon.end()
        assert receiver.requests == []
        notify(project, {**target, "on": ["question"], "gather_ms": 0})
        with project.daemon() as daemon:
            (body,) = receiver.wait_for(1)
            daemon.wait_for("notified", target="hook")
            daemon.signal(signal.SIGTERM)
            assert daemon.end() == 0
            logs = daemon.log.read_text()
        with project.daemon() as daemon:
            daemon.wait_for("serving")
            daemon.signal(signal.SIGTERM)
            assert daemon.end() == 0
        assert len(receiver.requests) == 1
    conforms_to("notification", body)
    assert told(body) == [("question", "SYM-1")]
    assert body["notifications"][0]["message"] == "Which colour, <!channel>?"
    _, headers, _ = receiver.requests[0]
    assert re.fullmatch(r"v1,[A-Za-z0-9+/]{43}=", headers["webhook-signature"])
    assert "K7aPzQ91xWv3" not in logs
    assert "signing-key-of-the-test" not in logs


@pytest.mark.slow
def test_a_burst_reaches_every_target_and_one_that_refuses_gets_it_later(project: Project) -> None:
    note = project.root / "note"
    replace = 'cat > "$0.new" && mv "$0.new" "$0"'
    with receiving((429, {"retry-after": "1"})) as chat, receiving(HANG) as stuck:
        notify(
            project,
            {"name": "chat", "kind": "slack", "url": chat.url, "gather_ms": 700, "on": ["question", "ready"]},
            {"name": "stuck", "kind": "webhook", "url": stuck.url, "gather_ms": 0},
            # The end of the daemon ends a command that writes: a whole note replaces the one before.
            {"name": "desk", "kind": "command", "command": ["sh", "-c", replace, str(note)], "gather_ms": 0},
            {"name": "odd", "kind": "webhook", "url": "ftp://x.example", "on": ["redy", "blocked"]},
        )
        for number in range(1, 4):
            project.issue(f"SYM-{number}", ASKS)
        done = {"tool": "board_move", "arguments": {"state": "Human Review"}}
        project.issue("SYM-4", [{"write": "a", "text": "a\n"}, {"commit": "Work"}, done])
        with project.daemon() as daemon:
            for number in range(1, 4):
                daemon.wait_for("issue_blocked", issue_identifier=f"SYM-{number}")
            daemon.wait_for("work_ready", issue_identifier="SYM-4")
            bodies = chat.wait_for(2)
            daemon.wait_for("notified", target="desk")
            log = daemon.events()
            until(lambda: counted(project, "slack", "delivered") >= 4 or None, daemon.log.read_text)
            assert counted(project, "slack", "failed") >= 1
            assert counted(project, "command", "delivered") >= 1
    assert "issue" in bodies[0]["text"]
    conforms_to("notification", json.loads(note.read_text()))
    warned = [line for line in log if line["event"] == "workflow_warning" and "notify[3]" in line["reason"]]
    assert len(warned) == 2, log
    assert [line["key"].split(":")[1] for line in log if line["event"] == "job_failed"][:1] == ["chat"]


def test_check_warns_of_each_mistake_and_the_file_stays_usable(project: Project) -> None:
    notify(
        project,
        {"name": "a", "kind": "slack", "url": "file:///etc/passwd"},
        {"name": "b", "kind": "webhook", "url": "https://x.example", "secret": "$NOT_SET"},
        {"name": "c", "kind": "command", "command": ["no-such-program-here"], "on": ["redy"]},
        {"name": "c", "kind": "pigeon"},
        {"kind": "slack", "url": "https://x.example", "quiet_hours": "evening"},
    )
    report = json.loads(project.symphony("check", "--json").stdout)
    found = [one for one in report["problems"] if one["code"] == "ignored_notification"]
    assert report["valid"]
    assert len(found) == 7
    assert all(one["severity"] == "warning" and one["line"] for one in found)
    assert any("did you mean" in (one["hint"] or "") for one in found)


def test_notify_test_says_whether_a_target_took_it(project: Project) -> None:
    with receiving((200, {}), (500, {})) as receiver:
        notify(project, {"name": "hook", "kind": "webhook", "url": receiver.url})
        done = project.symphony("notify", "test", "hook", "--json")
        failed = project.symphony("notify", "test")
    assert done.returncode == 0, done.stderr
    conforms_to("notify-test", json.loads(done.stdout))
    assert receiver.bodies[0]["notifications"][0]["event"] == "test"
    assert (failed.returncode, "status 500" in failed.stdout) == (1, True)
    assert project.symphony("notify", "test", "hok").returncode == 3
    listed = project.symphony("notify", "list", "--json")
    conforms_to("notify-list", json.loads(listed.stdout))
    doctor = json.loads(project.symphony("doctor", "--json").stdout)["checks"]
    (check,) = [check for check in doctor if check["name"] == "notifications"]
    assert check["status"] == "ok"
