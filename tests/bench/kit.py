"""What every measurement needs: a place, the fast agent, both programs as processes, their journals."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

import psutil

from symphony.processes.supervisor_program import served_by

__all__ = [
    "DEADLINE_S",
    "PYTHON_AGENT",
    "Entry",
    "Kind",
    "Program",
    "Scene",
    "agent_argv",
    "cpu_ns",
    "median",
    "until",
]


T = TypeVar("T")
Kind = Literal["floor", "symphony"]

DEADLINE_S = 600.0
_HERE = Path(__file__).parent
_SRC = _HERE.parent.parent / "src"
PYTHON_AGENT = (sys.executable, "-S", "-E", str(_HERE / "fast_agent.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a journal; `figures` are what stands behind the issue."""

    at_ns: int
    event: str
    issue: str
    figures: tuple[int, ...]


def agent_argv(place: Path) -> tuple[str, ...]:
    """The fast agent: compiled into `place` where there is a C compiler, else the one in Python."""
    compiler = shutil.which("cc")
    if compiler is not None:
        binary = place / "fast_agent"
        subprocess.run([compiler, "-O2", "-o", binary, _HERE / "fast_agent.c"], check=True)
        return (str(binary),)
    return PYTHON_AGENT


def cpu_ns(pid: int) -> int:
    """Processor time of a process with all its threads, ended ones too, in ns (the kernel's clock of it)."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def until(
    probe: Callable[[], T | None], what: str, *, deadline_s: float = DEADLINE_S, pause_s: float = 0.001
) -> T:
    """Ask, every millisecond unless told otherwise, until there is an answer."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        if (answer := probe()) is not None:
            return answer
        time.sleep(pause_s)
    raise TimeoutError(what)


@dataclass
class Program:
    """One of the two programs while it runs."""

    kind: Kind
    scene: "Scene"
    process: "subprocess.Popen[bytes]"
    started_ns: int

    @property
    def cpu_ns(self) -> int:
        """Processor time of the process alone."""
        return cpu_ns(self.process.pid)

    @property
    def helped_cpu_ns(self) -> int:
        """Processor time of the process and of its helpers that live, agents apart."""
        return sum(map(cpu_ns, (self.process.pid, *self.helpers)))

    @property
    def tree_cpu_ns(self) -> int:
        """Processor time of all that it has started and reaped, agents too, and of all that lives."""
        found = 0.0
        for one in (psutil.Process(self.process.pid), *_family(self.process.pid)):
            with suppress(psutil.NoSuchProcess):
                found += sum(one.cpu_times()[:4])  # user and system, its own and those of reaped children
        return int(found * 1e9)

    @property
    def helpers(self) -> tuple[int, ...]:
        """The pids of the supervisor and its subreapers, which all run one program; the floor has none."""
        found = []
        for one in _family(self.process.pid):
            with suppress(psutil.NoSuchProcess):
                if served_by(tuple(one.cmdline())) is not None:
                    found.append(one.pid)
        return tuple(found)

    @property
    def pss_kb(self) -> int:
        """Memory of the process and its helpers; what several processes share is divided among them."""
        return sum(map(_pss_kb, (self.process.pid, *self.helpers)))

    @property
    def threads(self) -> int:
        return int(psutil.Process(self.process.pid).num_threads())

    @property
    def descriptors(self) -> int:
        return int(psutil.Process(self.process.pid).num_fds())

    def appear(self, issue: str) -> None:
        """Let an issue appear: a line for the floor, a file on the board for the daemon."""
        if self.kind == "floor":
            assert self.process.stdin is not None
            self.process.stdin.write(f"{issue}\n".encode())
            self.process.stdin.flush()
        else:
            self.scene.issue(issue)

    def settle(self) -> None:
        """Wait until it has nothing to do: less than 2 ms of processor time in 60 ms."""

        def quiet() -> bool | None:
            before = self.cpu_ns
            time.sleep(0.06)
            return True if self.cpu_ns - before < 2_000_000 else None

        until(quiet, f"{self.kind} does not come to rest")


