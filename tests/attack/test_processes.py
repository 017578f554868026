"""Nothing that an agent or a hook started outlives it, whatever it does to be forgotten."""

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import anyio
import psutil
import pytest

from attack.conftest import Rounds
from harness.other_user import as_ordinary_user
from harness.project import Project, until
from harness.real import require_bubblewrap, require_codex
from harness.shell import word
from kit import model_server as models
from kit.codex_home import codex_home
from symphony.processes.local import LocalHost

_DONE: dict[str, object] = {"tool": "board_move", "arguments": {"state": "Done"}}
# Each leaves one process, told by the fraction of a second that it sleeps.
_SURVIVORS = (
    "setsid -f sleep 600.{token}",
    "(sleep 601.{token} &) &",
    "env -i setsid -f sh -c '(sleep 602.{token} &); true'",
    "env -i setsid -f sh -c 'exec sleep 603.{token}' <&- >&- 2>&-",
    "env -i setsid -f bash -c 'exec -a kworker/0:1 sleep 604.{token}'",
    "env -i setsid -f sh -c 'trap \"\" TERM HUP INT; exec sleep 605.{token}'",
)
# The tool's shell, the agent, and what it runs below.
_KILL_SUBREAPER = (
    "pid=$$; until grep -q supervisor_program.py /proc/$pid/cmdline; "
    "do pid=$(cut -d ' ' -f 4 /proc/$pid/stat); done; kill -9 $pid"
)


def _sleepers(token: str) -> set[int]:
    found = set()
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        line = process.info["cmdline"] or [""]
        if line[-1].endswith(f".{token}") and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.add(process.info["pid"])
    return found


def _token() -> str:
    return str(secrets.randbelow(10**9)).zfill(9)


def _leaving(token: str) -> str:
    """A script that leaves every kind of survivor."""
    return "\n".join(["exec >/dev/null 2>&1", *(line.format(token=token) for line in _SURVIVORS)])


def _steps(token: str, gate: Path, *, last: str | None = None) -> list[dict[str, object]]:
    """Leave every kind of survivor, wait for the gate, and end; or end by the command `last`."""
    steps: list[dict[str, object]] = [
        {"run": _leaving(token)},
        {"run": f"while ! [ -e {word(gate)} ]; do sleep 0.05; done"},
    ]
    return [*steps, {"run": last} if last is not None else _DONE]


@pytest.fixture
def project() -> Iterator[Project]:
    root = Path(tempfile.mkdtemp(prefix="symphony-attack-", dir="/var/tmp"))
    root.chmod(0o755)
    yield Project(root=root).create()
    shutil.rmtree(root)


@pytest.fixture
def tokens() -> Iterator[Callable[[], str]]:
    """Marks of sleepers; all of them are gone at the end, also where the test failed."""
    made: list[str] = []

    def make() -> str:
        made.append(_token())
        return made[-1]

    yield make
    for token in made:
        for pid in _sleepers(token):
            os.kill(pid, signal.SIGKILL)


def _all_there(token: str, count: int = len(_SURVIVORS)) -> set[int]:
    return until(
        lambda: found if len(found := _sleepers(token)) == count else None,
        lambda: f"{_sleepers(token)} of {count} sleep",
    )


def _ready(project: Project, *, ordinary: bool, **sections: Any) -> None:
    (project.root / "home").mkdir()
    command = as_ordinary_user(project) if ordinary else None
    project.workflow(command=command, agent={"max_concurrent_agents": 4, "max_attempts": 1}, **sections)
    if project.user is not None:
        subprocess.run(["chown", "-R", str(project.user), str(project.root)], check=True)


@pytest.mark.parametrize("ordinary", [False, True], ids=["whoever tests", "an ordinary user"])
def test_survivors_end_with_their_run_and_no_other(
    project: Project, tokens: Callable[[], str], *, ordinary: bool
) -> None:
    ends, killed, stays = tokens(), tokens(), tokens()
    gates = {token: project.root / f"gate-{token}" for token in (ends, killed, stays)}
    project.issue("SYM-1", _steps(ends, gates[ends]))
    project.issue("SYM-2", _steps(killed, gates[killed], last=_KILL_SUBREAPER))
    project.issue("SYM-3", _steps(stays, gates[stays]))
    _ready(project, ordinary=ordinary)
    with project.daemon() as daemon:
        for token in gates:
            _all_there(token)
        others = _sleepers(stays)

        gates[ends].touch()
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        assert _sleepers(ends) == set()
        assert len(_sleepers(killed)) == len(_SURVIVORS)

        gates[killed].touch()
        daemon.wait_for("run_ended", issue_identifier="SYM-2")
        assert _sleepers(killed) == set()
        assert _sleepers(stays) == others

        daemon.signal(signal.SIGINT)
        assert daemon.end() == 0
        assert _sleepers(stays) == set()


def test_survivors_end_with_a_daemon_that_is_killed(project: Project, tokens: Callable[[], str]) -> None:
    token = tokens()
    project.issue("SYM-1", _steps(token, project.root / "gate"))
    _ready(project, ordinary=False)
    with project.daemon() as daemon:
        _all_there(token)
        daemon.signal(signal.SIGKILL)
        daemon.end()
    until(lambda: True if not _sleepers(token) else None, lambda: f"{_sleepers(token)} are left")


