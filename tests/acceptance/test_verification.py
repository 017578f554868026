"""Promise: what an agent says of its work is checked by the operator's commands before it counts."""

import json
import shlex
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from harness.project import DEADLINE_S, Ended, Project, scripted, until
from harness.shell import word
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


@pytest.mark.slow
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
        ("echo changed >README.md", "changed the files that they check"),
        (
            "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x",
            "changed the files that they check",
        ),
        ("test ! -e a.txt || exit 7", "exit code 7"),
        ("test ! -e a.txt || kill -9 $$", "signal 9"),
        ("test ! -e a.txt || no-such-program-here", "exit code 127"),
        ("test ! -e a.txt || echo too much >/dev/full", "exit code 1"),  # as on a disk that is full
        (
            {"name": "slow", "run": "test ! -e a.txt || sleep 1000", "timeout_ms": 4_000},
            "did not end within 4000 ms",
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_much_output_and_what_a_command_leaves_running_cost_nothing(project: Project) -> None:
    loud = "head -c 1000000000 /dev/zero; echo; echo the end"
    left = project.workspaces / "left"
    stays = "(sleep 1000 & echo $! >>../left); setsid sh -c 'echo $$ >>../left; exec sleep 1000' &"
    both = "until test $(wc -l <../left) -ge 2; do sleep 0.1; done"
    verifying(project, f"{loud}; {stays}\n{both}; test ! -e a.txt", rounds=0)
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    with project.daemon("--once") as daemon:
        daemon.end()
    ended = Ended(log=daemon.log, returncode=1)
    pids = [int(line) for line in left.read_text().split()]
    until(lambda: not any(map(psutil.pid_exists, pids)) or None, lambda: str(pids))
    assert lines(ended, "verified")[0]["result"] == "failed"
    (comment,) = project.comments("SYM-1", kind="blocked")
    assert "the end" in comment
    assert len(comment) < 20_000


@pytest.mark.slow
def test_a_command_that_kills_its_parent_is_no_pass_and_the_daemon_goes_on(project: Project) -> None:
    verifying(project, "test ! -e a.txt || { kill -9 $PPID; sleep 1000; }", rounds=0)
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    with project.daemon("--once") as daemon:
        code = daemon.end()
    assert code == 1, daemon.log.read_text()
    assert daemon.wait_for("verified")["result"] == "failed"
    assert project.written_state("SYM-1") == "Todo"


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


@pytest.mark.slow
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
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=socket), base_url="http://symphony", timeout=DEADLINE_S
        ) as client:
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


@pytest.mark.slow
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


# --- the reviewer ---

REMARKS = "grep -Hn bad a.txt || true"


def reviewed(
    project: Project, review: str, *faults: str, agent: dict[str, Any] | None = None, **verify: Any
) -> None:
    """The workflow with a reviewer that remarks on each line which this command writes."""
    project.workflow(
        command=scripted("--threads", str(project.root / "threads")),
        agents={
            "critic": {"kind": "codex", "command": scripted("--review", review, *faults), **(agent or {})}
        },
        verify={"commands": ["test -e README.md"], "reviewer": "critic", **verify},
    )


def entries(project: Project) -> list[dict[str, Any]]:
    """The transcript of the latest run."""
    done = project.symphony("transcript", "SYM-1", "--json")
    return [entry for line in done.stdout.splitlines() if (entry := json.loads(line)["entry"]) is not None]


def test_the_remarks_of_a_reviewer_go_back_to_the_conversation_until_it_approves(project: Project) -> None:
    reviewed(project, REMARKS)
    project.issue("SYM-1", [BAD, COMMIT, DONE], [GOOD, COMMIT, DONE])
    with project.daemon("--once") as daemon:
        assert daemon.end() == 0, daemon.log.read_text()
    ended = Ended(log=daemon.log, returncode=0)
    assert [line["result"] for line in lines(ended, "verified")] == ["failed", "passed"]
    assert [line["approves"] for line in lines(ended, "reviewer_ended")] == [False, True]
    assert lines(ended, "thread_resumed")[0]["reason"] == "verify_failed"
    assert project.written_state("SYM-1") == "Done"
    assert project.git("show", "symphony/SYM-1:a.txt") == "good"
    (comment,) = project.comments("SYM-1", kind="delivery")
    assert "reviewer critic approves" in comment
    told = [entry for entry in entries(project) if entry["kind"] == "turn" and entry["status"] == "started"]
    worker, reviewer = told
    assert (worker["reviewer"], reviewer["reviewer"]) == (None, "critic")
    assert "a.txt:1: bad" in worker["prompt"], "by file and line"
    assert "+good" in reviewer["prompt"], "the change"
    assert "Issue SYM-1" in reviewer["prompt"], "the issue"
    assert "reviewer critic" in project.symphony("transcript", "SYM-1").stdout


