"""Chooses the host of a run, and tracks hosts that rest because runs fail there.

Without hosts, runs are carried out on this machine. With hosts, all runs are carried out on hosts. The
scheduler prefers a host where runs work, then the host that has the workspace of the issue, then the host
with the fewest runs, then the order of the settings.

A host where runs failed three times in a row rests for 30 s, twice as long each further time, up to ten
minutes. After that it gets one run at a time until the agent of a run starts. A failure counts if the host or
the connection to it caused it, or if the login of the agent there is at its limit. Troubles are not kept
across restarts.
"""

from collections import Counter
from dataclasses import replace
from typing import Final

from symphony.domain import Category, Failure, Issue
from symphony.scheduler.agents import LIMIT_CATEGORIES
from symphony.scheduler.messages import Outcome, RemoteWorkspace, Timer, TimerKind
from symphony.scheduler.state import Running, State, Step, TroubledHost

FAILURES_BEFORE_REST: Final = 3
MAX_REST_MS: Final = 600_000
HOST_FAILURES: Final = frozenset({Category.WORKER_LOST, Category.HOST_UNAVAILABLE})
"""Failures that concern the host and say nothing about the issue."""
WAITING_FOR_SLOT: Final = "waiting_for_slot"
"""The last event of a run that has no machine of the cluster yet; its last message says why."""

_FIRST_REST_MS = 30_000
_MAX_EXPONENT = 10
_HOSTS_TOLD = 8

# --- choice ----------------------------------------------------------------------------------------------


def runs_by_host(state: State) -> Counter[str]:
    """How many runs each host has."""
    return Counter(run.host for run in state.running.values() if run.host is not None)


def slots_of(state: State, host: str) -> int:
    """How many runs a host may have now."""
    trouble = state.troubled_hosts.get(host)
    if trouble is not None and trouble.until_ms is not None:
        return 0
    limit = state.settings.max_agents_per_host or state.settings.max_concurrent_agents
    return 1 if trouble is not None and trouble.failures >= FAILURES_BEFORE_REST else limit


def free_slots(state: State, used: Counter[str]) -> int:
    """How many further runs all hosts together take; `used` is `runs_by_host`."""
    return sum(max(slots_of(state, host) - used[host], 0) for host in state.settings.hosts)


def choose_host(state: State, issue_id: str) -> str | None:
    """The host for a run of the issue; `None` for this machine, or if no host has a free slot."""
    hosts, used = state.settings.hosts, runs_by_host(state)
    workspace = state.remote_workspaces.get(issue_id)
    last = None if workspace is None else workspace.host

    def rank(host: str) -> tuple[int, bool, int, int]:
        trouble = state.troubled_hosts.get(host)
        return (trouble.failures if trouble else 0, host != last, used[host], hosts.index(host))

    return min((host for host in hosts if used[host] < slots_of(state, host)), key=rank, default=None)


def shortage_text(state: State, used: Counter[str]) -> str:
    """Why no host takes a run, for people."""
    told, hosts = [], state.settings.hosts
    for host in hosts[:_HOSTS_TOLD]:
        trouble = state.troubled_hosts.get(host)
        if trouble is not None and trouble.until_ms is not None:
            told.append(f"{host} rests after {trouble.failures} failures ({trouble.failure.message})")
        else:
            told.append(f"{used[host]} of {slots_of(state, host)} on {host}")
    if len(hosts) > _HOSTS_TOLD:
        told.append(f"and {len(hosts) - _HOSTS_TOLD} more")
    return f"no host has a free slot: {', '.join(told)}"


# --- workspaces ------------------------------------------------------------------------------------------


def on_run_started(step: Step, issue: Issue, host: str | None) -> None:
    """Remember where the workspace of the issue is, unless a cluster chooses the machine."""
    if host is None:
        forget_workspace(step, issue.id)
    elif host != step.state.settings.cluster:
        _remember_workspace(step, issue, host)


