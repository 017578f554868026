"""One look at the tracker: who we are there, its states, what is left of its limits, a sample issue.

`symphony tracker check` prints it, and `symphony doctor` makes findings of it.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from symphony.domain.failures import Failure
from symphony.domain.issue import Issue, normalise_state
from symphony.observability.moments import utc_text
from symphony.runtime.bound import Bound
from symphony.trackers.base import CheckingCapability, Sighting, skipped_by
from symphony.trackers.http import wall_ms
from symphony.trackers.remote import RemoteTracker

__all__ = ["Limit", "Look", "Problem", "StateSeen", "look_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSeen:
    """A state of the tracker, of the settings, or of both; `roles` are the settings that name it."""

    name: str
    roles: tuple[str, ...]
    found: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What is left of one limit of the service, and when it begins anew."""

    name: str
    limit: int
    remaining: int
    resets_in_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something to mend; `severity` is `error` or `warning`."""

    severity: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen. `issues` counts those in active states, of which `sample` is the first."""

    kind: str
    login: str | None
    scope: str | None
    active: tuple[str, ...]
    states: tuple[StateSeen, ...]
    limits: tuple[Limit, ...]
    issues: int
    sample: Issue | None
    skipped: tuple[Failure, ...]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; warnings may be."""
        return not any(problem.severity == "error" for problem in self.problems)

    def as_json(self) -> dict[str, Any]:
        """The shape of `symphony tracker check --json` (docs/schemas/tracker-check.schema.json)."""
        return {
            "ok": self.ok,
            "kind": self.kind,
            "login": self.login,
            "scope": self.scope,
            "states": [
                {"name": state.name, "roles": list(state.roles), "found": state.found}
                for state in self.states
            ],
            "limits": [asdict(limit) for limit in self.limits],
            "issues": self.issues,
            "sample": None if self.sample is None else _issue_json(self.sample),
            "problems": [asdict(problem) for problem in self.problems],
        }


def _issue_json(issue: Issue) -> dict[str, Any]:
    moments = {
        key: None if value is None else utc_text(value)
        for key, value in (("created_at", issue.created_at), ("updated_at", issue.updated_at))
    }
    return {**asdict(issue), "labels": list(issue.labels), **moments}


async def look_at(bound: Bound) -> Look:
    """Ask the tracker of a workflow. Raises `TrackerError`: no answer, or the credential is refused."""
    tracker = bound.tracker
    seen = await tracker.look() if isinstance(tracker, CheckingCapability) else None
    issues = await tracker.fetch_issues_by_states(bound.active_states)
    skipped = skipped_by(tracker)
    states = tuple(_states(bound, seen))
    return Look(
        kind=bound.settings.tracker.kind,
        login=None if seen is None else seen.login,
        scope=None if seen is None else seen.scope,
        active=bound.active_states,
        states=states,
        limits=tuple(_limits(bound)),
        issues=len(issues),
        sample=next(iter(issues), None),
        skipped=skipped,
        problems=(*_renamed(bound, states), *(_left_out(failure) for failure in skipped)),
    )


def _limits(bound: Bound) -> Iterator[Limit]:
    if isinstance(bound.tracker, RemoteTracker):
        now_ms = wall_ms()
        for left in bound.tracker.traffic().left:
            wait_ms = max(0, left.reset_ms - now_ms)
            yield Limit(name=left.name, limit=left.limit, remaining=left.remaining, resets_in_ms=wait_ms)


# --- states ----------------------------------------------------------------------------------------------


def _named(bound: Bound) -> dict[str, tuple[str, ...]]:
    """The states that settings name, each under the keys that do."""
    tracker = bound.settings.tracker
    return {
        "active": bound.active_states,
        "terminal": bound.terminal_states,
        "on_start": () if tracker.on_start is None else (tracker.on_start,),
        "on_block": () if tracker.on_block is None else (tracker.on_block,),
    }


def _states(bound: Bound, seen: Sighting | None) -> Iterator[StateSeen]:
    """Those of the tracker first, then those that it does not have; where it names none, any state is one."""
    named = _named(bound)
    there = {normalise_state(name): name for name in (seen.states if seen else ())}
    spelled = dict(there)
    for names in named.values():
        for name in names:
            spelled.setdefault(normalise_state(name), name)
    for state, name in spelled.items():
        roles = tuple(
            role for role, names in named.items() if state in {normalise_state(one) for one in names}
        )
        yield StateSeen(name=name, roles=roles, found=not there or state in there)


def _renamed(bound: Bound, states: Sequence[StateSeen]) -> Iterator[Problem]:
    """Names that somebody wrote and the tracker does not have; of an adapter's own one active will do."""
    tracker = bound.settings.tracker
    written = {"on_start", "on_block"}
    written |= {"active"} if tracker.active_states is not None else set()
    written |= {"terminal"} if tracker.terminal_states is not None else set()
    known = [state.name for state in states if state.found]
    for state in states:
        if not state.found and (roles := written.intersection(state.roles)):
            yield Problem(
                severity="warning" if roles == {"terminal"} else "error",
                message=f"{tracker.kind} has no state {state.name!r}, which {_keys(roles)} names",
                hint=_suggestion(state.name, known),
            )
    if not any(state.found and "active" in state.roles for state in states) and "active" not in written:
        yield Problem(
            severity="error",
            message=f"{tracker.kind} has none of the states that are active by default",
            hint=f"set tracker.active_states; states: {', '.join(known)}",
        )


_KEYS = {"active": "active_states", "terminal": "terminal_states"}


def _keys(roles: set[str]) -> str:
    return ", ".join(f"tracker.{_KEYS.get(role, role)}" for role in sorted(roles))


def _suggestion(name: str, known: Sequence[str]) -> str:
    """The nearest name that there is, or all of them."""
    spelled = {normalise_state(one): one for one in known}
    near = difflib.get_close_matches(normalise_state(name), spelled, n=1, cutoff=0.6)
    listed = f"states: {', '.join(known)}"
    return f"did you mean {spelled[near[0]]!r}? {listed}" if near else f"was it renamed? {listed}"


def _left_out(failure: Failure) -> Problem:
    hint = failure.hint or "mend the record in the tracker"
    return Problem(severity="warning", message=f"left out: {failure.line}", hint=hint)
