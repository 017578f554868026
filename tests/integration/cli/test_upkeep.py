"""`doctor` and `clean` on real repositories, real processes and real state directories."""

import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner
from msgspec import structs

from harness.journalling import NOW, claim, event, run, written
from harness.project import SYMPHONY, Project, scripted
from harness.shell import word
from published.schemas import conforms_to
from symphony.api.models import CHECKS
from symphony.cli.main import main
from symphony.daemon.state_dir import StateDirectory, instance_of
from symphony.domain import SymphonyError
from symphony.journal.reader import open_reader
from symphony.processes.local import LocalHost
from symphony.processes.table import INSTANCE_VARIABLE

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(root=tmp_path).create()
    made.workflow(agent={"max_turns": 1, "budget": {"max_attempts_without_progress": 1}})
    made.issue("SYM-1", title="First")
    made.issue("SYM-2", title="Over", state="Done")
    made.commit("Workflow")
    (made.root / "home").mkdir()
    for name, value in made.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.repo)
    return made


def doctor(*, code: int = 0) -> dict[str, dict[str, Any]]:
    """The worst finding of each check by its name."""
    done = CliRunner().invoke(main, ["doctor", "--json"], standalone_mode=False)
    assert done.exception is None, done.exception
    found = json.loads(done.stdout)
    conforms_to("doctor", found)
    assert (done.return_value, found["exit_code"], found["ok"]) == (code, code, code == 0)
    ranks = ("ok", "warning", "error")
    worst: dict[str, dict[str, Any]] = {}
    for check in found["checks"]:
        assert (check["hint"] is None) == (check["status"] == "ok"), check
        best = worst.get(check["name"])
        if best is None or ranks.index(check["status"]) > ranks.index(best["status"]):
            worst[check["name"]] = check
    assert list(worst) == [name for name in CHECKS if name in worst]
    return worst


def files(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.lstat().st_mtime_ns for path in root.rglob("*")}


def test_a_repository_that_is_ready_has_no_error_and_is_left_as_it_was(project: Project) -> None:
    before = files(project.root)
    found = doctor()
    after = files(project.root)
    assert set(after) == set(before)
    assert {name for name, check in found.items() if check["status"] == "error"} == set()
    assert set(found) == set(CHECKS)
    assert found["tracker"]["message"] == "markdown answers: 1 issue in Todo, In Progress"
    assert found["state_directory"]["message"].endswith("is made by the first `symphony run`")


@pytest.mark.slow
def test_checks_are_run_on_the_base_commit_only_if_asked_for(project: Project) -> None:
    commands = [
        {"name": "good", "run": "test -e README.md && test -e prepared", "paths": ["never/**"]},
        {"name": "bad", "run": "echo the reason; exit 3"},
    ]
    project.workflow(verify={"commands": commands, "setup": "touch prepared"})
    assert doctor()["verify"]["status"] == "ok"
    before = files(project.root)
    done = CliRunner().invoke(main, ["doctor", "--verify", "--json"], standalone_mode=False)
    assert set(files(project.root)) == set(before)
    found = json.loads(done.stdout)
    conforms_to("doctor", found)
    assert (done.return_value, found["exit_code"]) == (1, 1)
    checks = [check for check in found["checks"] if check["name"] == "verify"]
    assert [check["status"] for check in checks] == ["ok", "ok", "error"]
    base = project.git("rev-parse", "HEAD")[:12]
    assert all(base in check["message"] for check in checks)
    assert "exit code 3" in checks[2]["message"]
    assert "the reason" in done.stderr


@pytest.mark.slow
def test_skills_that_sessions_do_not_see_are_named_with_the_setting(project: Project) -> None:
    project.write(".claude/skills/one/SKILL.md", "---\nname: one\ndescription: d\n---\n")
    found = doctor()["repository"]
    assert (found["status"], ".claude/skills (1 skill)" in found["message"]) == ("warning", True)
    assert found["hint"].endswith("agent.skills.extra_paths: [.claude/skills]")
    project.workflow(agent={"skills": {"extra_paths": [".claude/skills"]}})
    assert doctor()["repository"]["status"] == "ok"


def test_people_read_a_line_per_finding_with_its_hint(project: Project) -> None:
    project.write(".symphony/issues/SYM-9.md", "no front matter\n")
    done = CliRunner().invoke(main, ["doctor"], standalone_mode=False)
    lines = done.stdout.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "left out:" in line]
    assert lines[place].startswith("warning  tracker ")
    assert lines[place + 1].strip().startswith("hint: ")
    assert lines[-1].endswith("warnings")


