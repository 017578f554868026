"""From measurements to the rows of the table: what was found, what we aim at, and whether it was met."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bench.asking import Asked
from bench.footprint import Footprint
from bench.hosts import CARRIERS, AtOnce, Carried, SecondWorkspace
from bench.journal import Remembering
from bench.latency import Delay
from bench.losses import Lost
from bench.pump import Pumped
from bench.sessions import Sessions
from bench.soak import Held
from bench.trackers import SAVING, Polling
from bench.transcripts import Transcribed
from bench.workspaces import Workspaces

__all__ = ["Aim", "Figure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A bound in words, and whether the figure keeps it."""

    text: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row. `floor` and `ours` are in `unit`; `ratio` is ours by the floor's where that says something.

    A row without aims is told for the reader and judges nothing.
    """

    key: str
    title: str
    unit: str
    ours: float
    floor: float | None = None
    aims: tuple[Aim, ...] = ()

    @property
    def ratio(self) -> float | None:
        return self.ours / self.floor if self.floor else None

    @property
    def met(self) -> bool:
        return all(aim.met for aim in self.aims)


def _at_most(value: float, limit: float, unit: str) -> Aim:
    return Aim(text=f"≤ {limit:g} {unit}".rstrip(), met=value <= limit)


def _none(key: str, title: str, count: float) -> Figure:
    """A count that should be 0."""
    return Figure(key=key, title=title, unit="", ours=count, aims=(_at_most(count, 0, ""),))


def _ratio_at_most(ours: float, floor: float, limit: float, what: str = "floor") -> Aim:
    return Aim(text=f"≤ {limit:g} x {what}", met=ours <= limit * floor)


def of_pump(found: Pumped) -> Sequence[Figure]:
    ours, floor = found.cpu_s["symphony"], found.cpu_s["floor"]
    growth = found.growth_mb["symphony"]
    return (
        Figure(
            key="pump_cpu",
            title="Processor time per 10,000 streamed events, with helpers",
            unit="ms",
            ours=ours * 1000,
            floor=floor * 1000,
            aims=(_at_most(ours * 1000, 50, "ms"),),
        ),
        Figure(
            key="pump_memory",
            title="Growth of memory (PSS, with helpers) per 100,000 events",
            unit="MB",
            ours=growth,
            floor=found.growth_mb["floor"],
            aims=(_at_most(growth, 10, "MB"),),
        ),
    )


def of_transcribing(found: Transcribed) -> Sequence[Figure]:
    return (
        Figure(
            key="transcript",
            title="Processor time to take in 10,000 streamed events, without and with a transcript",
            unit="ms",
            ours=found.cpu_s["symphony"] * 1000,
            floor=found.cpu_s["floor"] * 1000,
        ),
    )


def of_remembering(found: Remembering) -> Sequence[Figure]:
    ours, floor = found.cpu_us["symphony"], found.cpu_us["floor"]
    return (
        Figure(
            key="journal_event",
            title="Processor time per event of the journal",
            unit="µs",
            ours=ours,
            floor=floor,
        ),
    )


def of_polling(found: Sequence[Polling], issues: int) -> Sequence[Figure]:
    return [figure for one in found for figure in _of_service(one, issues)]


def _of_service(found: Polling, issues: int) -> Sequence[Figure]:
    title, key = f"{found.service}, {issues} issues, nothing changes", found.service
    if found.running:
        title, key = f"{title}, {found.running} sessions run", f"{key}_running"
    ours, floor = found.bytes["symphony"] / 1024, found.bytes["floor"] / 1024
    aim = Aim(text="≤ 1/10 of a full poll", met=ours <= floor / 10)
    return (
        Figure(
            key=f"{key}_requests",
            title=f"{title}: requests per minute",
            unit="",
            ours=found.requests["symphony"],
            floor=found.requests["floor"],
        ),
        Figure(
            key=f"{key}_bytes",
            title=f"{title}: received per minute",
            unit="kB",
            ours=ours,
            floor=floor,
            aims=(aim,) if found.service in SAVING else (),
        ),
        Figure(
            key=f"{key}_tick",
            title=f"{title}: processor time per tick",
            unit="ms",
            ours=found.cpu_ms["symphony"],
            floor=found.cpu_ms["floor"],
        ),
    )


def of_losses(found: Lost) -> Sequence[Figure]:
    return (
        _none("events_lost", f"Events lost of {found.sent:,}, issues finished in mid-burst", found.events),
        _none("tokens_off", "Tokens by which the totals of those runs are wrong", found.tokens),
    )


def of_sessions(found: Sessions, *, issues: int, limit: int) -> Sequence[Figure]:
    rate, cpu = found.rate, found.cpu_ms
    peak = found.peak["symphony"]
    return (
        Figure(
            key="session_rate",
            title=f"{issues} issues, {limit} slots: sessions per second",
            unit="/s",
            ours=rate["symphony"],
            floor=rate["floor"],
        ),
        Figure(
            key="session_cpu",
            title="Processor time per issue, with helpers",
            unit="ms",
            ours=cpu["symphony"],
            floor=cpu["floor"],
            aims=(_at_most(cpu["symphony"], 20, "ms"),),
        ),
        Figure(
            key="session_peak",
            title="Most agents alive at a time",
            unit="",
            ours=peak,
            floor=found.peak["floor"],
            aims=(Aim(text=f"= {limit}", met=peak == limit),),
        ),
        _none("session_repeats", "Issues started more than once", found.repeated),
        Figure(
            key="requests_tick",
            title="Tracker requests per poll (the poll and its reconciliation)",
            unit="",
            ours=found.per_poll,
            aims=(_at_most(found.per_poll, 2, ""),),
        ),
        Figure(
            key="requests_session",
            title="Further tracker requests per session",
            unit="",
            ours=found.requests,
        ),
    )


def of_delay(key: str, title: str, found: Delay, *, limit_ms: float | None) -> Figure:
    ours, floor = found.ms["symphony"], found.ms["floor"]
    aims = () if limit_ms is None else (_at_most(ours, limit_ms, "ms"),)
    return Figure(key=key, title=title, unit="ms", ours=ours, floor=floor, aims=aims)


def of_saved(saved_ms: float) -> Figure:
    title = "Issue saved on the board to its agent, median"
    return Figure(
        key="saved_to_start", title=title, unit="ms", ours=saved_ms, aims=(_at_most(saved_ms, 250, "ms"),)
    )


def of_asking(found: Asked) -> Sequence[Figure]:
    board = f"a board of {found.issues:,} issues"
    rows = (
        ("help", "`symphony --help`, median", found.help_ms, 200),
        ("status", "`symphony status`, median", found.status_ms, 400),
        ("full_status", f"`symphony status` with {board}, median", found.full_status_ms, 1_000),
        ("scrape", f"Processor time of `GET /metrics` with {board}", found.scrape_ms, 50),
        ("blocked", f"Longest wait for an answer while {board} is polled", found.blocked_ms, 50),
    )
    figures = [
        Figure(key=key, title=title, unit="ms", ours=ours, aims=(_at_most(ours, limit, "ms"),))
        for key, title, ours, limit in rows
    ]
    beside = Figure(
        key="state",
        title=f"Processor time of a state of 50 rows with {board}, beside that scrape",
        unit="ms",
        ours=found.state_ms,
        floor=found.scrape_ms,
        aims=(_ratio_at_most(found.state_ms, found.scrape_ms, 2, "a scrape"),),
    )
    return [*figures, beside]


def of_soak(found: Sequence[Held]) -> Sequence[Figure]:
    """The last look beside the first one."""
    first, last = found[0], found[-1]
    rows = (
        ("memory", "memory (PSS, with helpers)", "MB", first.pss_kb / 1024, last.pss_kb / 1024),
        ("descriptors", "file descriptors", "", first.descriptors, last.descriptors),
        ("threads", "threads", "", first.threads, last.threads),
        ("journal", "the journal", "MB", first.journal_kb / 1024, last.journal_kb / 1024),
    )
    return [
        Figure(
            key=f"soak_{key}",
            title=f"After {last.sessions:,} sessions, beside {first.sessions:,}: {what}",
            unit=unit,
            ours=after,
            floor=before,
            aims=(Aim(text="≤ 1.05 x", met=after <= 1.05 * before),),
        )
        for key, what, unit, before, after in rows
    ]


def of_footprint(found: Footprint) -> Sequence[Figure]:
    ours, floor, threads = found.memory_mb["symphony"], found.memory_mb["floor"], found.threads["symphony"]
    _, few, *_, most = ours
    idle = Figure(
        key="memory_idle",
        title="Memory (PSS, with helpers) without a session",
        unit="MB",
        ours=ours[0],
        floor=floor[0],
        aims=(_at_most(ours[0], 80, "MB"),),
    )
    rows = [
        Figure(
            key=f"memory_{count}",
            title=f"Memory (PSS, with helpers) with {count} silent sessions",
            unit="MB",
            ours=ours[count],
            floor=floor[count],
            aims=(Aim(text="≤ 1 MB for each more", met=ours[count] - ours[before] <= count - before),),
        )
        for before, count in pairwise(ours)
    ]
    added = threads[most] - threads[few]
    return (idle, *rows, _none("threads", f"Threads added by {few} to {most} silent sessions", added))


def of_workspaces(found: Workspaces) -> Sequence[Figure]:
    ours = found.ours_ms
    return (
        Figure(
            key="workspace",
            title=f"Workspace of {found.files:,} files, {found.repository_mb:.0f} MB of history",
            unit="ms",
            ours=ours,
            floor=found.worktree_ms,
            aims=(
                _ratio_at_most(ours, found.worktree_ms, 1.3, "git worktree add"),
                Aim(text="≤ 1/20 of a full clone", met=ours * 20 <= found.clone_ms),
            ),
        ),
        Figure(key="clone", title="Full clone of it", unit="ms", ours=found.clone_ms),
        Figure(
            key="object_stores",
            title=f"Object stores behind {found.count} workspaces ({found.own_kb:.1f} KB of git data each)",
            unit="",
            ours=found.stores,
            aims=(Aim(text="= 1", met=found.stores == 1),),
        ),
    )


def of_second_workspace(found: SecondWorkspace) -> Sequence[Figure]:
    ours, floor = median(found.ms["ssh"]), median(found.ms["local"])
    return (
        Figure(
            key="host_workspace",
            title=f"Second workspace of {found.mb:.0f} MB on a host, to its agent; floor: on this machine",
            unit="ms",
            ours=ours,
            floor=floor,
            aims=(Aim(text="≤ 4 x this machine", met=found.ratio <= 4),),
        ),
    )


def of_carried(found: Carried) -> Sequence[Figure]:
    """A row for each carrier; its floor is a session on this machine."""
    return [
        Figure(
            key=f"{key}_{carrier}",
            title=f"{title}: {carrier}",
            unit=unit,
            ours=by[carrier],
            floor=by["local"],
        )
        for key, title, unit, by in (
            ("carrier_rate", "Sessions per second by carrier", "/s", found.rate),
            (
                "carrier_session",
                "Processor time of the daemon per session by carrier",
                "ms",
                found.session_ms,
            ),
            (
                "carrier_events",
                "Processor time of the daemon per 10,000 streamed events by carrier",
                "ms",
                found.events_ms,
            ),
        )
        for carrier in CARRIERS[1:]
    ]


def of_at_once(found: AtOnce, *, sessions: int, hosts: int) -> Sequence[Figure]:
    many = f"{sessions} sessions over {hosts} hosts"
    return (
        Figure(
            key="hosts_most",
            title=f"{many}: most at a time on one of them",
            unit="",
            ours=found.most,
            floor=sessions // hosts,
            aims=(Aim(text=f"= {sessions // hosts}", met=found.most == sessions // hosts),),
        ),
        _none("hosts_lost", f"{many}: lost", found.lost),
        _none("hosts_repeated", f"{many}: started more than once", found.repeated),
        Figure(key="hosts_start", title=f"{many}: until all have an agent", unit="s", ours=found.start_s),
        Figure(
            key="hosts_start_cpu",
            title=f"{many}: processor time of the daemon per start",
            unit="ms",
            ours=found.start_ms,
        ),
        Figure(
            key="hosts_memory",
            title=f"{many}: memory of the daemon per session, without ssh",
            unit="MB",
            ours=found.daemon_mb,
        ),
        Figure(
            key="hosts_idle",
            title=f"{many}: processor time of the daemon in a second of silence",
            unit="ms",
            ours=found.idle_ms,
        ),
    )
