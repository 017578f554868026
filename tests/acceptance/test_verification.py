"""Promise: what an agent says of its work is checked by the operator's commands before it counts."""

import json
import shlex
from typing import Any

import httpx
import pytest

from harness.project import Ended, Project, scripted
from published.schemas import conforms_to

BAD, GOOD = {"write": "a.txt", "text": "bad\n"}, {"write": "a.txt", "text": "good\n"}
COMMIT = {"commit": "Work"}
DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
CHECK = "! grep bad a.txt"


def verifying(project: Project, *commands: Any, **verify: Any) -> None:
    """The workflow with these commands, and an agent that remembers its conversation."""
    threads = scripted("--threads", str(project.root / "threads"))
    project.workflow(command=threads, verify={"commands": commands or (CHECK,), **verify})


def lines(ended: Ended, event: str) -> list[dict[str, Any]]:
    return [line for line in ended.events() if line["event"] == event]


@pytest.mark.parametrize("where", ["workspace", "clean"])
def test_a_failure_goes_back_to_the_same_conversation_which_fixes_it(project: Project, where: str) -> None:
    verifying(project, where=where)
    project.issue("SYM-1", [BAD, COMMIT, DONE], [GOOD, COMMIT, DONE])
    ended = project.once()
    assert ended.returncode == 0, ended.stderr
    assert project.written_state("SYM-1") == "Done"
    results = [line["result"] for line in lines(ended, "verified")]
    assert results == ["failed", "passed"], ended.stderr
    assert lines(ended, "thread_resumed")[0]["reason"] == "verify_failed"
    assert [(line["before"], line["state"]) for line in lines(ended, "issue_moved")] == [("Done", "Todo")]
    assert project.git("show", "symphony/SYM-1:a.txt") == "good"
    (comment,) = project.comments("SYM-1", kind="delivery")
    assert "Verified at" in comment
    runs = json.loads(project.symphony("runs", "--json").stdout)["runs"]
    assert [run["verified"] for run in runs] == ["passed", "failed"]


def test_after_the_rounds_a_person_is_asked_with_the_evidence(project: Project) -> None:
    verifying(project, "test ! -e a.txt || { echo the reason of it; exit 3; }", rounds=1)
    project.issue("SYM-1", [BAD, COMMIT, DONE], [GOOD, COMMIT, DONE], [COMMIT, DONE])
    ended = project.once()
    assert ended.returncode == 1
    assert len(lines(ended, "verify_failed")) == 2
    (comment,) = project.comments("SYM-1", kind="blocked")
    assert "the reason of it" in comment
    assert project.written_state("SYM-1") == "Todo"


def result_of(ended: Ended) -> str:
    """What the first verification said, in one line."""
    return str(lines(ended, "verified")[0]["reason"])


def test_work_that_no_commit_holds_is_a_failure_of_its_own(project: Project) -> None:
    verifying(project, rounds=0)
    project.issue("SYM-1", [GOOD, COMMIT, {"write": "b.txt", "text": "b\n"}, DONE])
    ended = project.once()
    assert "no commit" in result_of(ended)
    assert "git" in result_of(ended), "it names the command that shows it"
    assert lines(ended, "check_started") == []


def test_a_clean_checkout_finds_what_passes_only_by_an_ignored_file(project: Project) -> None:
    project.write(".gitignore", "/.symphony/issues/\nlocal.txt\n")
    project.commit("Ignore")
    steps: list[dict[str, Any]] = [GOOD, COMMIT, {"write": "local.txt", "text": "only here\n"}, DONE]
    setup = "test -e README.md && touch made-by-setup"
    verifying(
        project,
        "test -e made-by-setup; test -e local.txt || ! test -e a.txt",
        where="clean",
        setup=setup,
        rounds=0,
    )
    project.issue("SYM-1", steps)
    ended = project.once()
    assert lines(ended, "verified")[0]["result"] == "failed"
    verifying(project, "test -e local.txt || ! test -e a.txt")
    project.issue("SYM-2", steps)
    assert [line["result"] for line in lines(project.once(), "verified")] == ["passed"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo changed >README.md", "changed what they check"),
        ("git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x", "changed what they check"),
        ("test ! -e a.txt || exit 7", "exit code 7"),
        ("test ! -e a.txt || kill -9 $$", "signal 9"),
        ("test ! -e a.txt || no-such-program-here", "exit code 127"),
        (
            {"name": "slow", "run": "test ! -e a.txt || sleep 1000", "timeout_ms": 300},
            "did not end within 300 ms",
        ),
    ],
)
def test_nothing_but_a_complete_pass_is_a_pass(project: Project, script: Any, reason: str) -> None:
    verifying(project, script, rounds=0)
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    ended = project.once()
    assert reason in result_of(ended), ended.stderr
    assert ended.returncode == 1
    assert project.written_state("SYM-1") == "Todo"


def test_a_red_base_is_told_once_and_nobody_has_to_fix_it(project: Project) -> None:
    verifying(project, {"name": "old", "run": "false"})
    for number in (1, 2):
        project.issue(f"SYM-{number}", [GOOD, COMMIT, DONE])
    ended = project.once()
    assert [line["result"] for line in lines(ended, "verified")] == ["base_failed"] * 2
    assert len(lines(ended, "base_checked")) == 1, "the answer is kept for the commit"
    assert lines(ended, "issue_moved") == []
    assert project.written_state("SYM-1") == "Done"