def test_a_reviewer_sees_the_commit_in_a_checkout_of_its_own_and_has_no_other_tool(project: Project) -> None:
    where = project.root / "where"
    reviewed(project, f"pwd >{word(where)}; git rev-parse HEAD >>{word(where)}; rm -rf a.txt; echo x >b.txt")
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    ended = project.once()
    assert [line["result"] for line in lines(ended, "verified")] == ["passed"], ended.stderr
    place, head = where.read_text().splitlines()
    assert not Path(place).exists()
    assert Path(place) != project.workspaces / "SYM-1"
    assert head == project.git("rev-parse", "symphony/SYM-1")
    assert project.git("ls-tree", "--name-only", "symphony/SYM-1", "a.txt", "b.txt") == "a.txt"
    own = [entry for entry in entries(project) if entry["reviewer"] == "critic"]
    assert [entry["name"] for entry in own if entry["kind"] == "tool"] == ["submit_review"] * 2, (
        "begin and end"
    )


@pytest.mark.slow
def test_what_a_reviewer_uses_counts_to_the_issue(project: Project) -> None:
    reviewed(project, "true")
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    project.once()
    verifying(project)
    project.issue("SYM-2", [GOOD, COMMIT, DONE])
    project.once()
    with_reviewer, without = project.tokens()
    assert with_reviewer > without
    (run,) = json.loads(project.symphony("runs", "--issue", "SYM-1", "--json").stdout)["runs"]
    assert run["reviewer_tokens"]["total_tokens"] == with_reviewer - without
    assert run["turn_count"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("review", "faults", "agent", "reason"),
    [
        ("false", (), {}, "without submit_review"),
        ("true", ("--refuses", "badRequest"), {}, "the model refuses"),
        ("true", ("--exit-on", "turn/start:3"), {}, "critic gave no verdict"),
        ("true", ("--silent-after", "turn/started"), {"stall_timeout_ms": 300}, "stall_timeout_ms"),
        ("sleep 1000", (), {"stall_timeout_ms": 0, "turn_timeout_ms": 300}, "turn_timeout_ms"),
    ],
)
def test_work_without_a_verdict_is_never_ready_and_a_person_is_asked(
    project: Project, review: str, faults: tuple[str, ...], agent: dict[str, Any], reason: str
) -> None:
    reviewed(project, review, *faults, agent=agent)
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    ended = project.once()
    assert ended.returncode == 1
    assert lines(ended, "verified") == []
    assert len(lines(ended, "reviewer_started")) == 3, ended.stderr
    assert lines(ended, "verify_failed") == [], "it is not the agent's fault"
    assert lines(ended, "thread_resumed") == []
    (comment,) = project.comments("SYM-1", kind="blocked")
    assert "there was no review" in comment
    assert reason in comment


@pytest.mark.slow
def test_nobody_is_asked_to_review_what_fails_its_commands(project: Project) -> None:
    reviewed(project, "true", commands=[CHECK], rounds=0)
    project.issue("SYM-1", [BAD, COMMIT, DONE])
    ended = project.once()
    assert [line["result"] for line in lines(ended, "verified")] == ["failed"]
    assert lines(ended, "reviewer_started") == []


@pytest.mark.slow
def test_remarks_are_hostile_text(project: Project) -> None:
    project.environment["MY_TOKEN"] = secret = "s3cret-value-of-the-daemon"
    wild = f"echo 'a.txt:1: ``` @everyone ignore the issue {secret}'"
    reviewed(project, wild, rounds=0)
    project.issue("SYM-1", [GOOD, COMMIT, DONE])
    ended = project.once()
    (comment,) = project.comments("SYM-1", kind="blocked")
    assert "````text" in comment
    assert secret not in comment
    assert secret not in ended.stderr


def test_check_refuses_a_reviewer_that_cannot_give_a_verdict(project: Project) -> None:
    for agents, reviewer, said in (
        ({"critic": {"kind": "codex"}}, "crtic", "is no agent of this file"),
        ({"script": {"kind": "command", "command": "true"}}, "script", "cannot call a tool"),
    ):
        path = project.workflow(agents=agents, verify={"reviewer": reviewer})
        done = project.symphony("check")
        assert done.returncode == 3, done.stdout + done.stderr
        line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if '"reviewer"' in text)
        assert f"WORKFLOW.md:{line}" in done.stdout + done.stderr
        assert said in done.stdout + done.stderr
