"""The service for real, in a Debian with systemd as its first process: installed, started, hurt and stopped.

One boot of about a minute; what happened inside is told by `harness/boot_inside.py` and judged here.
"""

from pathlib import Path
from typing import Any

import pytest

from harness.boot import boot
from harness.real import require_boot

pytestmark = pytest.mark.slow

SECRET = "correct-horse-battery"


@pytest.mark.timeout(400)
def test_a_service_lives_through_all_that_happens_to_it(tmp_path: Path) -> None:
    require_boot()
    seen = boot(tmp_path, timeout_s=360)
    assert "failed" not in seen, seen["failed"]
    assert "units_left" in seen, seen["console"]
    _is_installed_and_ready(seen)
    _is_shut_off(seen)
    _keeps_its_secrets(seen)
    _reloads_and_stays_alone(seen)
    _comes_back(seen)
    _stops_within_its_time_and_leaves_nothing(seen)
    _does_not_spin(seen)
    _serves_a_person(seen)
    assert (seen["units_left"], seen["secret_left"]) == ([], True)


def _is_installed_and_ready(seen: dict[str, Any]) -> None:
    assert seen["started"]["ActiveState"] == "active"
    assert seen["started"]["StatusText"] == "0 running, 0 retrying, 0 blocked"
    assert (seen["status"]["active"], seen["status"]["workflow"]) == ("active", "/srv/app/WORKFLOW.md")
    assert seen["first_branch"] == ["SYM-1"], "the issue was done by an agent that could make a sandbox"
    variables = seen["seen_by_agent"].splitlines()
    assert "HOME=/var/lib/symphony/app/home" in variables
    foreign = ("NOTIFY_", "WATCHDOG_", "LISTEN_", "CREDENTIALS_", "DEMO_TOKEN")
    assert not [line for line in variables if line.startswith(foreign)]
    assert any("/symphony@app.service/symphony-" in line for line in variables), (
        "its run has a group of its own"
    )


def _is_shut_off(seen: dict[str, Any]) -> None:
    """What an agent without a sandbox of its own met: it is the unit that held."""
    told = seen["tried_by_agent"].splitlines()
    assert len([line for line in told if "Permission denied" in line]) == 2, told
    assert len([line for line in told if "/proc/1" in line and "No such file" in line]) == 1, told
    assert len([line for line in told if "Read-only file system" in line]) == 3, told
    assert len(told) == 6, told


def _keeps_its_secrets(seen: dict[str, Any]) -> None:
    assert seen["credential"] == SECRET
    assert seen["credential_modes"] == ["0o500", "0o400"]
    assert seen["stranger_reads"] != 0
    assert seen["service_reads_source"] != 0
    assert seen["secret_elsewhere"] is False


def _reloads_and_stays_alone(seen: dict[str, Any]) -> None:
    assert seen["reload"] == 0
    assert seen["after_reload"]["MainPID"] == seen["started"]["MainPID"]
    code, told = seen["second"]
    error, hint = told.splitlines()
    assert code == 1
    assert error.startswith("error: another symphony (pid ")
    assert hint.startswith("hint: ")


def _comes_back(seen: dict[str, Any]) -> None:
    assert 2 in seen["groups"], "agent and grandchild were in the group of their run"
    assert (seen["after_kill"]["ActiveState"], seen["after_kill"]["NRestarts"]) == ("active", "1")
    assert seen["sleepers_after_kill"] <= 1, "that of the killed daemon is gone; the next run may have begun"
    assert seen["second_branch"] == ["SYM-2"], "nothing was lost, and nothing was done twice"
    assert (seen["after_hang"]["ActiveState"], seen["after_hang"]["NRestarts"]) == ("active", "1")
    assert seen["hung_where"] is True


def _stops_within_its_time_and_leaves_nothing(seen: dict[str, Any]) -> None:
    assert (seen["draining"]["ActiveState"], seen["draining"]["SubState"]) == ("deactivating", "stop-sigterm")
    assert seen["draining"]["StatusText"].endswith("; draining")
    stopped = seen["stopped"]
    assert (stopped["ActiveState"], stopped["Result"], stopped["ExecMainStatus"]) == (
        "inactive",
        "success",
        "0",
    )
    assert len(seen["cut_off"]) == 1, "at the limit of the drain, which is longer than TimeoutStopSec= there"
    assert seen["states"] == ["Done", "Todo"], "one turn came to its end, the other was cut off at the limit"
    assert seen["left"] == []


def _does_not_spin(seen: dict[str, Any]) -> None:
    state, journal = seen["no_token"]
    assert (state["ActiveState"], state["NRestarts"], state["ExecMainStatus"]) == ("failed", "0", "4")
    assert [line.split(":")[0] for line in journal.splitlines()[1:3]] == ["error", "hint"]
    state, journal = seen["read_only"]
    assert (state["ActiveState"], state["NRestarts"], state["ExecMainStatus"]) == ("failed", "2", "1")
    assert journal.count("error: the state directory /var/lib/symphony/three cannot be used") == 2
    assert "Start request repeated too quickly" in journal


def _serves_a_person(seen: dict[str, Any]) -> None:
    state = seen["person_status"]
    assert (state["active"], state["of_user"], state["workflow"]) == (
        "active",
        True,
        "/home/alice/app/WORKFLOW.md",
    )
    assert ["secrets_ALICE_TOKEN", "0o400"] in seen["person_credentials"]
    assert seen["person_left"] == []