def test_an_invalid_workflow_is_the_configuration_and_what_needs_it_is_not_guessed(project: Project) -> None:
    project.write("WORKFLOW.md", "---\ntracker: {kind: markdown}\npolling: {interval_ms: no}\n---\nDo.\n")
    found = doctor(code=3)
    assert found["workflow"]["message"].startswith(f"{project.repo}/WORKFLOW.md:3: ")
    for name in ("repository", "agent", "tracker", "workspaces"):
        assert found[name]["status"] == "warning"
        assert found[name]["hint"].startswith("fix WORKFLOW.md first")


def test_a_workflow_that_is_not_there_is_told(project: Project) -> None:
    (project.repo / "WORKFLOW.md").unlink()
    assert doctor(code=3)["workflow"]["status"] == "error"


@pytest.mark.slow
def test_an_agent_that_is_missing_or_broken_is_told_with_what_to_do(project: Project) -> None:
    project.workflow(command="symphony-no-such-agent app-server")
    found = doctor(code=3)
    assert found["agent"]["status"] == "error"
    assert found["workflow"]["status"] == "ok"
    project.workflow(command=scripted("--exit-on", "initialize"))
    assert doctor(code=1)["agent"]["status"] == "error"


def test_a_repository_without_the_base_branch_is_told(project: Project) -> None:
    project.workflow(workspace={"base_branch": "nowhere"})
    assert doctor(code=3)["repository"]["status"] == "error"


@pytest.mark.slow
def test_the_remote_is_asked_whether_it_takes_branches(project: Project) -> None:
    project.workflow(workspace={"push": "origin"})
    assert doctor()["push"]["status"] == "warning", "there is no remote"
    remote = project.root / "origin.git"
    project.git("clone", "--quiet", "--bare", str(project.repo), str(remote))
    project.git("remote", "add", "origin", str(remote))
    before = files(remote)
    assert doctor()["push"]["status"] == "ok"
    project.workflow(workspace={"push": "origin", "repo": f"file://{remote}"})
    assert doctor()["push"]["status"] == "ok"
    assert files(remote) == before
    project.workflow(workspace={"push": "origin"})
    project.git("remote", "set-url", "--push", "origin", "https://ann:pw@127.0.0.1:9/x.git")
    found = doctor()["push"]
    assert found["status"] == "warning"
    assert "127.0.0.1:9/x.git" in found["message"]
    assert "pw" not in found["message"]


def test_a_repository_that_hooks_fill_is_not_looked_at(project: Project) -> None:
    project.workflow(workspace={"repo": None})
    assert doctor()["repository"]["message"].startswith("workspace.repo is not set")


@pytest.mark.slow
def test_many_records_that_are_left_out_are_counted(project: Project) -> None:
    for number in range(5, 10):
        project.write(f".symphony/issues/SYM-{number}.md", "no front matter\n")
    done = CliRunner().invoke(main, ["doctor"], standalone_mode=False)
    assert done.stdout.count("left out: ") == 3
    assert "2 more records or states are wrong" in done.stdout


@pytest.mark.slow
def test_a_state_directory_that_others_read_is_odd_and_a_file_is_an_error(project: Project) -> None:
    project.state_dir.mkdir(mode=0o755)
    project.state_dir.chmod(0o755)
    found = doctor()["state_directory"]
    assert (found["status"], found["hint"]) == ("warning", f"chmod 700 {word(project.state_dir)}")
    project.state_dir.chmod(0o700)
    assert doctor()["state_directory"]["status"] == "ok"
    project.state_dir.rmdir()
    project.state_dir.write_text("")
    assert doctor(code=1)["state_directory"]["message"].endswith("is not a directory")


@pytest.mark.slow
def test_a_daemon_that_was_killed_is_odd_and_one_that_is_silent_is_an_error(project: Project) -> None:
    project.state_dir.mkdir(mode=0o700)
    note = {"socket": str(project.root / "none.sock"), "host": None, "port": None}
    workflow = str(project.repo / "WORKFLOW.md")
    with subprocess.Popen(["sleep", "60"]) as process:
        control = project.state_dir / "control.json"
        control.write_text(json.dumps({**note, "pid": process.pid, "workflow": workflow}))
        found = doctor(code=5)
        assert found["lock"]["status"] == "error"
        process.kill()
        process.wait()
        found = doctor()
    assert found["lock"]["status"] == "warning"
    assert "normal end" in found["lock"]["message"]


def test_what_a_dead_daemon_left_running_is_counted(project: Project) -> None:
    project.state_dir.mkdir(mode=0o700)
    environment = {**os.environ, INSTANCE_VARIABLE: instance_of(project.state_dir)}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        found = doctor()["processes"]
        assert found["status"] == "warning"
        assert found["message"] == f"a dead daemon has left 1 running: {process.pid}"
        assert LocalHost().identify(process.pid) is not None
        process.kill()


