"""Promise: Prometheus sees what the daemon does, and no name of an issue."""

import time
from collections.abc import Callable
from pathlib import Path

from harness.project import Project, until
from harness.scraping import Scrape, scrape
from kit.speakers import scripted_acp
from symphony.daemon.admission import ACKNOWLEDGEMENT
from symphony.observability import metrics
from symphony.observability.metrics import METRICS

TIRED = scripted_acp("--refuse-prompt", "'429, retry after 3600 s'")
SHOWN_ELSEWHERE = {
    metrics.NOTIFICATIONS.name,  # test_notifications.py: targets that answer, and one that does not
    *(each.name for each in (metrics.HOST_SLOTS, metrics.HOST_RUNS, metrics.HOST_FAILURES)),  # test_hosts.py
    metrics.WEBHOOKS.name,  # test_trackers.py: a tracker that sends webhooks
    *(each.name for each in (metrics.CHECKS, metrics.CHECK_DURATION)),  # unit/daemon/test_metrics.py
    metrics.REHEARSALS.name,  # unit/daemon/test_metrics.py: finished branches that are merged on trial
    metrics.PULL_REQUESTS.name,  # integration/daemon/test_pull_requests.py: a forge
}


def scraped(project: Project, holds: Callable[[Scrape], bool], log: Path) -> Scrape:
    """The first scrape for which something holds."""

    def found() -> Scrape | None:
        now = scrape(project)
        return now if holds(now) else None

    return until(found, lambda: f"{dict(scrape(project))}\n{log.read_text()}")


EXACT: tuple[tuple[str, dict[str, str], float], ...] = (
    ("runs_ended_total", {"outcome": "succeeded", "category": "none"}, 1),
    ("runs_ended_total", {"outcome": "failed", "category": "turn_failed"}, 2),
    ("runs_ended_total", {"outcome": "input_required", "category": "turn_input_required"}, 1),
    ("run_duration_seconds_count", {"outcome": "failed", "agent": "codex"}, 2),
    ("queue_wait_seconds_count", {"agent": "codex"}, 4),
    ("dispatch_seconds_count", {"agent": "codex"}, 4),
    ("retries_total", {"cause": "turn_failed"}, 1),
    ("blocks_total", {"cause": "no_progress"}, 1),
    ("blocks_total", {"cause": "turn_input_required"}, 1),
    ("issues", {"status": "blocked"}, 2),
    ("issues", {"status": "running"}, 1),
    ("slots_used", {}, 1),
    ("slots", {}, 10),
    ("waiting_issues", {"reason": "no_state_slot"}, 1),
    ("tool_calls_total", {"agent": "codex", "outcome": "succeeded"}, 1),
    ("tool_calls_total", {"agent": "codex", "outcome": "failed"}, 1),
    ("agent_limited", {"agent": "tired"}, 1),
    ("agent_limited", {"agent": "codex"}, 0),
    ("skills_listed", {}, 1),
    ("skill_problems", {"severity": "error"}, 1),
    ("journal_ok", {}, 1),
    ("workflow_valid", {}, 1),
    ("tracker_circuit_open", {}, 0),
    ("paused", {}, 0),
)


def test_every_metric_moves_with_the_fact_that_it_counts(project: Project) -> None:
    project.skill("greet")
    project.skill("off")
    project.write(".symphony/skills/broken/SKILL.md", "no front matter\n")
    project.commit("Skills")
    agent = {
        "budget": {"max_tokens_per_day": 1_000_000, "max_attempts_without_progress": 2},
        "max_retry_backoff_ms": 50,
        "max_concurrent_agents_by_state": {"In Progress": 1},
        "rules": [{"label": "limited", "use": "tired"}],
        "skills": {"disabled_skills": ["off"]},
    }
    agents = {"tired": {"kind": "acp", "command": TIRED}}
    workflow = project.workflow(agent=agent, agents=agents)
    away = {"tool": "board_move", "arguments": {"state": "Nowhere"}, "may_fail": True}
    done = {"tool": "board_move", "arguments": {"state": "Done"}}
    project.issue("SYM-1", [away, done], title='Secret "plan"\n')
    project.issue("SYM-2", [{"fail": "no"}])
    project.issue("SYM-3", [{"ask_input": "Which colour?"}])
    project.issue("SYM-4", [{"wait_for": "never"}], state="In Progress")
    project.issue("SYM-5", state="In Progress")
    project.issue("SYM-6", extra="labels: [limited]\n")
    began_s = time.time()
    with project.daemon(ACKNOWLEDGEMENT) as daemon:
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        for name in ("SYM-2", "SYM-3"):
            daemon.wait_for("issue_blocked", issue_identifier=name)
        daemon.wait_for("agent_limited", agent="tired")
        busy = scraped(
            project,
            lambda now: (
                now.value("symphony_tracker_requests_total", operation="answers") > 0
                and now.value("symphony_loop_lag_seconds_count") > 0
                and now.value("symphony_dispatch_seconds_count", agent="codex") >= 4
            ),
            daemon.log,
        )
        project.workflow(agent=agent, agents=agents, pricing={"none": {"input": 1, "output": 2}})
        project.issue("SYM-7", [done])
        priced = scraped(project, lambda now: now.value("symphony_cost_usd_total") > 0, daemon.log)
        assert project.symphony("pause").returncode == 0
        board = project.repo / ".symphony" / "issues"
        board.rename(project.root / "away")
        board.write_text("no directory")
        down = scraped(project, lambda now: now.value("symphony_tracker_circuit_open") == 1, daemon.log)
        project.write(workflow.name, "---\nagent: {max_turns: many}\n---\n")
        broken = scraped(project, lambda now: now.value("symphony_workflow_valid") == 0, daemon.log)

    values = [(name, labels, busy.value(f"symphony_{name}", **labels)) for name, labels, _ in EXACT]
    assert values == [*EXACT]
    tokens = busy.value("symphony_tokens_total", agent="codex", model="default")
    assert tokens == busy.value("symphony_day_tokens") > 0
    assert busy.value("symphony_budget_used_ratio", budget="day") == tokens / 1_000_000
    assert 0 < busy.value("symphony_unpriced_tokens_total") <= tokens
    reset_s = busy.value("symphony_agent_limit_reset_timestamp_seconds", agent="tired")
    assert began_s < min(reset_s, busy.value("symphony_last_poll_timestamp_seconds"))
    assert busy.value("symphony_skills_dropped_total", reason="disabled") >= 4
    assert down.value("symphony_polls_total", result="failed") > 0
    assert down.value("symphony_paused") == 1

    scrapes = (busy, priced, down, broken)
    moved = {name for one in scrapes for name, series in one.items() if any(series.values())}
    moved |= {name.removesuffix("_count") for name in moved}
    assert {metric.name for metric in METRICS} - moved == SHOWN_ELSEWHERE
    text = repr(scrapes)
    assert "SYM-" not in text
    assert "Secret" not in text
