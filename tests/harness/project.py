"""A real git repository with a board and a workflow, and the daemon as a real process beside it."""

import atexit
import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import psutil
from click.testing import CliRunner

import symphony
from harness.forks import SYMPHONY as PROGRAM
from harness.forks import Fork, Forks
from harness.in_process import ScriptedHost, SkippingClock
from harness.shell import word
from symphony.cli.commands.run import print_summary
from symphony.cli.failures import report
from symphony.cli.main import main
from symphony.cli.serving import serve
from symphony.domain import SymphonyError

__all__ = [
    "SKILL",
    "SYMPHONY",
    "Daemon",
    "Ended",
    "Logged",
    "Project",
    "dedent",
    "forks",
    "marked_processes",
    "remembering",
    "scripted",
    "until",
]


T = TypeVar("T")

SYMPHONY = (sys.executable, "-m", "symphony")
DEADLINE_S = 120.0
_PROCESSES = frozenset({"run", "demo", "diff", "evaluate"})
"""Commands that are always processes: they serve, close themselves, or leave output to other programs."""

SKILL = """\
---
name: {name}
description: {description}
---
# {name}

{body}
"""


def scripted(*switches: str) -> str:
    """The shell command that starts the scripted agent."""
    return shlex.join([sys.executable, "-m", "symphony.testing.scripted_agent", *switches])


def remembering(threads: Path, *switches: str) -> str:
    """The same of an agent that remembers its threads there; of this very source tree, like the daemon."""
    source = word(Path(symphony.__file__).parents[1])
    return f"PYTHONPATH={source} {scripted('--threads', str(threads), *switches)}"


@cache
def forks() -> Forks:
    """A process of this session of tests, in which daemons begin."""
    started = Forks().__enter__()
    atexit.register(started.__exit__, None, None, None)
    return started


