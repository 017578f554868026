"""Sessions on hosts beside sessions on this machine: a second workspace, rates, events, and 200 at once.

A carrier is what leads to the worker of a session. `local` is none: the worker is a task of the daemon.
`stdio` is the worker program over two pipes, without a network and without encryption: a stand-in for the ssh
client starts it on this machine. `ssh` is the same over OpenSSH's client and server, on this machine too.
`ray` is an actor of a Ray cluster in network namespaces; `SYMPHONY_TEST_RAY` names a Python that has Ray.
"""

import os
import random
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import Any

from bench.kit import Program, Scene, environment, median, until
from harness.on_ray import ray_python
from harness.real import find_program
from harness.ssh import plain_python, ssh_server
from kit.ray_cluster import ray_cluster

__all__ = [
    "CARRIERS",
    "AtOnce",
    "Carried",
    "SecondWorkspace",
    "at_once",
    "available",
    "carried",
    "second_workspace",
]

_RAY = os.environ.get("SYMPHONY_TEST_RAY")
CARRIERS = ("local", "stdio", "ssh", *(("ray",) if _RAY else ()))
_PATIENCE_S = 1_800.0
_FILE_BYTES = 50_000
_IDLE_S = 5.0
_SLOTS = 8

_STAND_IN = """\
#!/bin/sh
# In place of ssh: the master connection is a file, and a command runs here.
for word do
    [ "$before" = -S ] && socket=$word
    [ "$word" = -N ] && master=yes
    before=$word last=$word
done
[ -n "$master" ] && { : > "$socket"; exec sleep 1000000; }
cd && exec sh -c "$last"
"""


def available() -> bool:
    """Whether this machine has OpenSSH's client and server."""
    return find_program("sshd") is not None and find_program("ssh") is not None


@contextmanager
def _worker(place: Path, carrier: str, *, hosts: int = 1) -> Iterator[dict[str, Any]]:
    """The section `worker` of a workflow whose sessions go by a carrier."""
    place.mkdir(parents=True)
    if carrier == "local":
        yield {}
    elif carrier == "stdio":
        client = place / "stand-in"
        client.write_text(_STAND_IN)
        client.chmod(client.stat().st_mode | stat.S_IXUSR)
        ssh = {"command": str(client), "python": plain_python(sys.executable), "remote_root": "work"}
        yield {"ssh_hosts": ["here"], "ssh": ssh}
    elif carrier == "ray":
        assert _RAY is not None
        with ray_cluster(Path(_RAY), slots=_SLOTS) as cluster:
            python, work = ray_python(cluster, place), place / "work"
            yield {"ray": {"address": cluster.address, "python": str(python), "remote_root": str(work)}}
    else:
        with ExitStack() as stack:
            first = stack.enter_context(ssh_server(place / "host-0", config=_MANY))
            servers = [first] + [
                stack.enter_context(ssh_server(place / f"host-{number}", like=first, config=_MANY))
                for number in range(1, hosts)
            ]
            yield {"ssh_hosts": [one.name for one in servers], "ssh": first.section(sys.executable)}


_MANY = {"MaxSessions": "1000", "MaxStartups": "1000"}


# --- a second workspace ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondWorkspace:
    """From the moment the daemon knows of an issue to its agent, in ms, by carrier; each round on both.

    `mb` is the size of the checkout, and about that of its history.
    """

    ms: dict[str, list[float]]
    mb: float

    @property
    def ratio(self) -> float:
        """The median of the ratios within one round."""
        return median(far / near for near, far in zip(self.ms["local"], self.ms["ssh"], strict=True))


def second_workspace(place: Path, agent: tuple[str, ...], *, files: int, rounds: int) -> SecondWorkspace:
    """New workspaces by turns, here and on a host that has the repository; the sessions stay."""
    repository = _repository(place / "repository", files)
    ms: dict[str, list[float]] = {"local": [], "ssh": []}
    with ExitStack() as stack:
        programs: dict[str, Program] = {}
        for carrier in ms:
            scene = Scene(
                place=place / carrier,
                agent=agent,
                limit=rounds + 1,
                switches=("--hold",),
                settings={"stall_timeout_ms": 0},
                repo=repository,
                worker=stack.enter_context(_worker(place / f"hosts-{carrier}", carrier)),
            )
            programs[carrier] = stack.enter_context(scene.run("symphony"))
        for number in range(rounds + 1):
            for carrier, program in programs.items():
                scene = program.scene
                os.sync()  # nobody pays for what another has written before
                program.settle()
                program.appear(f"BIG-{number}")
                begun = scene.wait_agents("turn", number + 1)[-1].at_ns
                if number:  # the first one takes the repository there
                    ms[carrier].append((begun - scene.told("seen")[-1].at_ns) / 1e6)
    return SecondWorkspace(ms=ms, mb=files * _FILE_BYTES / 1e6)


def _repository(place: Path, files: int) -> Path:
    """One commit of files that do not compress, the same in every run."""
    chance = random.Random(20_261_127)  # noqa: S311 - test data
    for number in range(files):
        path = place / f"d{number % 40:02}" / f"f{number:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(_FILE_BYTES))
    who = ("-c", "user.name=Bench", "-c", "user.email=bench@localhost")
    for words in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all"),
        (*who, "commit", "--quiet", "-m", "All"),
        ("repack", "-a", "-d", "--quiet", "--window=0"),
    ):
        run(["git", "-C", place, *words], check=True, env=environment(place.parent))
    return place


