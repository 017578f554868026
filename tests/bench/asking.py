"""How long a person waits for a command, and how long a poll of a large board keeps a daemon busy."""

import gc
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.kit import Scene, environment, median, until

_POLL_MS = 1_000
_POLLS = 5
_SCRAPES = 20
_STATE = "/api/v1/state?waiting=50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Medians in ms of commands as whole processes; `blocked_ms` is the longest answer to `/healthz`.

    `help_ms` is `symphony --help`, `status_ms` is `symphony status` with an empty board, and `full_status_ms`
    the same with `issues` waiting on it. `blocked_ms` is the worst from the start of a daemon through its
    first polls of that board. `scrape_ms` is the processor time of one `GET /metrics` with it, and `state_ms`
    that of a state that lists 50 issues.
    """

    issues: int
    help_ms: float
    status_ms: float
    full_status_ms: float
    blocked_ms: float
    scrape_ms: float
    state_ms: float


def asking(place: Path, agent: tuple[str, ...], *, issues: int, rounds: int) -> Asked:
    """Ask a daemon without issues, and one whose only agent is busy while `issues` wait."""
    empty = Scene(place=place / "empty", agent=agent)
    with empty.run("symphony") as program:
        empty.wait_told("fetch", 1)
        program.settle()
        help_ms = _command(empty, ["--help"], rounds)
        status_ms = _command(empty, ["status"], rounds)
    full = Scene(place=place / "full", agent=agent, switches=("--hold",), poll_ms=_POLL_MS)
    for number in range(issues):
        full.issue(f"WAIT-{number:05}")
    with full.run("symphony"):
        blocked_ms = _longest_answer(full)
        full.wait_agents("turn", 1)
        full_status_ms = _command(full, ["status"], rounds)
        scrape_ms = _processor_ms(full, "/metrics")
        state_ms = _processor_ms(full, _STATE)
    return Asked(
        issues=issues,
        help_ms=help_ms,
        status_ms=status_ms,
        full_status_ms=full_status_ms,
        blocked_ms=blocked_ms,
        scrape_ms=scrape_ms,
        state_ms=state_ms,
    )


def _command(scene: Scene, arguments: Sequence[str], rounds: int) -> float:
    taken = []
    for _ in range(rounds + 1):
        begun_ns = time.monotonic_ns()
        subprocess.run(
            [sys.executable, "-m", "symphony", *arguments],
            cwd=scene.place,
            env=environment(scene.place),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        taken.append((time.monotonic_ns() - begun_ns) / 1e6)
    return median(taken[1:])


def _processor_ms(scene: Scene, path: str) -> float:
    """The processor time of an answer, as the daemon counts its own; polls meanwhile are part of it."""
    socket = until(lambda: next(iter(scene.state.rglob("*.sock")), None), "the control socket")
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(socket), verify=False), base_url="http://symphony"
    ) as client:
        client.get("/metrics")  # the first scrape loads the library
        begun_s = _processor_s(client)
        for _ in range(_SCRAPES - 1):
            client.get(path).raise_for_status()
        return (_processor_s(client) - begun_s) * 1_000 / _SCRAPES  # the last scrape is one of them


def _processor_s(client: httpx.Client) -> float:
    text = client.get("/metrics").raise_for_status().text
    (line,) = (line for line in text.splitlines() if line.startswith("process_cpu_seconds_total "))
    return float(line.split()[1])


def _longest_answer(scene: Scene) -> float:
    """Ask for `/healthz` again and again from the start of the daemon on, until it has polled a few times."""
    longest_ms = 0.0
    socket = until(lambda: next(iter(scene.state.rglob("*.sock")), None), "the control socket")
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(socket), verify=False), base_url="http://symphony"
    ) as client:
        client.get("/healthz")
        gc.collect()  # else a collection of this process may count as a wait for the daemon
        while len(scene.told("fetch")) < _POLLS:
            begun_ns = time.monotonic_ns()
            client.get("/healthz").raise_for_status()
            longest_ms = max(longest_ms, (time.monotonic_ns() - begun_ns) / 1e6)
            time.sleep(0.002)
    return longest_ms
