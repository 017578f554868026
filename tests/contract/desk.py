"""What a case needs of an adapter: a tracker on a service in memory, and hands to put issues there."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.vendor import Clock, Fault, PagingFault, Vendor
from symphony.config import TrackerSettings
from symphony.domain import Issue
from symphony.http import RateLimiters
from symphony.trackers.registry import create_tracker, tracker_kind
from symphony.trackers.remote import RemoteKind, RemoteTracker

__all__ = ["Desk", "Draft", "remote_kind"]


_HERE = Path("/project")


def remote_kind(kind: str) -> RemoteKind[Any]:
    """The adapter of a kind that is asked over HTTP."""
    found = tracker_kind(kind)
    assert isinstance(found, RemoteKind)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An issue as a case wants it; `broken` is a required field to spoil, `extra` is taken as it is."""

    state: str | None = None
    title: str | None = None
    description: str | None = None
    labels: Iterable[str] = ()
    priority: Any = None
    created_at: Any = None
    broken: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_odd(self) -> bool:
        """Whether it need not be as the service's schema says."""
        return self.broken is not None or bool(self.extra) or self.created_at is not None


class Desk(ABC):
    """One adapter. Issues are numbered by the case; `ids` and spellings are the adapter's own.

    Attributes:
        todo, doing, done: states in the spelling of the desk; `todo` and `doing` are active.
        page: how many records the adapter asks for at once, and `batch` how many ids in one refresh.
        can: what the service can say: `priority`, `description`, `labels`, `blockers`, `hold_back`, `move`,
            `timestamps`, `conditional` (it has validators) or `cheap` (another way to see that nothing
            changed), `own_ids` (the id of a comment may be chosen by us).
        paging_faults: those that its way of paging can have.
        gone: faults of a refresh that mean "this id is gone" and no failure.
    """

    kind: str
    todo: str
    doing: str
    done: str
    page: int
    batch: int
    can: frozenset[str]
    paging_faults: frozenset[PagingFault]
    gone: frozenset[Fault] = frozenset()
    malformed: Sequence[str] = ("title",)
    """Which required fields `put(broken=…)` can spoil."""
    vendor: Vendor

    def __init__(self) -> None:
        self.clock = Clock()
        self.rate_limiters = RateLimiters()
        self.vendor = self.make_vendor(self.clock)
        self.vendor.new = self._new
        self.created: list[int] = []
        self.tracker = self.another()

    def _new(self, **draft: Any) -> int:
        number = 701 + len(self.created)
        self.created.append(number)
        self.write(number, Draft(**draft))
        return number

    def another(self, **provider: Any) -> RemoteTracker:
        """One more tracker on the same service, as after a restart, or as of another daemon."""
        return remote_kind(self.kind).connect(
            self.settings(**provider),
            self.environment(),
            transport=self.vendor,
            rate_limiters=self.rate_limiters,
            now_ms=self.clock.now_ms,
            sleep=self.clock.sleep,
        )

    def settings(self, **provider: Any) -> TrackerSettings:
        """The section `tracker` of this desk."""
        return TrackerSettings(
            kind=self.kind,
            provider={**self.provider(), **provider},
            active_states=(self.todo, self.doing),
            terminal_states=(self.done,),
        )

    def configure(
        self, settings: TrackerSettings | None = None, *, environment: Mapping[str, str] | None = None
    ) -> object:
        """What the adapter makes of settings. Raises `TrackerConfigError`."""
        known = self.environment() if environment is None else environment
        return remote_kind(self.kind).settings_type.read(settings or self.settings(), known)

    def by_registry(self) -> object:
        """The tracker as the daemon makes it."""
        return create_tracker(self.settings(), base_dir=_HERE, environment=self.environment())

    def put(self, number: int, **draft: Any) -> str:
        """Write an issue, or write it anew; returns its id. The arguments are the fields of a `Draft`."""
        return self.write(number, Draft(**draft))

    # --- for an adapter to write -------------------------------------------------------------------------

    @abstractmethod
    def make_vendor(self, clock: Clock) -> Vendor:
        """The service, with nothing on it."""

    @abstractmethod
    def provider(self) -> dict[str, Any]:
        """The settings of `tracker.provider`, with the credential by `$NAME`."""

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """The variables that hold the credential."""

    @abstractmethod
    def write(self, number: int, draft: Draft) -> str:
        """Write an issue, or write it anew; returns its id."""

    @abstractmethod
    def remove(self, number: int) -> None:
        """Delete an issue."""

    @abstractmethod
    def put_out_of_scope(self, number: int) -> str:
        """Write an issue that exists and is not in scope; returns its id."""

    @abstractmethod
    def comment(self, number: int, body: str, *, mine: bool = False) -> str:
        """Write a comment behind the adapter's back."""

    voices: frozenset[str] = frozenset({"writer", "author", "stranger", "bot"})
    """Who comments there: who may write to the project, the issue's author, others, and what is no person."""

    def say(self, number: int, body: str, voice: str) -> None:
        """Let one of `voices` write a comment."""
        raise AssertionError(number, body, voice)

    @abstractmethod
    def comments(self, number: int) -> list[str]:
        """The bodies of all comments."""

    @abstractmethod
    def delete_comment(self, number: int, comment_id: str) -> None:
        """Delete a comment behind the adapter's back."""

    def block(self, number: int, by: int) -> None:
        """Let an issue be blocked by another; only where `blockers` is in `can`."""
        raise AssertionError(number, by)

    def hold_back(self, number: int) -> str:
        """Write an issue in `todo` that the service's own rules hold back; where `can` says so."""
        raise AssertionError(number)

    def forbid_moves(self) -> None:
        """From now on the service takes a move and does not make it; only where `move` is in `can`."""
        raise AssertionError

    def finish(self, number: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The tool calls by which an agent ends its issue; `done` need not be the state that it ends in."""
        raise AssertionError(number)

    def comment_call(self, number: int, body: str) -> tuple[str, Mapping[str, Any]]:
        """Name and arguments of the call of the raw tool by which an agent comments on an issue."""
        raise AssertionError(number, body)

    def raw_call(self, issue: Issue) -> tuple[str, Mapping[str, Any]]:
        """Name and arguments of a harmless call of the raw tool."""
        raise AssertionError(issue)
