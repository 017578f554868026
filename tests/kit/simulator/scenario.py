"""What is simulated: the board, the limits, the world, and what sessions of named issues do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from kit.simulator.crash_points import CrashPoint
from kit.simulator.profiles import PROFILES, Profile
from kit.simulator.session import Session
from symphony.config import BudgetSettings
from symphony.domain import Issue
from symphony.scheduler import SchedulerSettings

__all__ = ["EPOCH", "Scenario", "days", "hours", "make_issue", "make_settings", "minutes"]


EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
ACTIVE = frozenset({"todo", "in progress"})
TERMINAL = frozenset({"done", "cancelled"})


def make_settings(**changes: Any) -> SchedulerSettings:
    """Active: Todo, In Progress. Terminal: Done, Cancelled. The rest as by default, but for `changes`.

    Those of budgets are given by their names.
    """
    usual = BudgetSettings().limits
    limits = {key: changes.pop(key) for key in usual.__struct_fields__ if key in changes}
    budget = structs.replace(usual, **limits)
    settings = SchedulerSettings(active_states=ACTIVE, terminal_states=TERMINAL, budget=budget)
    return replace(settings, **changes)


def make_issue(identifier: str, **changes: Any) -> Issue:
    """An issue that may start; its id is the identifier in lower case."""
    issue = Issue(
        id=identifier.lower(),
        identifier=identifier,
        title=f"Title of {identifier}",
        state="Todo",
        dispatchable=True,
        priority=2,
        created_at=EPOCH,
    )
    return replace(issue, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One world to live in.

    Attributes:
        issues: how many issues people file, spread over the whole duration; the first tenth is there at once.
        board: issues that are there at once, beside those.
        sessions: by identifier, what the first, second, … attempt does; the last one holds for all further
            attempts. Issues without an entry have random sessions by the profile's habits.
        profile: how bad the world is; one of `PROFILES` or one of your own.
        slots: `max_concurrent_agents`. poll_interval_ms: `polling.interval_ms`.
        settings: instead of those two and of the defaults.
        hurry: how many times as often as the profile says people and operators act.
        crash: the crash point at which the daemon dies for the first time, and the how many-th time that it
            is reached.
        max_inputs: end early, after so many inputs; null for no limit.
        winds_down: whether the end is checked: all issues done, nothing stays claimed, the daemon ends.
    """

    issues: int = 0
    board: tuple[Issue, ...] = ()
    sessions: Mapping[str, Sequence[Session]] = field(default_factory=dict)
    profile: Profile = PROFILES["calm"]
    slots: int = 10
    poll_interval_ms: int = 30_000
    settings: SchedulerSettings | None = None
    hurry: int = 1
    crash: tuple[CrashPoint, int] | None = None
    max_inputs: int | None = None
    winds_down: bool = True

    def first_settings(self) -> SchedulerSettings:
        """The settings the daemon begins with."""
        if self.settings is not None:
            return self.settings
        hosts = self.profile.hosts
        return make_settings(
            max_concurrent_agents=self.slots,
            poll_interval_ms=self.poll_interval_ms,
            hosts=hosts.names,
            max_agents_per_host=hosts.slots,
            verify_rounds=self.profile.checks.rounds,
        )

    def options(self) -> tuple[str, ...] | None:
        """The command-line options that give this scenario, or null where there are none for it."""
        plain = Scenario(
            issues=self.issues, profile=self.profile, slots=self.slots, poll_interval_ms=self.poll_interval_ms
        )
        if self != plain or PROFILES.get(self.profile.name) is not self.profile:
            return None
        poll = ("--poll-s", f"{self.poll_interval_ms / 1000:g}")
        return (
            "--profile",
            self.profile.name,
            "--issues",
            str(self.issues),
            "--slots",
            str(self.slots),
            *poll,
        )


def days(count: float) -> timedelta:
    """So many virtual days."""
    return timedelta(days=count)


def hours(count: float) -> timedelta:
    """So many virtual hours."""
    return timedelta(hours=count)


def minutes(count: float) -> timedelta:
    """So many virtual minutes."""
    return timedelta(minutes=count)
