"""A storm: one daemon after another on the same board, killed in every way, and what must hold meanwhile.

Each life of the daemon gets new issues, loses agents, subreapers and its supervisor by SIGKILL and SIGSTOP,
and ends by a signal at a moment that the dice choose. Afterwards a daemon in calm weather finishes what is
left, and the books are looked through.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil

from chaos.agent import ODD_ATTEMPTS
from harness.project import DEADLINE_S, Daemon, Project, marked_processes
from harness.shell import word
from symphony.daemon.state_dir import instance_of
from symphony.journal.reader import checkup, open_reader
from symphony.processes.base import Identity
from symphony.processes.local import LocalHost

__all__ = ["Storm"]


_TESTS = Path(__file__).parents[1]
_NEVER_LOGGED = {
    "run_crashed", "effect_crashed", "decision_failed", "observer_failed", "tracker_crashed",
    "delivery_crashed", "reload_failed",
}  # fmt: skip
_ENDINGS = {
    "SIGKILL": 6,
    "SIGTERM": 2,
    "SIGINT": 1,
    "SIGTERM and SIGKILL": 1,
}


@dataclass
class Storm:
    """One storm below `root`; `problems` is what did not hold, a line each.

    With `kills` it ends after so many of them, of the daemon too, and nothing else happens to a board of
    `at_once` issues.
    """

    root: Path
    seed: str
    say: Callable[[str], object]
    at_once: int = 6
    kills: int | None = None
    problems: list[str] = field(default_factory=list)
    issues: list[str] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)  # noqa: S311 - to be thrown again
        self.project = Project(root=self.root / "place")
        self.witness = self.root / "witness"
        self.host = LocalHost(instance=instance_of(self.project.state_dir))

    def rage(self, seconds: float) -> "Storm":
        """Storm for about that long, then let it become calm, and look through the books."""
        self._prepare()
        deadline, number = time.monotonic() + seconds, 0
        while time.monotonic() < deadline and self._kills_left() and not self.problems:
            number += 1
            self._life(number)
        self._calm()
        self._look_through()
        return self

    # --- the scene ---------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.project.create()
        self.witness.mkdir()
        self.project.environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(_TESTS), os.environ.get("PYTHONPATH")))
        )
        agent = [sys.executable, str(_TESTS / "chaos" / "agent.py"), str(self.witness), self.seed]
        self.project.workflow(
            command=f"exec {shlex.join(agent)}",
            agent={
                "max_concurrent_agents": 4,
                "max_retry_backoff_ms": 200,
                "drain_timeout_ms": 1_000,
                # `run --once` gives up after so many, and bad weather and kills cost attempts too
                "max_attempts_without_progress": 3 * ODD_ATTEMPTS,
            },
            codex={"stall_timeout_ms": 6_000},
        )

    def _more_issues(self) -> None:
        open_ones = sum(self.project.written_state(name) != "Done" for name in self.issues)
        for _ in range(self.at_once - open_ones):
            name = f"SYM-{len(self.issues) + 1}"
            note = {"run": f"git rev-parse HEAD >> {word(self.witness / name / 'commits')}"}
            self.project.issue(
                name,
                [{"append": "work.txt", "text": "one\n"}, {"sleep_ms": 150}, {"commit": "One"}, note],
                [
                    {"append": "work.txt", "text": "two\n"},
                    {"commit": "Two"},
                    note,
                    {"tool": "board_move", "arguments": {"state": "Done"}},
                ],
            )
            self.issues.append(name)

    # --- one life ----------------------------------------------------------------------------------------

    def _life(self, number: int) -> None:
        if self.kills is None or number == 1:
            self._more_issues()
        left = self.host.find_survivors()
        with self._daemon(number) as daemon:
            try:
                daemon.wait_for("serving")
            except AssertionError:
                self._complain(f"life {number} did not begin: {daemon.log.read_text()[-2_000:]}")
                return
            self._gone(left, f"what was left before life {number}")
            for _ in range(self.dice.randint(1, 6)):
                self._pass(daemon, self.dice.uniform(0.05, 0.8))
                self._strike(daemon)
            # A short storm may have few lives: the first one is always killed.
            mild = self.kills is None and number > 1
            ending = self.dice.choices([*_ENDINGS], [*_ENDINGS.values()])[0] if mild else "SIGKILL"
            self._end(daemon, ending, number)
        self.tally[f"daemon: {ending}"] += 1
        self._check_log(daemon, f"life {number}")
        self._check_journal(f"after life {number}")

    @contextmanager
    def _daemon(self, number: int) -> Iterator[Daemon]:
        log = self.root / f"life-{number}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "chaos.daemon", "--dice", f"{self.seed} {number}", "WORKFLOW.md"],
                cwd=self.project.repo,
                env=self.project.env(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=sink,
            )
        try:
            yield Daemon(process=process, log=log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _pass(self, daemon: Daemon, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            daemon.process.wait(seconds)
            self._complain(f"the daemon ended by itself: {daemon.log.read_text()[-2_000:]}")

    def _strike(self, daemon: Daemon) -> None:
        """Kill or freeze an agent or what holds it, or say SIGHUP to the daemon, or let things be."""
        blows = ("SIGKILL", "SIGSTOP", "SIGHUP", None, None) if self.kills is None else ("SIGKILL",)
        what = self.dice.choice(blows)
        if what == "SIGHUP":
            daemon.signal(signal.SIGHUP)
        elif what is not None:
            kind = self.dice.choices(("agent", "subreaper", "supervisor"), (3, 2, 1))[0]
            self._hit(kind, signal.Signals[what], daemon)

    def _kills_left(self) -> bool:
        """Whether it goes on, as far as the number of kills says."""
        done = sum(count for what, count in self.tally.items() if what.endswith(": SIGKILL"))
        return self.kills is None or done < self.kills

    def _hit(self, kind: str, what: signal.Signals, daemon: Daemon) -> None:
        """Send a signal to a process of a kind, if there is one."""
        victims = self._agents() if kind == "agent" else self._holders(daemon)[kind]
        if victims:
            with suppress(ProcessLookupError):
                os.kill(self.dice.choice(victims), what)
                self.tally[f"{kind}: {what.name}"] += 1

    def _holders(self, daemon: Daemon) -> dict[str, list[int]]:
        """The pids of the daemon's supervisors and of their subreapers."""
        found: dict[str, list[int]] = {"supervisor": [], "subreaper": []}
        with suppress(psutil.Error):
            for supervisor in psutil.Process(daemon.process.pid).children():
                if "supervisor_program.py" in " ".join(supervisor.cmdline()):
                    found["supervisor"].append(supervisor.pid)
                    found["subreaper"] += [each.pid for each in supervisor.children()]
        return found

    def _agents(self) -> list[int]:
        ours = {one.pid for one in self.host.find_survivors()}
        return sorted(process.pid for process in marked_processes() if process.pid in ours)

    def _end(self, daemon: Daemon, how: str, number: int) -> None:
        for name in how.split(" and "):
            daemon.signal(signal.Signals[name])
            if name != how:
                self._wait_a_little(daemon, self.dice.uniform(0, 0.5))
        try:
            code = daemon.end()
        except subprocess.TimeoutExpired:
            self._complain(f"life {number} did not end after {how}: {daemon.log.read_text()[-2_000:]}")
            return
        if "KILL" not in how:
            if code != 0:
                self._complain(f"life {number} ended with {code} after {how}")
            self._gone(self.host.find_survivors(), f"after {how} in life {number}")

    def _wait_a_little(self, daemon: Daemon, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            daemon.process.wait(seconds)

    # --- what must hold ----------------------------------------------------------------------------------

    def _complain(self, what: str) -> None:
        self.problems.append(what)
        self.say(f"PROBLEM {what}")

    def _gone(self, ones: tuple[Identity, ...], where: str) -> None:
        if alive := [one.pid for one in ones if self.host.is_alive(one)]:
            self._complain(f"alive {where}: {alive}")

    def _check_log(self, daemon: Daemon, where: str) -> None:
        for line in daemon.events():
            if line.get("event") in _NEVER_LOGGED:
                self._complain(f"{where}: {json.dumps(line)[:3_000]}")

    def _check_journal(self, where: str) -> None:
        found = checkup(self.project.state_dir / "journal.db")
        if found.failure is not None or found.aside:
            self._complain(f"the journal {where}: {found}")

    def _calm(self) -> None:
        with self.project.daemon("--once") as daemon:
            try:
                code = daemon.end(2 * DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._complain(f"it did not become calm: {daemon.log.read_text()[-4_000:]}")
                return
        if code != 0 and not self._claimed():  # it says so where a person is asked for
            self._complain(f"the last one ended with {code}: {daemon.log.read_text()[-2_000:]}")
        self._check_log(daemon, "in calm weather")

    def _look_through(self) -> None:
        self._gone(self.host.find_survivors(), "at the end")
        self._check_journal("at the end")
        if overlaps := sorted(path.parent.name for path in self.witness.rglob("overlap-*")):
            self._complain(f"two agents at once: {overlaps}")
        waiting = self._claimed()
        for name in self.issues:
            self._look_at(name, waiting)
        inner = self.project.workspaces / ".symphony"
        if left := [path.name for place in ("staging", "trash") for path in (inner / place).iterdir()]:
            self.tally["left in staging and trash"] += len(left)
        self.tally["issues"] = len(self.issues)
        self.tally["agents"] = len(list(self.witness.rglob("attempt-*")))

    def _claimed(self) -> dict[str, Any]:
        """What waits for a person, or for the next daemon: `--once` gives up what fails again and again."""
        with open_reader(self.project.state_dir / "journal.db") as journal:
            return {
                one.issue.identifier: one
                for one in (record.claim for record in journal.claims())
                if one.failure or one.error
            }

    def _look_at(self, name: str, waiting: dict[str, Any]) -> None:
        done, log = self.project.written_state(name) == "Done", self._branch(name)
        if done and (len(log) != 2 or self._work(name) != "one\ntwo"):
            self._complain(f"{name} is done, and its branch is {log}: {self._work(name)!r}")
        if done and (self.project.workspaces / name).exists():
            self._complain(f"{name} is done, and its workspace is still there")
        if not done:
            self.tally["blocked"] += 1
            if name not in waiting:
                self._complain(f"{name} is {self.project.written_state(name)}, and waits for nothing")
        for commit in self._commits(name):
            if not self._holds(name, commit):
                self._complain(f"commit {commit} of {name} is lost")
        kinds = Counter(_key(text) for text in self.project.comments(name))
        if twice := [key for key, count in kinds.items() if key and count > 1]:
            self._complain(f"{name} has a comment twice: {twice}")

    def _branch(self, name: str) -> list[str]:
        with suppress(subprocess.CalledProcessError):
            return self.project.branch_log(name)
        return []

    def _work(self, name: str) -> str:
        """What stands in the file on the issue's branch.

        An agent that was ended between writing and committing leaves that to the next one, whose first commit
        then holds it: the words of the commits may differ, their number and the work may not.
        """
        with suppress(subprocess.CalledProcessError):
            return self.project.git("show", f"symphony/{name}:work.txt")
        return ""

    def _commits(self, name: str) -> set[str]:
        path = self.witness / name / "commits"
        return set(path.read_text().split()) if path.exists() else set()

    def _holds(self, name: str, commit: str) -> bool:
        """Whether it is on the issue's branch, or still in the workspace of one that is not done."""
        for place in (self.project.repo, self.project.workspaces / name):
            branch = f"symphony/{name}"
            asked = ["git", "-C", str(place), "merge-base", "--is-ancestor", commit, branch]
            if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
                return True
        return False


def _key(comment: str) -> str | None:
    """What makes a comment the daemon's own, and of which kind it is; null for others."""
    return next((line for line in comment.splitlines() if line.startswith("key:")), None)
