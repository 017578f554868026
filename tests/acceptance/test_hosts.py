"""`symphony hosts`: what the daemon says of them, what they say of themselves, and their preparation."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import DONE
from harness.project import Project, scripted
from harness.scraping import scrape
from harness.shell import word
from harness.ssh import SshServer, dead_server, ssh_server
from symphony import __version__

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "build-1") as made:
        yield made


def workflow(project: Project, *hosts: str, **ssh: Any) -> None:
    worker = {"ssh_hosts": list(hosts), "max_concurrent_agents_per_host": 2, "ssh": ssh}
    project.workflow(command=scripted(), worker=worker)


def test_hosts_tell_of_themselves_and_each_that_cannot_be_used_has_a_hint(
    project: Project, server: SshServer, tmp_path: Path
) -> None:
    clock = tmp_path / "bin" / "date"
    clock.parent.mkdir()
    clock.write_text("#!/bin/sh\necho 1000000000\n")
    clock.chmod(0o755)
    late = f'export HOME={word(tmp_path)} PATH={word(clock.parent)}:$PATH; cd; eval "$SSH_ORIGINAL_COMMAND"'
    with (
        dead_server(tmp_path / "gone", server) as gone,
        ssh_server(tmp_path / "late", like=server, config={"ForceCommand": late}) as wrong,
    ):
        names = (gone.name, wrong.name, server.name)
        workflow(project, *names, **server.section(sys.executable))
        done = project.symphony("hosts", "check", "--json")
        assert done.returncode == 1
        found = {host["name"]: host for host in json.loads(done.stdout)["hosts"]}
        checks = json.loads(project.symphony("doctor", "--json").stdout)["checks"]
    assert [found[name]["ok"] for name in names] == [False, False, True]
    assert "cannot be reached" in found[gone.name]["problem"]
    assert "clock" in found[wrong.name]["problem"]
    assert all(found[name]["hint"] for name in names[:2])
    usable = found[server.name]
    assert usable["problem"] is None
    assert __version__ in usable["version"]
    assert usable["root"] == str(server.root)
    assert usable["clock_skew_s"] == 0
    shown = project.symphony("hosts", "check", server.name)
    assert shown.returncode == 0
    assert shown.stdout.startswith(f"{server.name} {__version__}")
    severities = [check["status"] for check in checks if check["name"] == "hosts"]
    assert severities == ["warning", "warning", "ok"], "one is left"
    named = project.symphony("hosts", "check", "nobody")
    assert named.returncode == 3


def test_a_prepared_host_carries_out_runs(project: Project, server: SshServer) -> None:
    """Without a package index: what is installed here is copied, in place of what was there."""
    section = server.section(sys.executable)
    workflow(project, server.name, **section)
    assert project.symphony("hosts", "prepare", server.name).returncode == 3, "it has another installation"
    del section["python"]
    workflow(project, server.name, **section)
    earlier = server.root / "venv" / "earlier"
    earlier.mkdir(parents=True)
    before = project.symphony("hosts", "check")
    assert before.returncode == 1
    assert "not installed there" in before.stdout
    assert "symphony hosts prepare" in before.stdout
    done = project.symphony("hosts", "prepare", server.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert __version__ in done.stdout
    assert not earlier.exists()
    project.issue("SYM-1", [{"write": "new.txt", "text": "a\n"}, {"commit": "One"}, DONE])
    run = project.symphony("run", "--once", timeout_s=240)
    assert run.returncode == 0, run.stderr
    assert project.branch_log("SYM-1") == ["One"]
    shown = project.symphony("diff", "SYM-1")
    assert "+++ b/new.txt" in shown.stdout, "without a workspace here"


def test_the_hosts_of_a_daemon_are_listed(project: Project, server: SshServer) -> None:
    workflow(project, server.name, **server.section(sys.executable))
    resting = json.loads(project.symphony("hosts", "--json").stdout)
    assert resting == {
        "source": "files",
        "hosts": [
            {
                "name": server.name,
                "used": 0,
                "limit": 2,
                "failures": 0,
                "rests_until": None,
                "failure": None,
                "machines": {},
            }
        ],
    }
    project.issue("SYM-1", [{"sleep_ms": 600_000}])
    with project.daemon() as daemon:
        daemon.wait_for("turn_started", issue_identifier="SYM-1")
        assert project.symphony("hosts").stdout.strip() == f"{server.name} 1 of 2"
        (run,) = json.loads(project.symphony("status", "--json").stdout)["running"]
        assert run["worker_host"] == server.name
        assert server.name in project.symphony("status").stdout
        labels = {"host": server.name}
        measured = scrape(project)
        assert measured.value("symphony_host_runs", **labels) == 1
        assert measured.value("symphony_host_slots", **labels) == 2
        assert measured.value("symphony_host_failures", **labels) == 0
        shown = project.symphony("explain", "SYM-1", "--json")
        assert json.loads(shown.stdout)["workspace"]["host"] == server.name


def test_without_hosts_it_says_so(project: Project) -> None:
    project.workflow()
    assert "All sessions run on this machine" in project.symphony("hosts").stdout
    assert "All sessions run on this machine" in project.symphony("hosts", "check").stdout
