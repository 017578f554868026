"""The metrics of the daemon: their definitions, and the counts behind counters and histograms.

docs/metrics.md has one row per definition. Every label value comes from a closed set: an enum, a name in
WORKFLOW.md, or a constant. Names are those of Prometheus: base units, and `_total` for counters.

Counting needs no library. `exposition` writes the text of a scrape, and loads the Prometheus client for it.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric.

    Attributes:
        name: its name in a scrape.
        kind: only a `histogram` has buckets.
        help: one sentence.
        labels: names of the labels.
        buckets: upper bounds in seconds, without infinity.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()


class Distribution(Struct, frozen=True):
    """The observations of a histogram: their counts by bucket (the last one is unbounded), and their sum."""

    counts: tuple[int, ...]
    sum: float


class Sample(Struct, frozen=True):
    """The value of a metric for one combination of labels."""

    metric: Metric
    labels: Labels
    value: float | Distribution


# --- definitions -----------------------------------------------------------------------------------------

_QUICK: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_SLOW: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
_RUN: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0)
_LAG: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

BUILD_INFO: Final = Metric(
    "symphony_build_info", "gauge", "The program that runs; always 1.", ("version", "commit", "python")
)
ISSUES: Final = Metric("symphony_issues", "gauge", "Issues by what the daemon does with them.", ("status",))
WAITING_ISSUES: Final = Metric(
    "symphony_waiting_issues", "gauge", "Waiting issues by the reason why they do not start.", ("reason",)
)
SLOTS: Final = Metric("symphony_slots", "gauge", "Agents that may run at the same time.")
SLOTS_USED: Final = Metric("symphony_slots_used", "gauge", "Slots in use.")
HOST_SLOTS: Final = Metric("symphony_host_slots", "gauge", "Runs that a host may have now.", ("host",))
HOST_RUNS: Final = Metric(
    "symphony_host_runs", "gauge", "Runs on a host, or on a node of a cluster.", ("host",)
)
HOST_FAILURES: Final = Metric(
    "symphony_host_failures", "gauge", "Runs in a row that failed because of the host.", ("host",)
)
RUNS_STARTED: Final = Metric("symphony_runs_started_total", "counter", "Runs that started.", ("agent",))
RUNS_ENDED: Final = Metric(
    "symphony_runs_ended_total",
    "counter",
    "Runs that ended, by outcome and the category of the failure.",
    ("agent", "outcome", "category"),
)
RUN_DURATION: Final = Metric(
    "symphony_run_duration_seconds",
    "histogram",
    "Time from the start of a run to its end.",
    ("agent", "outcome"),
    _RUN,
)
QUEUE_WAIT: Final = Metric(
    "symphony_queue_wait_seconds",
    "histogram",
    "Time from the poll that found an issue to the start of its first run.",
    ("agent",),
    _SLOW,
)
DISPATCH: Final = Metric(
    "symphony_dispatch_seconds",
    "histogram",
    "Time from the poll that found an issue to the launch of the agent of its first run.",
    ("agent",),
    _SLOW,
)
TURNS: Final = Metric("symphony_turns_total", "counter", "Turns that agents began.", ("agent",))
TOOL_CALLS: Final = Metric(
    "symphony_tool_calls_total", "counter", "Calls of the daemon's tools by agents.", ("agent", "outcome")
)
TOKENS: Final = Metric(
    "symphony_tokens_total", "counter", "Tokens that agents reported.", ("agent", "model", "kind")
)
COST: Final = Metric("symphony_cost_usd_total", "counter", "Cost of ended runs.", ("agent", "model"))
UNPRICED_TOKENS: Final = Metric(
    "symphony_unpriced_tokens_total", "counter", "Tokens of ended runs without a price.", ("agent", "model")
)
DAY_TOKENS: Final = Metric(
    "symphony_day_tokens", "gauge", "Tokens used since midnight (UTC); survives a restart."
)
DAY_COST: Final = Metric(
    "symphony_day_cost_usd",
    "gauge",
    "Cost of today (UTC), as far as prices are known; survives a restart.",
)
BUDGET_USED: Final = Metric(
    "symphony_budget_used_ratio", "gauge", "Used part of a budget; absent without one.", ("budget",)
)
AGENT_LIMITED: Final = Metric(
    "symphony_agent_limited",
    "gauge",
    "1 while an agent is limited or in an outage.",
    ("agent",),
)
AGENT_LIMIT_RESET: Final = Metric(
    "symphony_agent_limit_reset_timestamp_seconds",
    "gauge",
    "When a limited agent is tried again; absent if it is not limited.",
    ("agent",),
)
RETRIES: Final = Metric(
    "symphony_retries_total", "counter", "Retries after a failure, or without a free slot.", ("cause",)
)
BLOCKS: Final = Metric(
    "symphony_blocks_total", "counter", "Issues that began to wait for a person.", ("cause",)
)
POLLS: Final = Metric("symphony_polls_total", "counter", "Poll cycles that ended.", ("result",))
TRACKER_REQUESTS: Final = Metric(
    "symphony_tracker_requests_total", "counter", "Reads of the tracker that ended.", ("operation", "result")
)
TRACKER_REQUEST: Final = Metric(
    "symphony_tracker_request_seconds",
    "histogram",
    "Time that a read of the tracker took, with all pages and retries.",
    ("operation",),
    _QUICK,
)
CIRCUIT_OPEN: Final = Metric(
    "symphony_tracker_circuit_open", "gauge", "1 while the tracker fails or asks for a pause."
)
LAST_POLL: Final = Metric(
    "symphony_last_poll_timestamp_seconds", "gauge", "When the tracker last answered a poll."
)
WORKFLOW_VALID: Final = Metric("symphony_workflow_valid", "gauge", "0 while WORKFLOW.md is invalid.")
JOURNAL_OK: Final = Metric("symphony_journal_ok", "gauge", "0 while the journal cannot be written.")
PULL_REQUESTS: Final = Metric(
    "symphony_pull_requests", "gauge", "Pull requests that are not merged, by what they wait for.", ("code",)
)
PAUSED: Final = Metric("symphony_paused", "gauge", "1 while an operator has paused new starts.")
SKILLS_LISTED: Final = Metric("symphony_skills_listed", "gauge", "Skills that the latest run listed.")
SKILL_PROBLEMS: Final = Metric(
    "symphony_skill_problems", "gauge", "Problems of the skills of the latest run.", ("severity",)
)
SKILLS_DROPPED: Final = Metric(
    "symphony_skills_dropped_total", "counter", "Skills that runs did not list.", ("reason",)
)
WEBHOOKS: Final = Metric("symphony_webhooks_total", "counter", "Webhooks of tracker and forge.", ("result",))
NOTIFICATIONS: Final = Metric(
    "symphony_notifications_total", "counter", "Notifications by what became of them.", ("kind", "result")
)
CHECKS: Final = Metric(
    "symphony_checks_total",
    "counter",
    "Commands of verify.commands on delivered commits, by how they ended.",
    ("check", "result"),
)
CHECK_DURATION: Final = Metric(
    "symphony_check_duration_seconds",
    "histogram",
    "Time that a command of verify.commands took.",
    ("check",),
    _RUN,
)
REHEARSALS: Final = Metric(
    "symphony_rehearsals_total", "counter", "Rehearsals of merges by what became of them.", ("result",)
)
LOOP_LAG: Final = Metric(
    "symphony_loop_lag_seconds", "histogram", "Delay of a timer of the event loop.", (), _LAG
)

METRICS: Final = tuple(each for each in globals().values() if isinstance(each, Metric))
"""All metrics, in the order of a scrape."""

# --- counts ----------------------------------------------------------------------------------------------


class Counters:
    """Counters and histograms since the start of the process. Written and copied on the event loop only."""

    def __init__(self) -> None:
        self._totals: dict[tuple[Metric, Labels], float] = {}
        self._buckets: dict[tuple[Metric, Labels], list[int]] = {}
        for metric in METRICS:
            if not metric.labels and metric.kind == "counter":
                self.add(metric, by=0)

    def add(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Raise a counter. Raising it by 0 makes it visible, so that its first real rise can be seen."""
        key = (metric, labels)
        self._totals[key] = self._totals.get(key, 0.0) + by

    def observe(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Add an observation to a histogram."""
        buckets = self._buckets.setdefault((metric, labels), [0] * (len(metric.buckets) + 1))
        buckets[bisect_left(metric.buckets, seconds)] += 1
        self.add(metric, *labels, by=seconds)

    def samples(self) -> Iterable[Sample]:
        """A copy of all values."""
        return [
            Sample(
                metric,
                labels,
                Distribution(tuple(self._buckets[metric, labels]), total)
                if metric.kind == "histogram"
                else total,
            )
            for (metric, labels), total in self._totals.items()
        ]
