"""As a service: what the manager hears, what a refused start costs, and the unit that would be installed."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.project import Project, marked_processes
from harness.service_manager import Manager, managing

WAIT = [{"write": "a", "text": "a"}, {"commit": "A"}, {"wait_for": "never"}]


@pytest.fixture
def manager(project: Project, place: Path) -> Iterator[Manager]:
    with managing(place / "notify") as listening:
        project.environment |= {"NOTIFY_SOCKET": listening.address, "WATCHDOG_USEC": "2000000"}
        yield listening


def test_the_manager_hears_when_it_is_ready_that_it_decides_and_when_it_ends(
    project: Project, manager: Manager
) -> None:
    project.workflow(agent={"drain_timeout_ms": 500})
    project.issue("SYM-1", WAIT)
    with project.daemon() as daemon:
        manager.until_said("READY")
        run = daemon.wait_for("run_started", issue_identifier="SYM-1")["run_id"]
        manager.until(lambda said: said.get("STATUS") == "1 running, 0 retrying, 0 blocked")
        manager.until_said("WATCHDOG")
        daemon.signal(signal.SIGTERM)
        manager.until_said("STOPPING")
        assert daemon.end() == 0
    assert marked_processes([run]) == []


def test_a_start_that_is_refused_is_one_line_with_a_hint_and_the_exit_code_that_is_documented(
    project: Project, manager: Manager
) -> None:
    project.workflow()
    with project.daemon() as daemon:
        manager.until_said("READY")
        daemon.wait_for("serving")
        second = project.symphony("run")
    missing = project.environment | {"GITHUB_TOKEN_FILE": str(project.root / "gone")}
    project.environment = missing
    no_secret = project.symphony("run")
    project.environment.pop("GITHUB_TOKEN_FILE")
    states = {"active_states": ["open"], "terminal_states": ["closed"]}
    project.workflow(tracker={"kind": "github", "provider": {"repo": "acme/widgets"}, **states})
    no_credential = project.symphony("run")
    for done, code in ((second, 1), (no_secret, 3), (no_credential, 4)):
        assert done.returncode == code, done.stderr
        error, hint, *_ = done.stderr.splitlines()
        assert (error[:7], hint[:6]) == ("error: ", "hint: ")
    assert len(manager.all("READY")) == 1, "a start that is refused was never ready"


def test_what_would_be_installed_can_be_read_first(project: Project) -> None:
    project.workflow()
    done = project.symphony("service", "install", "--name", "app")
    assert done.returncode == 0, done.stderr
    for line in (
        "Type=notify",
        "WatchdogSec=60",
        "KillMode=mixed",
        "RestartPreventExitStatus=2 3 4 200 217 243",
    ):
        assert f"\n{line}\n" in done.stdout
    assert f'"{project.repo}/WORKFLOW.md"' in done.stdout
    assert "\nsystemctl enable symphony@app.service\n" in done.stdout