def test_commands_are_for_the_paths_that_they_name_and_changes_of_checks_are_shown(project: Project) -> None:
    project.write("tests/test_a.py", "def test_a():\n    pass\n")
    project.commit("Test")
    commands = ({"name": "docs", "run": "false", "paths": ["docs/**"]}, {"name": "rest", "run": "true"})
    verifying(project, *commands, protect=["tests/**"])
    project.issue("SYM-1", [{"write": "tests/test_a.py", "text": "pass\n"}, COMMIT, DONE])
    ended = project.once()
    assert lines(ended, "verified")[0]["result"] == "passed"
    assert [line["check"] for line in lines(ended, "check_started")] == ["rest"]
    (comment,) = project.comments("SYM-1", kind="delivery")
    assert "tests/test_a.py: test_a is gone" in comment


def test_much_output_and_what_a_command_leaves_running_cost_nothing(project: Project) -> None:
    loud = "head -c 50000000 /dev/zero | tr '\\0' 'x'; echo; echo the end"
    verifying(project, f"{loud}; (sleep 1000 &); test ! -e a.txt", rounds=0)
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    ended = project.once()
    assert lines(ended, "verified")[0]["result"] == "failed"
    (comment,) = project.comments("SYM-1", kind="blocked")
    assert "the end" in comment
    assert len(comment) < 20_000


def test_an_agent_has_no_say_in_what_is_run(project: Project) -> None:
    verifying(project, rounds=0)
    front = "---\nverify: {commands: ['true']}\n---\nx\n"
    project.issue("SYM-1", [BAD, {"write": "WORKFLOW.md", "text": front}, COMMIT, DONE])
    assert [line["result"] for line in lines(project.once(), "verified")] == ["failed"]


def test_a_person_verifies_finished_work_again_and_nothing_but_the_result_changes(project: Project) -> None:
    red = project.root / "red"
    verifying(
        project,
        {
            "name": "tests",
            "run": f"test ! -e a.txt || test ! -e {shlex.quote(str(red))} || {{ echo so; exit 4; }}",
        },
    )
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    with project.daemon() as daemon:
        daemon.wait_for("work_ended")
        again = project.symphony("verify", "SYM-1")
        assert again.returncode == 0, again.stderr
        red.touch()
        failed = project.symphony("verify", "SYM-1", "--json")
        shown = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
    assert failed.returncode == 1, failed.stderr
    found = json.loads(failed.stdout)
    conforms_to("verify", found)
    (check,) = found["verified"]["checks"]
    assert (found["passed"], check["exit_code"], check["output_tail"].strip()) == (False, 4, "so")
    assert shown["result"]["verified"] == found["verified"]
    assert [run["verified"] for run in shown["runs"]] == ["failed", "passed", "passed"]
    assert project.written_state("SYM-1") == "Done"


def test_files_that_checks_leave_are_kept_with_the_run_and_served(project: Project) -> None:
    secret = "correct-horse-battery-staple"
    project.environment["MY_TOKEN"] = secret
    run = 'mkdir out; echo "<a>$MY_TOKEN</a>" >out/j.xml; ln -s /etc/passwd out/l.xml; cp out/j.xml p.html'
    project.workflow(
        command=scripted("--threads", str(project.root / "threads")),
        codex={"env": ["MY_TOKEN"]},
        verify={"commands": [run], "artifacts": ["out/**", "*.html"], "where": "clean"},
    )
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    with project.daemon() as daemon:
        daemon.wait_for("work_ended")
        shown = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
        found = {one["name"]: one["path"] for one in shown["result"]["verified"]["artifacts"]}
        socket = json.loads((project.state_dir / "control.json").read_text())["socket"]
        with httpx.Client(transport=httpx.HTTPTransport(uds=socket), base_url="http://symphony") as client:
            answers = {name: client.get(path) for name, path in found.items()}
            assert client.get("/issues/SYM-1/artifacts/..%2Fcontrol.json").status_code == 404
            page = client.get("/issues/SYM-1").text
    assert sorted(found) == ["out/j.xml", "p.html"]
    xml, html = answers["out/j.xml"], answers["p.html"]
    assert xml.headers["content-type"] == "text/plain; charset=utf-8"
    assert html.headers["content-type"] == "application/octet-stream"
    assert html.headers["content-disposition"].startswith("attachment;")
    assert xml.text == html.text == "<a>***</a>\n"
    assert all(path in page for path in found.values())
    (kept,) = (project.state_dir / "artifacts").iterdir()
    assert kept.name == shown["runs"][0]["run_id"]


def test_each_command_stands_in_the_transcript_of_its_run(project: Project) -> None:
    verifying(project, {"name": "tests", "run": "echo 1 failed; test ! -e a.txt"}, rounds=0)
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    project.once()
    done = project.symphony("transcript", "SYM-1", "--json")
    entries = [json.loads(line)["entry"] for line in done.stdout.splitlines()]
    (check,) = [entry for entry in entries if entry is not None and entry["kind"] == "check"]
    assert (check["name"], check["passed"], check["exit_code"]) == ("tests", False, 1)
    assert "1 failed" in check["output"]
    assert "tests failed with exit code 1" in project.symphony("transcript", "SYM-1").stdout
