"""Runs on the machines of `worker.ssh_hosts`, over real OpenSSH servers."""

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from harness.hostile_worker import hostile_python
from harness.hosts import DONE, host_unavailable
from harness.project import Project, scripted, until
from harness.real import require_program
from harness.serving import move, serving
from harness.shell import word
from harness.ssh import SshServer, dead_server, processes, ssh_server, workers
from symphony.api.documents import waiting_issues
from symphony.domain import Category
from symphony.scheduler import CleanWorkspace, OutcomeKind, RunEnded, SettingsChanged, StartRun

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

LFS_CONFIG = """\
[filter "lfs"]
    clean = git-lfs clean -- %f
    smudge = git-lfs smudge -- %f
    process = git-lfs filter-process
    required = true
"""
PACKS = "*/repository.git/objects/pack/*.pack"


def remote(project: Project, *servers: SshServer, **changes: Any) -> None:
    """A workflow whose runs go to these servers. The workspaces of issues that are done stay there."""
    worker = {
        "ssh_hosts": [server.name for server in servers],
        "ssh": servers[0].section(sys.executable),
        **changes.pop("worker", {}),
    }
    tracker = {"terminal_states": ["Closed"], **changes.pop("tracker", {})}
    project.workflow(command=scripted(), worker=worker, tracker=tracker, **changes)


@pytest.mark.conformance("X-2")
async def test_a_run_on_a_host_delivers_its_branch_here_and_no_command_line_has_a_secret(
    project: Project, server: SshServer
) -> None:
    build, tracker = token_hex(16), token_hex(16)
    project.environment.update({"BUILD_TOKEN": build, "TRACKER_TOKEN": tracker})
    remote(
        project,
        server,
        worker={"env": ["BUILD_TOKEN", "ABSENT", "TRACKER_TOKEN"]},
        tracker={"provider": {"token": "$TRACKER_TOKEN"}},
        hooks={"before_run": "env > ../env; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' > ../cmdlines"},
    )
    project.issue("SYM-1", [{"write": "new.txt", "text": "a\n"}, {"commit": "One"}, DONE])
    with capture_logs() as logs:
        async with serving(project) as served:
            ended = await served.watcher.until_seen(RunEnded)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED, "\n".join(map(str, [ended.outcome.failure, *logs]))
    assert ended.outcome.delivered is not None
    assert ended.outcome.delivered.work.commits == 1
    assert project.branch_log("SYM-1") == ["One"]
    assert project.written_state("SYM-1") == "Done", "the tool ran in the daemon"
    assert not list(project.workspaces.glob("SYM-*")), "the workspace is on the host"
    assert list(server.root.glob("*/workspaces/SYM-1"))
    (written,) = server.root.glob("*/workspaces/env")
    assert f"BUILD_TOKEN={build}" in written.read_text()
    assert tracker not in written.read_text()
    shown = written.with_name("cmdlines").read_text(errors="replace")
    assert "worker --stdio" in shown, "the positive control"
    assert build not in shown
    assert tracker not in shown


async def test_work_is_verified_on_the_host_where_its_workspace_is(
    project: Project, server: SshServer
) -> None:
    threads = scripted("--threads", str(server.root / "threads"))
    check = {"name": "tests", "run": "pwd >> ../verified-in; ! grep -s bad new.txt"}
    remote(project, server, verify={"commands": [check]}, codex={"command": threads})
    bad, good = ({"write": "new.txt", "text": text} for text in ("bad\n", "good\n"))
    project.issue("SYM-1", [bad, {"commit": "One"}, DONE], [good, {"commit": "Two"}, DONE])
    async with serving(project) as served:
        first = await served.watcher.until_seen(RunEnded)
        second = await served.watcher.until_seen(RunEnded, count=2)
    assert first.outcome.verification is not None
    assert second.outcome.verification is not None
    assert (first.outcome.verification.passed, second.outcome.verification.passed) == (False, True)
    assert first.outcome.verification.checks[0].output_tail == "bad\n"
    (written,) = server.root.glob("*/workspaces/verified-in")
    (workspace,) = server.root.glob("*/workspaces/SYM-1")
    assert set(written.read_text().splitlines()) == {str(workspace)}, (
        "the base, where it passed, is elsewhere"
    )
    assert project.branch_log("SYM-1") == ["Two", "One"]
    assert project.written_state("SYM-1") == "Done"