# --- rates and events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """By carrier: sessions per second, and processor time of the daemon alone.

    Attributes:
        rate: sessions per second, from the first agent's start to the last one's end.
        session_ms: per session.
        events_ms: per 10,000 events of an agent.
    """

    rate: dict[str, float]
    session_ms: dict[str, float]
    events_ms: dict[str, float]


def carried(place: Path, agent: tuple[str, ...], *, issues: int, limit: int, events: int) -> Carried:
    """The same board and the same bursts by each carrier, one after the other."""
    rate, session_ms, events_ms = dict[str, float](), dict[str, float](), dict[str, float]()
    for carrier in CARRIERS:
        with _worker(place / f"hosts-{carrier}", carrier) as worker:
            rate[carrier], session_ms[carrier] = _sessions(
                place / f"many-{carrier}", agent, worker, issues, limit
            )
            events_ms[carrier] = _events(place / f"events-{carrier}", agent, worker, events)
    return Carried(rate=rate, session_ms=session_ms, events_ms=events_ms)


def _sessions(
    place: Path, agent: Sequence[str], worker: dict[str, Any], issues: int, limit: int
) -> tuple[float, float]:
    scene = Scene(
        place=place, agent=agent, limit=limit, switches=("--turn-ms", "400", "--move", "Done"), worker=worker
    )
    for number in range(issues):
        scene.issue(f"MANY-{number:03}")
    with scene.run("symphony") as program:
        _patiently(lambda: len(scene.agents("start")) >= 1)
        before = program.cpu_ns
        _patiently(lambda: len(scene.told("ended")) >= issues)
        spent = program.cpu_ns - before
    starts, exits = scene.agents("start"), scene.agents("exit")
    return issues / ((exits[-1].at_ns - starts[0].at_ns) / 1e9), spent / 1e6 / issues


def _events(place: Path, agent: Sequence[str], worker: dict[str, Any], events: int) -> float:
    bursts = 4
    scene = Scene(
        place=place, agent=agent, switches=("--events", str(events), "--bursts", str(bursts)), worker=worker
    )
    scene.issue("PUMP-1")
    spent = []
    with scene.run("symphony") as program:
        _patiently(lambda: len(scene.agents("turn")) >= 1)
        for number in range(1, bursts + 1):
            program.settle()
            before = program.cpu_ns
            scene.open(f"PUMP-1.{number}")
            scene.wait_agents("burst_end", number)
            program.settle()
            spent.append(program.cpu_ns - before)
    return median(spent[1:]) / 1e6 / events * 10_000


# --- many at once ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """Sessions that were all alive at once on several hosts, and then ended.

    Attributes:
        start_s: until the last agent had begun.
        most: runs at a time on one host.
        lost: issues whose session did not end as it should.
        repeated: issues that were started more than once.
        daemon_mb: resident memory of the daemon per session, without its clients.
        start_ms: processor time of the daemon per session, until all had begun.
        idle_ms: processor time of the daemon in a second with all sessions alive and silent.
    """

    start_s: float
    most: int
    lost: int
    repeated: int
    daemon_mb: float
    start_ms: float
    idle_ms: float


def at_once(place: Path, agent: tuple[str, ...], *, sessions: int, hosts: int) -> AtOnce:
    """As many sessions as the hosts may have; then a person ends all issues."""
    names = [f"FAR-{number:03}" for number in range(sessions)]
    with _worker(place / "hosts", "ssh", hosts=hosts) as worker:
        scene = Scene(
            place=place / "scene",
            agent=agent,
            limit=sessions,
            switches=("--hold",),
            settings={"stall_timeout_ms": 0},
            poll_ms=1_000,
            repo=_repository(place / "repository", 20),
            worker={**worker, "max_concurrent_agents_per_host": sessions // hosts},
        )
        with scene.run("symphony") as program:
            scene.wait_told("fetch", 1)
            program.settle()
            idle_kb, idle_ns, begun = program.pss_kb, program.cpu_ns, time.monotonic()
            for name in names:
                scene.issue(name)
            _patiently(lambda: len(scene.agents("turn")) >= sessions)
            start_s, spent = time.monotonic() - begun, program.cpu_ns - idle_ns
            per_host = Counter(
                path.parents[4].name for path in (place / "hosts").glob("*/home/work/*/*/FAR-*")
            )
            program.settle()
            full_kb, before = program.pss_kb, program.cpu_ns
            time.sleep(_IDLE_S)
            idle_ms = (program.cpu_ns - before) / 1e6 / _IDLE_S
            for name in names:
                scene.issue(name, state="Done")
            _patiently(lambda: len(scene.told("ended")) >= sessions)
    starts, ended = scene.agents("start"), scene.told("ended")
    return AtOnce(
        start_s=start_s,
        most=max(per_host.values()),
        lost=len(set(names) - {entry.issue for entry in ended}),
        repeated=len(starts) - len({entry.issue for entry in starts}),
        daemon_mb=(full_kb - idle_kb) / 1024 / sessions,
        start_ms=spent / 1e6 / sessions,
        idle_ms=idle_ms,
    )


def _patiently(holds: Callable[[], bool]) -> None:
    """Wait for what takes minutes."""
    until(lambda: holds() or None, "sessions on hosts", deadline_s=_PATIENCE_S, pause_s=0.2)