def worked(project: Project) -> None:
    """SYM-1 has a workspace, and so has SYM-2; nobody works on them any more."""
    project.issue("SYM-2", title="Over")
    done = project.once()
    assert (project.workspaces / "SYM-2").is_dir(), done.stderr
    project.issue("SYM-2", title="Over", state="Done")


def clean(project: Project, *arguments: str) -> dict[str, dict[str, Any]]:
    done = project.symphony("clean", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    conforms_to("clean", found)
    return {item["name"]: item for item in found["items"]}


def test_workspaces_of_issues_that_are_over_go_and_others_stay(project: Project) -> None:
    worked(project)
    assert doctor()["workspaces"]["message"] == "1 of 2 are of issues that are over: SYM-2"
    before = files(project.workspaces)
    found = clean(project, "--dry-run")
    assert (found["SYM-1"]["outcome"], found["SYM-1"]["reason"]) == ("kept", "its issue is not over (Todo)")
    assert (found["SYM-2"]["outcome"], found["SYM-2"]["reason"]) == (
        "would_remove",
        "its issue is closed (Done)",
    )
    assert set(files(project.workspaces)) == set(before)
    assert clean(project, "--older-than", "1h")["SYM-2"]["outcome"] == "kept"
    assert clean(project)["SYM-2"]["outcome"] == "removed"
    assert not (project.workspaces / "SYM-2").exists()
    assert (project.workspaces / "SYM-1").is_dir()
    assert "SYM-2" not in clean(project)


def test_work_that_is_nowhere_else_is_never_removed(project: Project) -> None:
    worked(project)
    (project.workspaces / "SYM-2" / "draft.txt").write_text("not committed")
    for arguments in (("--dry-run",), ()):
        item = clean(project, *arguments)["SYM-2"]
        assert item["outcome"] == "kept"
        assert item["reason"].startswith("1 uncommitted or untracked file(s); look at it: git -C ")
    assert (project.workspaces / "SYM-2" / "draft.txt").is_file()


def test_a_workspace_in_which_somebody_works_stays(project: Project) -> None:
    worked(project)
    with subprocess.Popen(["sleep", "60"], cwd=project.workspaces / "SYM-2") as process:
        assert clean(project)["SYM-2"]["reason"] == f"a process (pid {process.pid}) works in it"
        process.kill()
    assert clean(project, "--dry-run")["SYM-2"]["outcome"] == "would_remove"


def test_a_workspace_whose_issue_nobody_knows_stays(project: Project) -> None:
    worked(project)
    (project.repo / ".symphony" / "issues" / "SYM-2.md").unlink()
    assert "does not know its issue" in clean(project)["SYM-2"]["reason"]


@pytest.mark.slow
def test_logs_go_by_age_and_beside_a_daemon_only_they_do(project: Project) -> None:
    worked(project)
    state_dir = StateDirectory(project.state_dir)
    log = state_dir.stderr_log("old-1")
    log.write_text("words")
    month_ago = time.time() - 31 * 86_400
    os.utime(log, (month_ago, month_ago))
    assert clean(project, "--dry-run")["old-1.stderr.log"]["outcome"] == "would_remove"
    assert log.exists()
    wait = [{"wait_for": str(project.root / "release")}]
    project.issue("SYM-1", wait, title="First")
    with project.daemon() as daemon:
        daemon.wait_for("turn_started")
        log.write_text("words")
        os.utime(log, (month_ago, month_ago))
        found = clean(project)
        assert found["old-1.stderr.log"]["outcome"] == "removed"
        assert found["SYM-1"]["reason"].startswith(f"the daemon (pid {daemon.process.pid}) looks after")
        assert (project.workspaces / "SYM-1").is_dir()


@pytest.mark.slow
def test_people_see_what_would_go(project: Project) -> None:
    worked(project)
    done = project.symphony("clean", "--dry-run")
    assert "would remove  workspace SYM-2 (" in done.stdout
    assert "kept          workspace SYM-1 (" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 would be removed, ")
    done = project.symphony("clean")
    assert done.stdout.splitlines()[-1].startswith("1 removed, ")
    assert project.symphony("clean").stdout.splitlines()[-1] == "There is nothing to remove."


def test_ended_runs_of_the_journal_go_by_age_and_claims_stay(project: Project) -> None:
    project.state_dir.mkdir(mode=0o700)
    journal = project.state_dir / "journal.db"
    ended = replace(run(1), ended_wall_ms=NOW, outcome="succeeded")
    written(journal, ended, event(1), claim(2))
    found = clean(project, "--dry-run")
    assert (found["1 ended run"]["outcome"], found["1 ended run"]["kind"]) == ("would_remove", "runs")
    with open_reader(journal) as reader:
        assert len(reader.runs()) == 1
    assert clean(project)["1 ended run"]["outcome"] == "removed"
    with open_reader(journal) as reader:
        assert reader.runs() == ()
        assert len(reader.claims()) == 1
    assert clean(project)["journal.db"]["reason"] == "it is within `retention`"


def _remembering(project: Project) -> Path:
    """Its journal, with one run that has ended a moment ago and one a day ago."""
    project.state_dir.mkdir(mode=0o700)
    now = round(time.time() * 1000)
    runs = (replace(run(n), ended_wall_ms=now - n * 86_400_000, outcome="succeeded") for n in (0, 1))
    written(project.state_dir / "journal.db", *runs)
    return project.state_dir / "journal.db"


def _runs(journal: Path) -> int:
    with open_reader(journal) as reader:
        return len(reader.runs())


def test_who_drops_the_whole_history_has_to_say_so(project: Project) -> None:
    journal = _remembering(project)
    for age in ("0", "0d"):
        assert clean(project, "--dry-run", "--older-than", age)["2 ended runs"]["outcome"] == "would_remove"
    done = project.symphony("clean", "--older-than", "0")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 2)
    assert "--yes" in done.stderr
    assert _runs(journal) == 2
    assert clean(project, "--older-than", "12h")["1 ended run"]["outcome"] == "removed"
    assert clean(project, "--older-than", "0", "--yes")["1 ended run"]["outcome"] == "removed"
    assert _runs(journal) == 0
    assert clean(project, "--older-than", "0")["journal.db"]["outcome"] == "kept", (
        "nothing is left to ask about"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "code", "left"),
    [(b"\n", 1, 2), (b"y\n", 0, 0), (b"n\n", 1, 2), (b"\x03", 130, 2)],
)
def test_on_a_terminal_it_asks_first(project: Project, said: bytes, code: int, left: int) -> None:
    journal = _remembering(project)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*SYMPHONY, "clean", "--older-than", "0"],
        cwd=project.repo,
        env=project.env(),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one call, nothing else runs
    ) as asking:
        assert asking.stderr is not None
        told = b""
        while b"Go on?" not in told:
            more = os.read(asking.stderr.fileno(), 4_096)
            assert more, told
            told += more
        for _ in range(10):  # what is typed before the line editor has set up the terminal is lost
            os.write(ours, said)
            with suppress(subprocess.TimeoutExpired):
                asking.wait(5)
                break
        else:
            asking.kill()
        _, rest = asking.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert asking.returncode == code
    assert b"Traceback" not in told + rest
    assert _runs(journal) == left