async def run_once(project: Project, server: SshServer, name: str) -> None:
    """One run of the issue on the server, which commits once."""
    remote(project, server)
    project.issue("SYM-1", [{"write": f"{name}.txt", "text": "a\n"}, {"commit": name}, DONE])
    async with serving(project) as served:
        ended = await served.watcher.until_seen(RunEnded)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended


@pytest.mark.conformance("X-2")
async def test_work_goes_on_where_it_was_and_elsewhere_and_back(
    project: Project, server: SshServer, tmp_path: Path
) -> None:
    """Twice on one host, then on another one, and again on the first, whose workspace is old then."""
    with ssh_server(tmp_path / "build-2", like=server) as other:
        await run_once(project, server, "One")
        await run_once(project, server, "Two")
        (made,) = server.root.glob("*/workspaces/SYM-1")
        (made / ".git" / "made-first").touch()
        await run_once(project, other, "Three")
        assert project.branch_log("SYM-1") == ["Three", "Two", "One"]
        await run_once(project, server, "Four")
        assert made.is_dir()
        assert not (made / ".git" / "made-first").exists()
    assert project.branch_log("SYM-1") == ["Four", "Three", "Two", "One"]


async def test_a_workspace_on_a_host_is_found_under_a_new_identifier(
    project: Project, server: SshServer
) -> None:
    for identifier, name in (("PERF-1", "One"), ("OPS-9", "Two")):
        script = json.dumps([[{"write": f"{name}.txt", "text": "a\n"}, {"commit": name}]])
        issue = {"id": "7", "identifier": identifier, "title": "T", "state": "Todo", "dispatchable": True}
        issue["description"] = f"```scripted\n{script}\n```"
        tracker = {"kind": "memory", "provider": {"issues": [issue]}}
        remote(project, server, tracker=tracker, agent={"max_turns": 1})
        async with serving(project) as served:
            ended = await served.watcher.until_seen(RunEnded)
        assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended
    assert [path.name for path in server.root.glob("*/workspaces/*-[0-9]")] == ["PERF-1"]
    assert project.branch_log("PERF-1") == ["Two", "One"]


async def test_work_goes_on_on_another_host_under_a_new_identifier(
    project: Project, server: SshServer, tmp_path: Path
) -> None:
    with ssh_server(tmp_path / "build-2", like=server) as other:
        for identifier, name, host in (("PERF-1", "One", server), ("OPS-9", "Two", other)):
            script = json.dumps([[{"write": f"{name}.txt", "text": "a\n"}, {"commit": name}]])
            issue = {"id": "7", "identifier": identifier, "title": "T", "state": "Todo", "dispatchable": True}
            issue["description"] = f"```scripted\n{script}\n```"
            tracker = {"kind": "memory", "provider": {"issues": [issue]}}
            remote(project, host, tracker=tracker, agent={"max_turns": 1})
            async with serving(project) as served:
                ended = await served.watcher.until_seen(RunEnded)
            assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended
    assert project.branch_log("OPS-9") == ["Two", "One"]
    assert project.branch_log("PERF-1") == ["One"]