@pytest.mark.slow
def test_survivors_of_a_hook_end_with_it(project: Project, tokens: Callable[[], str]) -> None:
    token = tokens()
    project.issue("SYM-1", [{"run": "true"}, _DONE])
    asleep = f"$(pgrep -c -f '^(sleep|kworker/0:1) .*[.]{token}')"
    hook = f"{_leaving(token)}\nwhile [ {asleep} -lt {len(_SURVIVORS)} ]; do sleep 0.05; done"
    _ready(project, ordinary=False, hooks={"before_run": hook})
    with project.daemon("--once") as daemon:
        daemon.wait_for("turn_started")
        assert _sleepers(token) == set()
        assert daemon.end() == 0
    assert not [line for line in daemon.events() if line["event"] == "hook_failed"]


def test_survivors_end_with_their_run_inside_bubblewrap(project: Project, tokens: Callable[[], str]) -> None:
    require_bubblewrap()
    token = tokens()
    project.issue("SYM-1", [*_steps(token, Path("gate"))])
    _ready(project, ordinary=False, workspace={"isolation": "bwrap"})
    with project.daemon() as daemon:
        _all_there(token)
        (project.workspaces / "SYM-1" / "gate").touch()
        daemon.wait_for("run_ended", issue_identifier="SYM-1")
        assert _sleepers(token) == set()
        daemon.signal(signal.SIGINT)
        assert daemon.end() == 0


def _tree(random: Random, token: str, depth: int) -> str:
    """A shell script that starts a random tree of processes and forgets each of them in another way."""
    lines = []
    for _ in range(random.randint(1, 3)):
        below = f"exec sleep 6{random.randint(10, 99)}.{token}"
        if depth > 0 and random.random() < 0.6:
            below = _tree(random, token, depth - 1)
        if random.random() < 0.5:
            below = f"trap '' TERM INT HUP; {below}"
        wrapper = random.choice(("", "env -i ", "setsid ", "env -i setsid -f ", "nohup setsid -f "))
        lines.append(f"{wrapper}/bin/sh -c {_quoted(below)} </dev/null >/dev/null 2>&1 &")
    lines.append(random.choice(("", "wait", "exec sleep 0.01", f"exec sleep 699.{token}")))
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.asyncio
async def test_any_tree_of_processes_ends_with_its_command(
    rounds: Rounds, tokens: Callable[[], str], tmp_path: Path
) -> None:
    host = LocalHost(instance=f"of-a-test-{secrets.token_hex(8)}")
    environment = {"PATH": os.environ["PATH"]}
    for random in rounds(few=4):
        token = tokens()
        script = f"({_tree(random, token, 2)}) &\necho up\nread line"
        child = await host.spawn(
            ["sh", "-c", script], cwd=tmp_path, env=environment, stderr_path=tmp_path / "stderr"
        )
        assert await child.receive() == b"up\n"
        await anyio.sleep(random.random() / 20)
        if random.random() < 0.5:
            child.signal(signal.SIGKILL, [child.identity])
        await child.close_stdin()
        await child.wait()
        assert _sleepers(token) == set()


@pytest.mark.real_codex
def test_a_real_session_leaves_no_process_and_no_trap(
    project: Project, tokens: Callable[[], str], tmp_path: Path
) -> None:
    """Its commands leave processes, links outwards and directories without end, and finish the work."""
    codex, token = require_codex(), tokens()
    bait = tmp_path / "bait"
    bait.mkdir()
    (bait / "file").write_text("do not touch")
    traps = (
        "echo hello > hello.txt && git add hello.txt && git commit --quiet -m 'Say hello'; "
        f"mkdir -p traps/closed && ln -s {shlex.quote(str(bait))} traps/out && mkfifo traps/pipe; "
        "truncate -s 1T traps/huge; chmod 000 traps/closed; "
        "mkdir -p .git/refs/heads/$(printf 'd/%.0s' $(seq 500)); ln -sfn / .git/refs/heads/out"
    )
    work = (
        models.shell(_leaving(token)),
        models.shell(traps),
        models.tool("board_move", {"state": "Done"}),
        models.say("Done."),
    )
    project.workflow(command=f"{shlex.quote(str(codex))} app-server", codex={"read_timeout_ms": 30_000})
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    with models.ModelServer({"work": work}) as server, codex_home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
    assert _sleepers(token) == set()
    assert (bait / "file").read_text() == "do not touch"
    assert [path.name for path in bait.iterdir()] == ["file"]
    assert project.state("SYM-1") == "Done"
    ended = daemon.wait_for("run_ended", issue_identifier="SYM-1")
    assert ended["outcome"] in {"succeeded", "failed"}
    if ended["outcome"] == "succeeded":
        assert project.branch_log("SYM-1") == ["Say hello"]
    else:
        assert "delivery_failed" in ended["reason"]
        assert any(project.workspaces.glob("SYM-1*")), "work that could not be delivered is kept"