@dataclass
class Scene:
    """A board, a workflow and the journals of one measurement with one program.

    What the programs and the agents write lies in a directory of its own: beside WORKFLOW.md, which the
    daemon watches, each line would wake it, and the floor, which watches nothing, not.
    """

    place: Path
    agent: Sequence[str]
    limit: int = 1
    switches: Sequence[str] = ()
    repo: Path | None = None
    poll_ms: int = 30_000
    settings: dict[str, Any] = field(default_factory=dict)
    worker: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gate.mkdir(parents=True)
        self.board.mkdir(parents=True)
        self.journal.parent.mkdir()
        (self.place / "home").mkdir()
        command = [
            *self.agent,
            "--journal",
            str(self.agent_journal),
            "--gate",
            str(self.gate),
            *self.switches,
        ]
        front = {
            "tracker": {"kind": "markdown"},
            "polling": {"interval_ms": self.poll_ms},
            "workspace": {
                "root": str(self.workspaces),
                **({} if self.repo is None else {"repo": str(self.repo)}),
            },
            "agent": {"max_concurrent_agents": self.limit},
            "codex": {"command": shlex.join(command), **self.settings},
            **({"worker": self.worker} if self.worker else {}),
        }
        text = f"---\n{json.dumps(front, indent=1)}\n---\n{{{{ issue.identifier }}}}: {{{{ issue.title }}}}\n"
        (self.place / "WORKFLOW.md").write_text(text, "utf-8")

    @property
    def board(self) -> Path:
        return self.place / ".symphony" / "issues"

    @property
    def workspaces(self) -> Path:
        return self.place / "workspaces"

    @property
    def gate(self) -> Path:
        return self.place / "gate"

    @property
    def agent_journal(self) -> Path:
        return self.place / "told" / "agents.txt"

    @property
    def journal(self) -> Path:
        return self.place / "told" / "program.txt"

    @property
    def state(self) -> Path:
        return self.place / "state"

    @property
    def log(self) -> Path:
        return self.place / "told" / "log.txt"

    def issue(self, name: str, *, state: str = "Todo") -> None:
        """Write an issue as a whole, as an editor does."""
        draft = self.board / f".{name}.tmp"
        draft.write_text(f"---\ntitle: Issue {name}\nstate: {state}\n---\nNothing to say.\n", "utf-8")
        draft.replace(self.board / f"{name}.md")

    def open(self, gate: str) -> None:
        """Let the agents that wait at a gate (`<issue>.<burst>` or `<issue>.end`) go on."""
        (self.gate / gate).touch()

    def agents(self, event: str) -> list[Entry]:
        """What the agents wrote about an event, without those of the preflight."""
        found = (_agent_entry(line) for line in _lines(self.agent_journal))
        return [entry for entry in found if entry.event == event and not entry.issue.startswith("preflight-")]

    def told(self, event: str) -> list[Entry]:
        """What the program wrote about an event."""
        found = (_entry(line) for line in _lines(self.journal))
        return [entry for entry in found if entry.event == event]

    def wait_agents(self, event: str, count: int, *, pause_s: float = 0.001) -> list[Entry]:
        """Wait until agents have written about an event so often."""
        what = f"agents: {event} x {count} in {self.place}"
        return until(lambda: _enough(self.agents(event), count), what, pause_s=pause_s)

    def wait_told(self, event: str, count: int, *, pause_s: float = 0.001) -> list[Entry]:
        """Wait until the program has written about an event so often."""
        what = f"{event} x {count} in {self.place}"
        return until(lambda: _enough(self.told(event), count), what, pause_s=pause_s)

    @contextmanager
    def run(self, kind: Kind, *, module: str | None = None) -> Iterator[Program]:
        """The floor or the daemon as a process; both are ended at the end, agents included."""
        module = module or ("bench.floor" if kind == "floor" else "bench.served")
        arguments = ["run", "WORKFLOW.md"] if module == "symphony" else ["WORKFLOW.md", str(self.journal)]
        started_ns = time.monotonic_ns()
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=self.place,
                env=environment(self.place),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield Program(kind=kind, scene=self, process=process, started_ns=started_ns)
            if process.poll() is not None:
                raise RuntimeError(f"{kind} ended early: {self.log.read_text('utf-8')[-2000:]}")
        finally:
            _end(process)


def environment(place: Path) -> dict[str, str]:
    """Nothing of the caller's but what Python and git need; byte code is cached, as in an installation."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(place / "home"),
        "SYMPHONY_STATE_DIR": str(place / "state"),
        "PYTHONPATH": f"{_SRC}{os.pathsep}{_HERE.parent}",
        "PYTHONPYCACHEPREFIX": str(Path(sysconfig.get_path("purelib")).parent / "bench-bytecode"),
    }


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Two signals, which the daemon reads as "stop now"; force for whatever is left of its children."""
    family = _family(process.pid)
    if process.stdin is not None:
        process.stdin.close()
    for _ in range(2):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for member in family:
        try:
            member.kill()
        except psutil.Error:
            continue


def _pss_kb(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _enough(found: list[Entry], count: int) -> list[Entry] | None:
    return found if len(found) >= count else None


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return []
    return text[: text.rfind("\n") + 1].splitlines()


def _entry(line: str) -> Entry:
    at, event, issue, *figures = line.split()
    return Entry(at_ns=int(at), event=event, issue=issue, figures=tuple(map(int, figures)))


def _agent_entry(line: str) -> Entry:
    """`<ns> <pid> <issue> <event> <figures>`"""
    at, pid, issue, event, *figures = line.split()
    return Entry(at_ns=int(at), event=event, issue=issue, figures=(*map(int, figures), int(pid)))