@pytest.mark.conformance("X-2")
async def test_a_second_workspace_on_a_host_sends_only_what_is_new(project: Project, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    home = tmp_path / "build-1" / "home"
    note = f'echo "$SSH_ORIGINAL_COMMAND" >> {word(asked)}'
    command = f'{note}; export HOME={word(home)}; cd; eval "$SSH_ORIGINAL_COMMAND"'
    await anyio.Path(project.repo, "large.bin").write_bytes(random.Random(1).randbytes(1_000_000))  # noqa: S311
    project.commit("A large file")
    with ssh_server(tmp_path / "build-1", config={"ForceCommand": command}) as server:
        remote(project, server)
        async with serving(project) as served:

            async def run(number: int) -> tuple[list[str], int]:
                """The words that say what the host was asked for, and the bytes of packs that it received."""
                before = len(asked.read_text()) if asked.exists() else 0
                packs = set(server.root.glob(PACKS))
                name = f"SYM-{number}"
                project.issue(name, [{"write": f"{name}.txt", "text": "a\n"}, {"commit": name}, DONE])
                ended = await served.watcher.until_seen(RunEnded, number)
                assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended
                assert project.branch_log(name) == [name]
                words = re.findall(r"sh -s|git-\w+-pack", asked.read_text()[before:])
                received = sum(path.stat().st_size for path in set(server.root.glob(PACKS)) - packs)
                return sorted(words), received

            words, received = await run(1)
            assert words == ["git-receive-pack", "git-upload-pack", "sh -s", "sh -s"]
            assert received > 1_000_000
            words, received = await run(2)
            assert words == ["git-upload-pack", "sh -s"], "nothing is sent, and where things are is known"
            assert received < 10_000
            project.write("README.md", "# Changed\n")
            project.commit("A small change")
            words, received = await run(3)
            assert words == ["git-receive-pack", "git-upload-pack", "sh -s"]
            assert received < 10_000
            assert asked.read_text().count("--stdio") == 3, "one worker for each run"
            gone = partial(until, lambda: not workers(server) or None, lambda: "a worker is left")
            await to_thread.run_sync(gone)


@pytest.mark.conformance("X-2")
async def test_objects_of_git_lfs_go_to_a_host_and_come_back(project: Project, server: SshServer) -> None:
    require_program("git-lfs", "Debian: git-lfs")
    await anyio.Path(server.home, ".gitconfig").write_text(LFS_CONFIG)
    project.git("lfs", "install", "--local")
    project.git("lfs", "track", "*.bin")
    await anyio.Path(project.repo, "old.bin").write_bytes(b"old")
    project.commit("A large file")
    remote(project, server)
    project.issue("SYM-1", [{"run": "cat old.bin old.bin > new.bin"}, {"commit": "More"}, DONE])
    with capture_logs() as logs:
        async with serving(project) as served:
            ended = await served.watcher.until_seen(RunEnded)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED, "\n".join(map(str, [ended.outcome.failure, *logs]))
    assert not [log for log in logs if "LFS" in log.get("reason", "")]
    assert project.git("show", "symphony/SYM-1:new.bin").startswith("version https://git-lfs")
    there = {path.read_bytes() for path in server.root.glob("*/repository.git/lfs/objects/*/*/*")}
    here = {path.read_bytes() for path in project.repo.glob(".git/lfs/objects/*/*/*")}
    assert there == here == {b"old", b"oldold"}


@pytest.mark.conformance("X-2")
async def test_two_runs_at_once_share_a_host_and_leave_nothing_there(
    project: Project, server: SshServer
) -> None:
    remote(project, server, tracker={"terminal_states": ["Done", "Closed"]})
    both = project.root / "both"
    for name in ("SYM-1", "SYM-2"):
        project.issue(name, [{"write": name, "text": "a\n"}, {"commit": name}, {"wait_for": str(both)}, DONE])
    with capture_logs() as logs:
        async with serving(project) as served:
            watcher = served.watcher
            await watcher.until(lambda: sum(run.report.pid is not None for run in watcher.running) == 2)
            both.touch()
            await watcher.until_seen(RunEnded, 2)
            await watcher.until_seen(CleanWorkspace, 2)
            await to_thread.run_sync(
                until,
                lambda: sum(log["event"] == "workspace_removed" for log in logs) == 2 or None,
                lambda: f"they were not removed: {logs}",
            )
    assert watcher.outcomes == ["succeeded"] * 2, watcher.all(RunEnded)
    for name in ("SYM-1", "SYM-2"):
        assert project.branch_log(name) == [name]
    assert not list(server.root.glob("*/state/logs/*")), "an empty log is not kept"
    assert not list(server.root.glob("*/state/runs/*.json"))
    assert not list(server.root.glob("*/workspaces/SYM-*"))


@pytest.mark.conformance("X-2")
async def test_clean_removes_workspaces_of_ended_issues_on_hosts_without_a_daemon(
    project: Project, server: SshServer, tmp_path: Path
) -> None:
    remote(project, server)
    project.issue("SYM-1", [{"write": "new.txt", "text": "a\n"}, {"commit": "One"}, DONE])
    project.issue("SYM-2", [{"write": "left.txt", "text": "a\n"}, DONE])
    project.issue("SYM-3", [DONE])
    async with serving(project) as served:
        await served.watcher.until_seen(RunEnded, 3)
    for number in (1, 2):
        project.issue(f"SYM-{number}", state="Closed")

    async def clean(*arguments: str) -> dict[str, dict[str, Any]]:
        done = await to_thread.run_sync(project.symphony, "clean", "--json", *arguments)
        assert done.returncode == 1, "a host could not be looked at"
        return {item["name"]: item for item in json.loads(done.stdout)["items"]}

    with dead_server(tmp_path / "build-2", server) as dead:
        remote(project, server, worker={"ssh_hosts": [server.name, dead.name]})
        found = await clean("--dry-run")
        assert {name: found[name]["outcome"] for name in ("SYM-1", "SYM-2", "SYM-3", dead.name)} == {
            "SYM-1": "would_remove",
            "SYM-2": "kept",
            "SYM-3": "kept",
            dead.name: "failed",
        }
        assert found["SYM-1"]["host"] == server.name
        assert found["SYM-1"]["size"] > 0
        assert "left.txt" not in found["SYM-2"]["reason"]
        assert "1 uncommitted" in found["SYM-2"]["reason"]
        assert found[dead.name]["kind"] == "host"
        assert len(list(server.root.glob("*/workspaces/SYM-*"))) == 3, "a dry run removes nothing"
        assert (await clean("--older-than", "1h", "--yes"))["SYM-1"]["outcome"] == "kept"
        assert (await clean())["SYM-1"]["outcome"] == "removed"
        assert {path.name for path in server.root.glob("*/workspaces/SYM-*")} == {"SYM-2", "SYM-3"}


async def test_a_host_gets_no_more_runs_than_it_may_and_is_left_with_the_last_one_after_a_reload(
    project: Project, server: SshServer
) -> None:
    remote(project, server, worker={"max_concurrent_agents_per_host": 1})
    first = project.issue("SYM-1", [{"sleep_ms": 600_000}])
    project.issue("SYM-2", [{"sleep_ms": 600_000}])
    master = partial(processes, "ssh", str(server.port), "ControlMaster=yes")
    async with serving(project) as served:
        await served.watcher.until(lambda: any(run.report.pid for run in served.watcher.running))
        assert len(served.watcher.running) == 1
        state = served.watcher.states[-1]
        waiting = {reason.code: reason.message for _, reason in waiting_issues(state)}
        project.workflow(command=scripted())
        await served.watcher.until_seen(SettingsChanged)
        assert await to_thread.run_sync(master), "the run goes on"
        clients = await to_thread.run_sync(processes, "ssh", str(server.port), "--stdio")
        assert [client.name() for client in clients] == ["ssh"], "nothing watches over it: it needs 5 MB"
        await move(first, "Backlog")
        await served.watcher.until_seen(RunEnded)
        gone = partial(until, lambda: None if master() else True, lambda: "the connection is still there")
        await to_thread.run_sync(gone)
    assert waiting == {"no_host_slot": f"no host has a free slot: 1 of 1 on {server.name}"}


async def test_a_dead_host_costs_one_attempt_and_the_issue_runs_elsewhere(
    project: Project, server: SshServer, tmp_path: Path
) -> None:
    project.issue("SYM-1", [{"write": "new.txt", "text": "a\n"}, {"commit": "One"}, DONE])
    with dead_server(tmp_path / "build-2", server) as dead:
        remote(project, server, worker={"ssh_hosts": [dead.name, server.name]})
        async with serving(project) as served:
            await served.watcher.until_seen(RunEnded, 2)
    first, second = served.watcher.all(RunEnded)
    host_unavailable(first.outcome)
    assert second.outcome.kind is OutcomeKind.SUCCEEDED, second
    assert [start.host for start in served.watcher.all(StartRun)] == [dead.name, server.name]
    assert project.branch_log("SYM-1") == ["One"]


BAD_HOSTS: dict[str, tuple[dict[str, str], str]] = {
    "password": ({"AuthorizedKeysFile": "/nonexistent"}, "refuses the login"),
    "profile": ({"ForceCommand": "echo Welcome; eval $SSH_ORIGINAL_COMMAND"}, "prints text"),
    "no git": ({"ForceCommand": "PATH={bin}; eval $SSH_ORIGINAL_COMMAND"}, "has no git"),
    "not a shell": ({"ForceCommand": "exit 3"}, "cannot be used"),
    "full disk": ({"ForceCommand": "echo 'mkdir: No space left on device' >&2; exit 93"}, "No space left"),
}


@pytest.mark.parametrize("case", BAD_HOSTS)
async def test_a_host_that_cannot_be_used_is_one_line_with_a_hint(
    case: str, project: Project, tmp_path: Path
) -> None:
    config, reason = BAD_HOSTS[case]
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "mkdir", "date"):
        (programs / name).symlink_to(shutil.which(name) or "")
    if command := config.get("ForceCommand"):
        command = f"export HOME={word(tmp_path)}; cd; {command.replace('{bin}', word(programs))}"
        config = {"ForceCommand": command}
    with ssh_server(tmp_path / "bad", config=config) as bad:
        remote(project, bad)
        project.issue("SYM-1", [DONE])
        async with serving(project) as served:
            ended = await served.watcher.until_seen(RunEnded)
    assert reason in host_unavailable(ended.outcome).message
    assert project.written_state("SYM-1") == "Todo", "nothing was begun"


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system of its own at `place`."""
    mount = require_program("mount", "Debian: mount")
    command = [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(command, check=False).returncode != 0:
        pytest.skip("no mount namespace to make a small disk in")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.conformance("X-2")
async def test_full_disks_cost_attempts_and_the_issue_runs_elsewhere(
    project: Project, server: SshServer, tmp_path: Path
) -> None:
    """One host has no room for the repository, and the next one has none for its mirror and the workspace."""
    data = random.Random(1).randbytes(3_000_000)  # noqa: S311 - test data
    await anyio.Path(project.repo, "large.bin").write_bytes(data)
    project.commit("A large file")
    with ExitStack() as stack:
        full = []
        for size in ("2m", "5m"):
            full.append(stack.enter_context(ssh_server(tmp_path / f"full-{size}", like=server)))
            stack.enter_context(small_disk(full[-1].home, size))
        remote(project, server, worker={"ssh_hosts": [*(one.name for one in full), server.name]})
        project.issue("SYM-1", [{"write": "new.txt", "text": "a\n"}, {"commit": "One"}, DONE])
        async with serving(project) as served:
            ends = [await served.watcher.until_seen(RunEnded, number) for number in (1, 2, 3)]
    for ended in ends[:2]:
        assert "space" in (host_unavailable(ended.outcome).hint or "")
    assert ends[2].outcome.kind is OutcomeKind.SUCCEEDED, ends[2]
    assert [start.host for start in served.watcher.all(StartRun)] == [
        *(one.name for one in full),
        server.name,
    ]
    assert project.branch_log("SYM-1") == ["One"]


@pytest.mark.conformance("X-2")
async def test_a_changed_key_of_a_host_is_not_accepted(
    project: Project, server: SshServer, tmp_path: Path
) -> None:
    with ssh_server(tmp_path / "build-2") as other:
        key = (other.folder / "host.pub").read_text()
        server.known.write_text(f"[{server.address}]:{server.port} {key}")
        remote(project, server)
        project.issue("SYM-1", [DONE])
        async with serving(project) as served:
            ended = await served.watcher.until_seen(RunEnded)
    failure = host_unavailable(ended.outcome)
    assert "its key is not the known one" in failure.message
    assert "ssh-keygen -R" in (failure.hint or "")


async def test_hooks_may_populate_workspaces_on_a_host(project: Project, server: SshServer) -> None:
    path = project.workflow(
        command=scripted(),
        worker={"ssh_hosts": [server.name], "ssh": server.section(sys.executable)},
        hooks={"after_create": "echo made > made.txt"},
    )
    await anyio.Path(path).write_text(path.read_text().replace('"repo": "."', '"repo": null'))
    project.issue("SYM-1", [{"write": "new.txt", "text": "a\n"}, DONE])
    async with serving(project) as served:
        ended = await served.watcher.until_seen(RunEnded)
    assert ended.outcome.kind is OutcomeKind.SUCCEEDED, ended
    (workspace,) = server.root.glob("*/workspaces/SYM-1")
    assert {each.name for each in workspace.iterdir()} >= {"made.txt", "new.txt"}
    assert not list(server.root.glob("*/repository.git"))


# --- a host that lies ---

LIES_OF_A_DELIVERY = """
branch = f"symphony/{command.issue.identifier}"
tree = git("--git-dir", repository, "rev-parse", "HEAD^{tree}")
parent = git("--git-dir", repository, "rev-parse", "HEAD")
made = git("-c", "user.name=h", "-c", "user.email=h@h", "--git-dir", repository,
           "commit-tree", tree, "-p", parent, "-m", "Hostile")