@dataclass
class Project:
    """One repository below `root`; the daemon's state and workspaces lie beside it.

    `user` is whom the daemon and the commands run as; None for whoever runs the test. `python` runs them.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    user: int | None = None
    python: str = sys.executable

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    @property
    def workspaces(self) -> Path:
        return self.root / "workspaces"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def control_socket(self) -> str:
        """The control socket of the daemon, which is elsewhere if its path would be too long."""
        found: str = json.loads((self.state_dir / "control.json").read_text())["socket"]
        return found

    def create(self) -> "Project":
        """Make the repository: a copy of one that this process has made, which saves five commands of git."""
        shutil.copytree(_new_repository(), self.repo)
        return self

    def _begin(self) -> None:
        self.repo.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Tester")
        self.git("config", "user.email", "tester@localhost")
        self.write("README.md", "# Project\n")
        self.write(".gitignore", "/.symphony/issues/\n")
        self.commit("Begin")
        (self.repo / ".symphony" / "issues").mkdir(parents=True)

    # --- files ---

    def write(self, name: str, text: str) -> Path:
        """Write a file of the repository. A daemon that reads it meanwhile finds the old or the new text."""
        path = self.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.root / "unfinished"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
        return path

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.repo, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)

    def skill(self, name: str, *, description: str = "What it does.", body: str = "Do it.") -> None:
        text = SKILL.format(name=name, description=description, body=body)
        self.write(f".symphony/skills/{name}/SKILL.md", text)

    def workflow(self, *, command: str | None = None, body: str | None = None, **sections: Any) -> Path:
        """Write WORKFLOW.md; keyword arguments are merged into its sections, and lists replace them."""
        settings: dict[str, Any] = {
            "tracker": {"kind": "markdown"},
            "polling": {"interval_ms": 300},
            "workspace": {"root": str(self.workspaces), "repo": "."},
            "agent": {"max_retry_backoff_ms": 50, "budget": {"max_tokens_per_issue": 5_000_000}},
            # An interpreter takes longer than five seconds to begin where many others begin.
            "codex": {"command": command or scripted(), "read_timeout_ms": 60_000},
        }
        for section, values in sections.items():
            is_list = isinstance(values, list)
            settings[section] = values if is_list else {**settings.get(section, {}), **values}
        front = json.dumps(settings, indent=2)
        text = body or "{{ issue.identifier }}: {{ issue.title }}\n\n{{ issue.description }}\n"
        return self.write("WORKFLOW.md", f"---\n{front}\n---\n{text}")

    def issue(
        self,
        name: str,
        *turns: Sequence[Mapping[str, Any]],
        state: str = "Todo",
        title: str | None = None,
        extra: str = "",
        text: str = "",
    ) -> Path:
        """Write an issue file whose description holds the script of `turns`."""
        script = f"```scripted\n{json.dumps(list(turns))}\n```\n" if turns else ""
        front = f"title: {json.dumps(title or f'Issue {name}')}\nstate: {state}\n{extra}"
        return self.write(f".symphony/issues/{name}.md", f"---\n{front}---\n{text}\n{script}")

    # --- the board as it stands ---

    def state(self, name: str) -> str:
        done = self.symphony("issue", "show", name, "--json")
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["state"])

    def written_state(self, name: str) -> str:
        """The state that stands in the issue's file, without asking the command line."""
        text = (self.repo / ".symphony" / "issues" / f"{name}.md").read_text(encoding="utf-8")
        return next(line.removeprefix("state:").strip() for line in text.splitlines() if "state:" in line)

    def comments(self, name: str, *, kind: str | None = None) -> list[str]:
        """All comments of an issue, or those of the daemon of one kind, told by their marker."""
        folder = self.repo / ".symphony" / "issues" / name / "comments"
        texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))]
        return [text for text in texts if kind is None or f"<!-- symphony:{kind} v1 " in text]

    def branch_log(self, name: str) -> list[str]:
        return self.git("log", "--format=%s", f"main..symphony/{name}").splitlines()

    def tokens(self) -> list[int]:
        """The tokens of each run in the journal, oldest first."""
        query = "SELECT record FROM runs ORDER BY started_wall_ms"
        with closing(sqlite3.connect(self.state_dir / "journal.db")) as connection:
            facts = [json.loads(text).get("facts", {}) for (text,) in connection.execute(query)]
        return [each.get("tokens", {}).get("total_tokens", 0) for each in facts]

    # --- the command line ---

    def env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SYMPHONY_")}
        return {
            **kept,
            "SYMPHONY_STATE_DIR": str(self.state_dir),
            "HOME": str(self.root / "home"),
            "NO_COLOR": "1",
            **self.environment,
        }

    def symphony(
        self, *arguments: str, timeout_s: float = DEADLINE_S, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `symphony` to its end, in the repository unless told otherwise.

        What only looks or orders runs in the process of the test, which takes a tenth of the time;
        `tests/integration/cli/test_every_command.py` runs every command in one of its own.
        """
        (self.root / "home").mkdir(exist_ok=True)
        if self.user is None and self.python == sys.executable and not _PROCESSES.intersection(arguments):
            with chdir(cwd or self.repo):
                bare = CliRunner(env={**dict.fromkeys(os.environ), **self.env()})
                done = bare.invoke(main, arguments, prog_name="symphony")
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
        if self._forks:
            with tempfile.TemporaryDirectory(dir=self.root) as output:
                return forks().run(
                    PROGRAM,
                    arguments,
                    cwd=cwd or self.repo,
                    env=self.env(),
                    output=Path(output),
                    timeout_s=timeout_s,
                )
        return subprocess.run(
            [self.python, *SYMPHONY[1:], *arguments],
            cwd=cwd or self.repo,
            env=self.env(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else (),
        )

    @property
    def _forks(self) -> bool:
        """Whether an interpreter that has begun can serve: as this user, unmeasured, with its settings."""
        set_at_its_start = ("PYTHON", "LANG", "LC_", "COV")
        return (
            self.user is None
            and self.python == sys.executable
            and not any(name.startswith(set_at_its_start) for name in self.environment)
            and not any(name.startswith("COV") for name in os.environ)
        )

    def once(self, *, log_format: str = "json", **options: Any) -> "Ended":
        """`symphony run --once` in this process, whose threads play scripted agents; `options` of `serve`."""
        (self.root / "home").mkdir(exist_ok=True)
        log = self.root / f"daemon-{time.monotonic_ns()}.log"
        workflow, environment, clock = self.repo / "WORKFLOW.md", self.env(), SkippingClock()
        bare = CliRunner(env={**dict.fromkeys(os.environ), **environment})
        with chdir(self.repo), bare.isolation() as (_, errors, _):
            try:
                tally = serve(
                    workflow,
                    environment=environment,
                    once=True,
                    log_format=log_format,
                    host=ScriptedHost(),
                    now_ms=clock.now_ms,
                    observers=(clock,),
                    **options,
                )
                code = print_summary(tally, workflow)
            except SymphonyError as error:
                code = report(error)
            log.write_bytes(errors.getvalue())
        return Ended(log=log, returncode=code)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """`symphony` as a process that goes on; its caller waits for its end."""
        return subprocess.Popen(
            [*SYMPHONY, *arguments],
            cwd=self.repo,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def on_terminal(self, path: str, *arguments: str, env: Mapping[str, str]) -> Fork | None:
        """`symphony` leads a session with that terminal; `None` where it needs an interpreter of its own."""
        if not self._forks:
            return None
        return forks().on_terminal(PROGRAM, arguments, cwd=self.repo, env=env, terminal=path)

    @contextmanager
    def daemon(self, *arguments: str) -> Iterator["Daemon"]:
        """`symphony run` as a process; killed hard at the end if it is still there."""
        (self.root / "home").mkdir(exist_ok=True)
        log = self.root / f"daemon-{time.monotonic_ns()}.log"
        command = ["run", "--log-format", "json", *arguments]
        with log.open("wb") as sink:
            process: subprocess.Popen[bytes] | Fork
            if self._forks:
                process = forks().start(
                    PROGRAM, command, cwd=self.repo, env=self.env(), out=Path(os.devnull), err=log
                )
            else:
                process = self._popen(command, sink)
            daemon = Daemon(process=process, log=log)
            try:
                yield daemon
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()

    def _popen(self, command: Sequence[str], sink: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.python, *SYMPHONY[1:], *command],
            cwd=self.repo,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sink,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else (),
        )


@cache
def _new_repository() -> Path:
    place = tempfile.mkdtemp(prefix="symphony-project-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    project = Project(root=Path(place))
    project._begin()
    return project.repo


@dataclass(kw_only=True)
class Logged:
    """What a daemon logged."""

    log: Path

    def events(self) -> list[dict[str, Any]]:
        """Its log lines so far; a line that is half written is left out."""
        whole, _, _ = self.log.read_text(encoding="utf-8", errors="replace").rpartition("\n")
        return [json.loads(line) for line in whole.split("\n") if line.startswith("{")]

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """Wait until a log line of that event and those fields is there."""

        def found() -> dict[str, Any] | None:
            for line in self.events():
                if line.get("event") == event and all(line.get(key) == fields[key] for key in fields):
                    return line
            return None

        return until(found, lambda: f"no log line {event} {fields} in:\n{self.log.read_text()}")


@dataclass(kw_only=True)
class Ended(Logged):
    """A daemon that has ended."""

    returncode: int

    @property
    def stderr(self) -> str:
        """All that it logged and printed."""
        return self.log.read_text(encoding="utf-8")


@dataclass(kw_only=True)
class Daemon(Logged):
    """A running daemon and what it logged."""

    process: "subprocess.Popen[bytes] | Fork"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill_with_subreapers(self) -> None:
        """SIGKILL it together with what would end all that its agents started."""
        self.signal(signal.SIGSTOP)
        for supervisor in psutil.Process(self.process.pid).children():
            supervisor.suspend()
            for subreaper in supervisor.children():
                subreaper.kill()
            supervisor.kill()
        self.signal(signal.SIGKILL)

    def end(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for it to end by itself."""
        return self.process.wait(timeout_s)


def until(probe: Callable[[], T | None], complaint: Callable[[], str]) -> T:
    """Poll a fact of another process until it holds; fail with the complaint at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if (value := probe()) is not None:
            return value
        time.sleep(0.02)
    raise AssertionError(complaint())


def marked_processes(run_ids: Sequence[str] | None = None) -> list[psutil.Process]:
    """Live processes that carry a run id (one of `run_ids`, or any)."""
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get("SYMPHONY_RUN_ID")
            if process.status() != psutil.STATUS_ZOMBIE and mark and (run_ids is None or mark in run_ids):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def dedent(text: str) -> str:
    """Text of a test, without its indentation."""
    return textwrap.dedent(text).lstrip("\n")
