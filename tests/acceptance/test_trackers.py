"""Promise: the tracker you have is enough; the daemon works on its issues, and reports there once."""

import hmac
import json
import secrets
import time

import anyio
import httpx
import pytest

from contract.desks import DESKS
from contract.served import served
from contract.vendor import Fault
from harness.nightly import NIGHTLY
from harness.project import DEADLINE_S, Project
from harness.scraping import scrape

HOOK_SECRET = "whatever-the-tracker-was-told"


@pytest.mark.parametrize("name", [name for name in DESKS if NIGHTLY or "," not in name])
def test_an_issue_becomes_a_commit_and_each_report_one_comment(project: Project, name: str) -> None:
    desk = DESKS[name]()
    steps = [{"write": "done.txt", "text": "done"}, {"commit": "Do it"}]
    steps += [{"tool": tool, "arguments": dict(arguments)} for tool, arguments in desk.finish(7)]  # type: ignore[dict-item]  # a step is any JSON
    desk.put(7, description=f"```scripted\n{json.dumps([steps])}\n```")
    project.write(".symphony/skills/broken/SKILL.md", "---\ndescription: No name.\n---\n")
    project.commit("Add a malformed skill")
    with served(desk) as provider:
        tracker = {
            "kind": desk.kind,
            "provider": provider,
            "active_states": [desk.todo, desk.doing],
            "terminal_states": [desk.done],
        }
        project.workflow(tracker=tracker, polling={"interval_ms": 100})
        project.environment.update(desk.environment())
        done = project.once()
        assert done.returncode == 0, done.stderr
        again = project.once()
        assert again.returncode == 0, again.stderr
    issue = project.git("for-each-ref", "--format=%(refname:short)", "refs/heads/symphony")
    assert project.git("show", f"{issue}:done.txt") == "done"
    comments = desk.comments(7)
    (skills,) = [text for text in comments if "symphony:skills v1 " in text]
    assert ".symphony/skills/broken/SKILL.md" in skills
    (delivery,) = [text for text in comments if "symphony:delivery v1 " in text]
    assert issue in delivery
    assert len(comments) == 2
    assert desk.vendor.secret not in done.stderr + again.stderr + skills + delivery


@pytest.mark.parametrize("name", [name for name in DESKS if "," not in name])
def test_an_agent_moves_and_comments_on_its_issue_by_the_same_tools_everywhere(
    project: Project, name: str
) -> None:
    desk = DESKS[name]()
    steps = [
        {"write": "done.txt", "text": "done"},
        {"commit": "Do it"},
        {"tool": "issue_comment", "arguments": {"body": "It is done, please look."}},
        {"tool": "issue_move", "arguments": {"state": desk.done}},
    ]
    issue_id = desk.put(7, description=f"```scripted\n{json.dumps([steps])}\n```")
    with served(desk) as provider:
        tracker = {
            "kind": desk.kind,
            "provider": {**provider, "scope": "off"},
            "active_states": [desk.todo, desk.doing],
            "terminal_states": [desk.done],
        }
        project.workflow(tracker=tracker, polling={"interval_ms": 100})
        project.environment.update(desk.environment())
        done = project.once()
        assert done.returncode == 0, done.stderr
        (issue,) = anyio.run(desk.tracker.fetch_issues_by_ids, [issue_id])
    assert issue.state == desk.done
    assert any("It is done, please look." in comment for comment in desk.comments(7))
    assert desk.vendor.secret not in done.stderr
    branch = project.git("for-each-ref", "--format=%(refname:short)", "refs/heads/symphony")
    assert project.git("log", "--format=%s", f"main..{branch}") == "Do it", "one run was enough"


@pytest.mark.parametrize("name", [name for name in DESKS if "," not in name])
def test_a_credential_that_is_not_taken_is_said_with_its_exit_code(project: Project, name: str) -> None:
    desk = DESKS[name]()
    desk.put(7)
    with served(desk) as provider:
        tracker = {
            "kind": desk.kind,
            "provider": provider,
            "active_states": [desk.todo],
            "terminal_states": [desk.done],
        }
        project.workflow(tracker=tracker)
        without = project.symphony("explain", "X-1")
        project.environment.update(desk.environment())
        desk.vendor.fail_next(Fault.UNAUTHORISED, times=5)
        refused = project.symphony("explain", "X-1")
    assert (without.returncode, refused.returncode) == (4, 4), refused.stderr
    assert "tracker.provider." in without.stderr
    assert "hint: the credential is not valid" in refused.stderr
    assert desk.vendor.secret not in refused.stderr + refused.stdout


def test_the_daemon_moves_what_it_begins_and_what_waits_for_a_person(project: Project) -> None:
    """A signed delivery brings the issue at once, although the next poll is an hour away."""
    desk = DESKS["linear"]()
    with served(desk) as provider:
        tracker = {
            "kind": desk.kind,
            "provider": provider,
            "active_states": [desk.todo, desk.doing],
            "terminal_states": [desk.done],
            "on_start": desk.doing,
            "on_block": "Backlog",
            "webhook_secret": "$HOOK_SECRET",
        }
        project.workflow(tracker=tracker, polling={"interval_ms": 3_600_000})
        project.environment.update({**desk.environment(), "HOOK_SECRET": HOOK_SECRET})
        with project.daemon("--port", "0") as daemon:
            port = daemon.wait_for("http_serving")["port"]
            daemon.wait_for("serving")
            desk.put(7, description=f"```scripted\n{json.dumps([[{'ask_input': 'Which colour?'}]])}\n```")
            assert _deliver(port, {"type": "Issue"}, secret="wrong") == 401
            assert _deliver(port, {"type": "Issue"}) == 202
            moved = daemon.wait_for("issue_moved", reason="start")
            assert (moved["before"], moved["state"]) == (desk.todo, desk.doing)
            received = scrape(project)["symphony_webhooks_total"]
            assert received == {frozenset({("result", name)}): 1 for name in ("refused", "accepted")}
            daemon.wait_for("issue_blocked")
            blocked = daemon.wait_for("issue_moved", reason="block")
            assert (blocked["before"], blocked["state"]) == (desk.doing, "Backlog")
            status = json.loads(project.symphony("status", "--json").stdout)
            assert [row["issue_identifier"] for row in status["blocked"]] == [blocked["issue_identifier"]]
            answered = project.symphony("answer", blocked["issue_identifier"], "Blue")
            assert answered.returncode == 0, answered.stderr
            back = daemon.wait_for("issue_moved", reason="back")
            assert (back["before"], back["state"]) == ("Backlog", desk.doing)
            assert daemon.wait_for("issue_unblocked")["reason"] == "a person answered"
            log = daemon.log.read_text()
    assert HOOK_SECRET not in log
    assert desk.vendor.secret not in log


def _deliver(port: int, content: dict[str, object], *, secret: str = HOOK_SECRET) -> int:
    """What Linear would send."""
    body = json.dumps({**content, "webhookTimestamp": time.time_ns() // 1_000_000}).encode()
    headers = {
        "linear-signature": hmac.new(secret.encode(), body, "sha256").hexdigest(),
        "linear-delivery": secrets.token_hex(8),
        "content-type": "application/json; charset=utf-8",
        "host": "hooks.example.test",
    }
    address = f"http://127.0.0.1:{port}/webhooks/linear"
    return httpx.post(address, content=body, headers=headers, trust_env=False, timeout=DEADLINE_S).status_code