def on_run_placed(step: Step, run: Running, host: str) -> None:
    """Remember which machine a cluster chose."""
    step.replace_entry(replace(run, placed=host))
    _remember_workspace(step, run.issue, host)


def _remember_workspace(step: Step, issue: Issue, host: str) -> None:
    known = step.state.remote_workspaces.get(issue.id)
    if known is None or known.host != host:
        workspace = RemoteWorkspace(identifier=issue.identifier, host=host)
        step.update(remote_workspaces={**step.state.remote_workspaces, issue.id: workspace})


def forget_workspace(step: Step, issue_id: str) -> str | None:
    """Forget where the workspace of an issue is. Return the host that has it, or `None` for this machine."""
    workspace = step.state.remote_workspaces.get(issue_id)
    if workspace is None:
        return None
    others = {key: each for key, each in step.state.remote_workspaces.items() if key != issue_id}
    step.update(remote_workspaces=others)
    return workspace.host


# --- troubles --------------------------------------------------------------------------------------------


def on_agent_started(step: Step, run: Running) -> None:
    """The host works."""
    if run.host is not None and run.host in step.state.troubled_hosts:
        _recover(step, run.host)


def on_run_ended(step: Step, run: Running, outcome: Outcome) -> None:
    """Conclude from the end of a run whether its host works."""
    if run.host is None:
        return
    failure = outcome.failure
    if failure is not None and failure.category in HOST_FAILURES | LIMIT_CATEGORIES:
        _count_failure(step, run.host, failure)
    else:
        on_agent_started(step, run)


def rest_ms(failures: int) -> int:
    """How long a host rests after `failures` failures in a row; 0 if they are few."""
    if failures < FAILURES_BEFORE_REST:
        return 0
    exponent = min(failures - FAILURES_BEFORE_REST, _MAX_EXPONENT)
    return int(min(_FIRST_REST_MS * 2**exponent, MAX_REST_MS))


def _count_failure(step: Step, host: str, failure: Failure) -> None:
    known = step.state.troubled_hosts.get(host)
    if known is not None and known.until_ms is not None:
        return  # the run began before the rest
    failures = 1 if known is None else known.failures + 1
    delay_ms = rest_ms(failures)
    until_ms = step.now_ms + delay_ms if delay_ms else None
    trouble = TroubledHost(failures=failures, until_ms=until_ms, failure=failure)
    step.update(troubled_hosts={**step.state.troubled_hosts, host: trouble})
    if until_ms is not None:
        step.set_timer(Timer(TimerKind.HOST, host), until_ms)
        step.notify(
            "warning",
            "host_resting",
            host=host,
            failures=failures,
            delay_ms=delay_ms,
            reason=failure.line,
            hint=failure.hint,
        )


def _recover(step: Step, host: str) -> None:
    trouble = step.state.troubled_hosts[host]
    step.update(troubled_hosts={key: each for key, each in step.state.troubled_hosts.items() if key != host})
    step.clear_timer(Timer(TimerKind.HOST, host))
    if trouble.failures >= FAILURES_BEFORE_REST:
        step.notify("info", "host_recovered", host=host, reason="an agent started there")


def on_rest_over(step: Step, host: str) -> None:
    """Give one run to the host."""
    trouble = step.state.troubled_hosts.get(host)
    if trouble is not None:
        step.clear_timer(Timer(TimerKind.HOST, host))
        step.update(troubled_hosts={**step.state.troubled_hosts, host: replace(trouble, until_ms=None)})


def end_rests(step: Step) -> None:
    """End all rests, because a person wants an issue tried now."""
    for host, trouble in step.state.troubled_hosts.items():
        if trouble.until_ms is not None:
            on_rest_over(step, host)


def has_short_rest(state: State) -> bool:
    """Whether `run --once` waits for a resting host that did not fail too often."""
    most = FAILURES_BEFORE_REST + state.settings.budget.max_attempts_without_progress
    return any(
        trouble.until_ms is not None and trouble.failures < most
        for host, trouble in state.troubled_hosts.items()
        if host in state.settings.hosts
    )