def test_a_journal_that_is_damaged_is_told_and_left_alone(project: Project) -> None:
    project.state_dir.mkdir(mode=0o700)
    journal = project.state_dir / "journal.db"
    journal.write_bytes(b"no journal" * 100)
    found = doctor()["journal"]
    assert found["status"] == "warning"
    done = project.symphony("clean", "--json")
    assert done.returncode == 1
    (item,) = json.loads(done.stdout)["items"]
    assert (item["name"], item["outcome"]) == ("journal.db", "failed")
    assert journal.read_bytes() == b"no journal" * 100


@pytest.mark.slow
def test_a_journal_from_the_future_and_damaged_ones_aside_are_odd(project: Project) -> None:
    project.state_dir.mkdir(mode=0o700)
    journal = project.state_dir / "journal.db"
    written(journal, event(1))
    assert doctor()["journal"]["status"] == "ok"
    written(journal, structs.replace(event(1), at_wall_ms=round(time.time() * 1000) + 86_400_000))
    assert doctor()["journal"]["message"] == "its newest record is in the future"
    journal.unlink()
    written(journal, event(1))
    (project.state_dir / "journal.db.damaged-20260101T000000Z").write_text("x")
    assert doctor()["journal"]["message"].startswith("1 damaged before and set aside")


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1y", "1.5d"])
@pytest.mark.usefixtures("project")
def test_an_age_needs_a_number_and_a_unit(age: str) -> None:
    done = CliRunner().invoke(main, ["clean", "--older-than", age])
    assert done.exit_code == 2
    assert "must be a number with a unit" in done.stderr


def test_a_workflow_that_is_invalid_stops_it(project: Project) -> None:
    project.write("WORKFLOW.md", "---\n[\n---\n")
    with pytest.raises(SymphonyError):
        CliRunner().invoke(main, ["clean"], standalone_mode=False, catch_exceptions=False)


def test_a_daemon_that_starts_at_this_moment_is_not_disturbed(project: Project) -> None:
    state_dir = StateDirectory(project.state_dir)
    state_dir.create()
    program = (
        "import fcntl, os, sys, time; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT);"
        "fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", program, str(project.state_dir / "lock")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(SymphonyError) as caught:
            CliRunner().invoke(main, ["clean"], standalone_mode=False, catch_exceptions=False)
        holder.kill()
    assert caught.value.failure.category.value == "instance_locked"
