"""Promise: what work costs is known per run, issue and day, outlives the daemon, and is never made up."""

import json
import signal
from typing import Any

from harness.project import Project, until

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
WORK = [{"write": "a", "text": "a"}, {"commit": "A"}]
A_DOLLAR = {"input": 1_000_000, "output": 1_000_000}


def asked(project: Project, *words: str) -> Any:
    done = project.symphony(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_prices_hold_live_and_sums_outlive_the_daemon(project: Project) -> None:
    project.workflow(pricing={"none": A_DOLLAR, "dear": {"input": -1, "output": 1}})
    go = project.root / "go"
    project.issue("SYM-1", [*WORK, DONE])
    with project.daemon() as daemon:
        daemon.wait_for("workflow_warning")
        first = daemon.wait_for("turn_ended", issue_identifier="SYM-1")
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        project.workflow(pricing={"other": A_DOLLAR})
        daemon.wait_for("workflow_reloaded")
        project.issue("SYM-2", [*WORK, {"wait_for": str(go)}, DONE])
        daemon.wait_for("turn_started", issue_identifier="SYM-2")
        go.touch()
        daemon.wait_for("run_ended", issue_identifier="SYM-2")
        alive = asked(project, "status")
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    document = asked(project, "runs", "--by", "issue")
    sums = {row["key"]: row for row in document["groups"]}
    assert sums["SYM-1"]["cost_usd"] == sums["SYM-1"]["tokens"]["total_tokens"] == first["cost_usd"] > 0
    assert sums["SYM-1"]["unpriced_tokens"] == 0
    assert sums["SYM-2"]["cost_usd"] is None
    assert sums["SYM-2"]["unpriced_tokens"] == sums["SYM-2"]["tokens"]["total_tokens"] > 0
    assert {row["model"] for row in document["runs"]} == {"none"}
    total = document["total"]
    assert total["cost_usd"] == sums["SYM-1"]["cost_usd"]
    usage = {"issue_count": 2, "session_count": 2, "total": total["tokens"]["total_tokens"]}
    assert usage.items() <= alive["token_usage"].items()
    assert alive["budgets"]["day_cost_usd"] == total["cost_usd"]

    with project.daemon() as daemon:
        daemon.wait_for("serving")
        anew = until(lambda: _polled(asked(project, "status")), lambda: "no poll")
    for name in ("codex_totals", "token_usage"):
        assert anew[name] == alive[name], "nothing was used since"
    assert anew["budgets"]["day_cost_usd"] == alive["budgets"]["day_cost_usd"]
    issue = asked(project, "explain", "SYM-1")
    assert (issue["cost_usd"], issue["unpriced_tokens"]) == (total["cost_usd"], 0)
    shown = project.symphony("runs").stdout
    assert "unpriced" in shown
    assert "2 runs" in shown


def _polled(status: Any) -> Any:
    return status if status["health"]["polls"] else None
