"""Promise: the tracker you have is enough; the daemon works on its issues, and reports there once."""

import json

import pytest

from contract.desks import DESKS
from contract.served import served
from contract.vendor import Fault
from harness.project import Project


@pytest.mark.parametrize("name", DESKS)
def test_an_issue_becomes_a_commit_and_the_report_one_comment(project: Project, name: str) -> None:
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
        done = project.symphony("run", "--once")
        assert done.returncode == 0, done.stderr
        again = project.symphony("run", "--once")
        assert again.returncode == 0, again.stderr
    issue = project.git("for-each-ref", "--format=%(refname:short)", "refs/heads/symphony")
    assert project.git("show", f"{issue}:done.txt") == "done"
    (comment,) = desk.comments(7)
    assert ".symphony/skills/broken/SKILL.md" in comment
    assert desk.vendor.secret not in done.stderr + again.stderr + comment


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
    assert "hint: the credential is not taken" in refused.stderr
    assert desk.vendor.secret not in refused.stderr + refused.stdout