git("--git-dir", repository, "update-ref", f"refs/heads/{branch}", made)
facts = RunFacts(branch="alice/feature", workspace_path="/etc", turn_count=5)
report = RunReport(stage=RunStage.STREAMING_TURN, facts=facts)
send(Report(report=report))
forged = {"issue_id": "9", "issue_identifier": "SYM-9", "text": "SECRET"}
send(Logged(level="info", event="work_ready", fields=forged))
delivered = DeliveredBranch(branch="alice/feature", head=made, work=WorkSize(commits=9), pushed=True)
outcome = Outcome(kind=OutcomeKind.SUCCEEDED, progress=True, delivered=delivered, commented=True)
send(RunOutcome(outcome=outcome))
"""
REPORTS = "send(Report(report=RunReport(stage=RunStage.STREAMING_TURN, facts=RunFacts({}))))"


def lying(project: Project, server: SshServer, script: str, **changes: Any) -> None:
    """A workflow with one host, whose worker says what the script says."""
    python = hostile_python(server.folder / "hostile", script)
    worker = {"ssh": server.section(python), **changes.pop("worker", {})}
    remote(project, server, worker=worker, **changes)


async def test_a_host_does_not_say_which_branch_it_delivered_and_in_which_issues_name_it_speaks(
    project: Project, server: SshServer
) -> None:
    secret = token_hex(16)
    project.environment["PLAIN"] = secret
    lying(project, server, LIES_OF_A_DELIVERY.replace("SECRET", secret), worker={"env": ["PLAIN"]})
    project.issue("SYM-1", [DONE])
    with capture_logs() as logs:
        async with serving(project) as served:
            ended = await served.watcher.until_seen(RunEnded)
    delivered = ended.outcome.delivered
    assert delivered is not None, ended.outcome.failure
    assert (delivered.branch, delivered.work.commits) == ("symphony/SYM-1", 1)
    assert not ended.outcome.commented
    assert project.branch_log("SYM-1") == ["Hostile"], "its own branch is its work"
    (told,) = [log for log in logs if log["event"] == "work_ready" and log.get("reported_by")]
    assert (told["issue_identifier"], told["host"]) == ("SYM-1", server.name)
    assert secret not in str(told)


@pytest.mark.parametrize(
    "lie",
    [
        "tokens=Tokens(total_tokens=-1)",
        "tokens=Tokens(total_tokens=2**53)",
        "turn_count=2**63",
        "cost_usd=float('nan')",
    ],
)
async def test_a_number_that_cannot_be_costs_the_run_and_nothing_else(
    lie: str, project: Project, server: SshServer
) -> None:
    lying(
        project,
        server,
        "\n".join((REPORTS.format("tokens=Tokens(total_tokens=40)"), REPORTS.format(lie), "take()")),
    )
    project.issue("SYM-1", [DONE])
    async with serving(project) as served:
        ended = await served.watcher.until_seen(RunEnded)
        state = served.service.state
    assert state is not None
    assert state.day_tokens == 40
    assert ended.outcome.failure is not None
    assert ended.outcome.failure.category is Category.WORKER_LOST
