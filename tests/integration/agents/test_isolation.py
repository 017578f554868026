"""Real bubblewrap around real processes: what is open, what is closed, and how all of it ends."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio import to_thread

from harness.real import require_bubblewrap
from harness.sessions import SOURCE, git
from harness.shell import word
from integration.agents.conftest import Bench, RealBench
from kit.model_server import edit_and_commit, say, shell
from symphony.agents.backend import run_as_agent
from symphony.agents.base import AgentError, BackendContext, RunsCommands, Turn
from symphony.agents.events import Text, TurnEnd, TurnStatus, UsageUpdate
from symphony.agents.folders import CLAUDE_FOLDERS, CODEX_FOLDERS, claude_project, located
from symphony.agents.isolation import Isolation
from symphony.agents.process import AgentProcess, Launch
from symphony.agents.registry import create_backend
from symphony.config import CodexSettings, CommandSettings, NamedAgent
from symphony.domain import Blame, Category
from symphony.scheduler import Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.agents.conftest import Bench, RealBench

    Make = Callable[..., RealBench]

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def bubblewrap() -> str:
    return require_bubblewrap()


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    """Sockets are made in it."""
    return short_path


def closed(bench: Bench, **changes: Any) -> Isolation:
    """All of the test's directory can be read, as the machine's own file system can; but for the rest.

    Temporary files are hidden as by the daemon: sockets of tests beside this one come and go there.
    """
    top, temporary = bench.workspace.parent, Path(tempfile.gettempdir())
    return Isolation(**{"readable": (top, SOURCE), "scratch": (temporary,), **changes})


async def inside(bench: Bench, isolation: Isolation, script: str, **env: str) -> str:
    """What a shell prints in there, errors included."""
    shell = ["bash", "-c", f"exec 2>&1; {script}"]
    argv = await to_thread.run_sync(partial(isolation.wrap, shell, cwd=bench.workspace))
    done = await bench.host.run(argv, cwd=bench.workspace, env={**bench.environ, **env}, timeout_ms=60_000)
    return done.stdout.decode() + done.stderr.decode()


async def test_the_workspace_is_written_and_nothing_else(bench: Bench) -> None:
    outside = bench.workspace.parent / "outside"
    outside.mkdir()
    told = await inside(
        bench,
        closed(bench),
        f"echo in > made; echo out > {word(outside)}/made; echo out > {word(SOURCE)}/made",
    )
    assert (bench.workspace / "made").read_text() == "in\n"
    assert told.count("Read-only file system") == 2
    assert list(outside.iterdir()) == []
    assert not (SOURCE / "made").exists()


async def test_what_is_hidden_is_empty_and_stays_so(bench: Bench) -> None:
    top = bench.workspace.parent
    (top / "state").mkdir()
    (top / "state" / "token").write_text("operator")
    (top / "home" / ".ssh").mkdir()
    (top / "home" / ".ssh" / "id").write_text("key")
    (top / "home" / ".netrc").write_text("password")
    isolation = closed(bench, hidden=(top / "state", top / "home/.ssh", top / "home/.netrc", top / "absent"))
    told = await inside(
        bench,
        isolation,
        f"cd {word(top)}; ls -A state home/.ssh; cat home/.netrc; echo new > state/x; echo end",
    )
    assert "operator" not in told
    assert "key" not in told
    assert "password" not in told
    assert "token" not in told
    assert "Read-only file system" in told
    assert told.endswith("end\n")
    assert (top / "home" / ".netrc").read_text() == "password"


async def test_other_workspaces_are_not_there_and_borrowed_objects_are(bench: Bench) -> None:
    root = bench.workspace.parent / "root"
    mirror, own, other = root / ".symphony/mirrors/a.git", root / "MT-1", root / "MT-2"
    git(bench.workspace, "clone", "--quiet", "--bare", str(bench.workspace), str(mirror))
    for place in (own, other):
        git(bench.workspace, "clone", "--quiet", "--shared", str(mirror), str(place))
        git(place, "config", "user.name", "Test")
        git(place, "config", "user.email", "test@example.invalid")
    bench.workspace = own
    isolation = closed(bench, hidden=(root,), readable=(root / ".symphony/mirrors",))
    commit = "echo a > a; git add a && git commit -qm inside && git log --format=%s"
    script = f"ls {word(root)}; ls -A {word(other)}; {commit}; : > {word(mirror)}/made"
    told = await inside(bench, isolation, script)
    assert told.startswith("MT-1\n"), "alone"
    assert "No such file or directory" in told
    assert "inside\nstart\n" in told
    assert "Read-only file system" in told
    assert git(own, "log", "-1", "--format=%s") == "inside"


async def test_a_private_temp_directory_and_no_services_of_the_machine(bench: Bench) -> None:
    isolation = Isolation(scratch=(bench.workspace.parent / "home",))
    told = 'echo "$TMPDIR" "${XDG_RUNTIME_DIR-none}"'
    script = f"{told}; mktemp >/dev/null && echo made; echo x > ~/y && echo scratch; ls -A /run/user"
    told = await inside(bench, isolation, script, TMPDIR="/elsewhere", XDG_RUNTIME_DIR="/run/user/0")
    assert told.startswith("/tmp none\nmade\nscratch\n")
    assert not (bench.workspace.parent / "home" / "y").exists()


async def test_processes_outside_are_out_of_reach(bench: Bench) -> None:
    outside = os.getpid()
    told = await inside(bench, closed(bench), f"kill -0 {outside}; ls -d /proc/{outside}; cat /proc/1/comm")
    assert "No such process" in told
    assert "No such file or directory" in told
    assert told.endswith("bwrap\n")


async def test_the_kernel_cannot_be_set_and_no_right_is_left(bench: Bench) -> None:
    """Looked at and not tried: what a leak here would change is the machine that runs the tests."""
    told = await inside(
        bench, closed(bench), "test -w /proc/sys/kernel/hostname && echo open; grep CapEff /proc/self/status"
    )
    assert "open" not in told
    rights = int(told.split()[-1], 16)
    assert rights & ~(1 << 31) == 0, "but for the one without which root cannot nest sandboxes"


@pytest.mark.parametrize("network", [True, False])
async def test_the_network_is_closed_where_it_shall_be(bench: Bench, network: bool) -> None:  # noqa: FBT001 - a parameter
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        told = await inside(
            bench, closed(bench, network=network), f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
        )
    assert ("reached" in told) is network


async def test_a_nested_sandbox_can_be_made(bench: Bench, bubblewrap: str) -> None:
    nested = f"{bubblewrap} --ro-bind / / --dev /dev --unshare-user --unshare-pid echo nested"
    assert "nested" in await inside(bench, closed(bench), nested)


def enclosed(bench: Bench, command: str, isolation: Isolation, **settings: Any) -> Any:
    """The backend as the daemon makes it."""
    section = CodexSettings(**{"command": command, "read_timeout_ms": 20_000, **settings})
    context = BackendContext(
        host=bench.host,
        environ=bench.environ,
        secret_names=frozenset(),
        homes=bench.workspace.parent / "homes",
        isolation=isolation,
        grace_ms=bench.grace_ms,
    )
    return create_backend(NamedAgent(name="codex", kind="codex", settings=section), context)


async def test_a_session_works_inside_and_is_stopped_like_any_other(bench: Bench) -> None:
    bench.grace_ms = 60_000  # for its answer, also on a busy machine
    backend = enclosed(bench, bench.scripted(), closed(bench))
    steps = (
        {"write": "a", "text": "b"},
        {"commit": "inside"},
        {"say": "working"},
        {"sleep_ms": 60_000},
    )
    async with backend.open(bench.request()) as session:
        async for event in session.run_turn(Turn(prompt=bench.script(*steps), title="MT-1: try")):
            if isinstance(event, Text) and "working" in event.message:
                break
        left = await session.stop()
    assert [event.status for event in left if isinstance(event, TurnEnd)] == [TurnStatus.INTERRUPTED]
    assert any(isinstance(event, UsageUpdate) for event in left)
    assert git(bench.workspace, "log", "-1", "--format=%s") == "inside"
    assert bench.living() == ()


@pytest.mark.parametrize(
    "switches", [("--ignore-eof", "--own-session-child"), ("--ignore-eof", "--ignore-sigterm")]
)
async def test_nothing_survives_whatever_the_agent_ignores(bench: Bench, switches: tuple[str, ...]) -> None:
    backend = enclosed(bench, bench.scripted(*switches), closed(bench))
    async with backend.open(bench.request()) as session:
        await session.stop()
        assert not bench.host.is_alive(bench.spawned[0])
    assert bench.living() == ()


async def test_sigterm_reaches_the_agent_and_its_last_words_reach_us(bench: Bench) -> None:
    """What encloses it would kill it at once."""
    program = bench.workspace / "polite.py"
    program.write_text(
        "import signal, sys, time\n"
        "def end(*_):\n    print('farewell', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\n"
        "while True:\n    time.sleep(0.05)\n"
    )
    launch = Launch(
        command=shlex.join([sys.executable, str(program)]),
        cwd=bench.workspace,
        env={**bench.environ, "SYMPHONY_RUN_ID": bench.run_id},
        stderr_path=bench.stderr,
        isolation=closed(bench),
    )
    process = await AgentProcess.start(bench.host, launch, grace_ms=5_000)
    assert await process.receive() == b"ready\n"
    heard = bytearray()
    await process.stop(heard.extend)
    assert heard == b"farewell\n"
    assert bench.living() == ()


async def test_the_check_before_the_first_dispatch_proves_it(bench: Bench) -> None:
    root = bench.workspace.parent / "root"
    found = await enclosed(bench, bench.scripted(), closed(bench, hidden=(root,))).preflight(
        root, run_id=bench.run_id
    )
    assert found.agent == "symphony-scripted-agent"
    offline = closed(bench, hidden=(root,), network=False)
    found = await enclosed(bench, bench.scripted(), offline).preflight(root, run_id=bench.run_id)
    assert "workspace.network: closed" in found.notices[-1]
    assert not list((root / ".symphony").iterdir())


async def refusal(bench: Bench, isolation: Isolation) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await enclosed(bench, bench.scripted(), isolation).preflight(
            bench.workspace.parent, run_id=bench.run_id
        )
    assert caught.value.failure.category is Category.AGENT_PREFLIGHT
    assert caught.value.failure.blame is Blame.HOST
    return caught.value


async def test_a_missing_bubblewrap_is_told(bench: Bench) -> None:
    error = await refusal(bench, closed(bench, program="bwrap-that-is-not-there"))
    assert "cannot be started" in str(error)
    assert "apt install bubblewrap" in str(error.failure.hint)


async def test_a_host_without_user_namespaces_is_told(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    error = await refusal(bench, closed(bench, program=str(program)))
    assert "No permissions to create new namespace" in str(error)
    assert "kernel.unprivileged_userns_clone" in str(error.failure.hint)


def losing_a_socket(place: Path) -> str:
    """A bubblewrap that first finds a socket gone that it is to cover."""
    program, tried = place / "bwrap", place / "tried"
    program.write_text(
        f"#!/bin/sh\ntried={shlex.quote(str(tried))}\n"
        '[ -e "$tried" ] && exec bwrap "$@"\n: > "$tried"\n'
        'echo "bwrap: Can\'t create file at /x.sock: Read-only file system" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    return str(program)


async def test_a_socket_that_vanishes_while_it_is_covered_is_no_reason_to_refuse(
    bench: Bench, tmp_path: Path
) -> None:
    root = bench.workspace.parent / "root"
    isolation = closed(bench, hidden=(root,), program=losing_a_socket(tmp_path))
    found = await enclosed(bench, bench.scripted(), isolation).preflight(root, run_id=bench.run_id)
    assert found.agent == "symphony-scripted-agent"
    assert (tmp_path / "tried").exists()


@pytest.mark.parametrize("kind", ["codex", "command"])
async def test_a_session_begins_although_a_socket_vanishes(bench: Bench, tmp_path: Path, kind: str) -> None:
    isolation = closed(bench, program=losing_a_socket(tmp_path))
    if kind == "codex":
        backend = enclosed(bench, bench.scripted(), isolation)
    else:
        agent = NamedAgent(name=kind, kind=kind, settings=CommandSettings(command="echo here"))
        backend = create_backend(agent, bench.context(isolation=isolation))
    async with backend.open(bench.request()) as session:
        events = await bench.turn(session, bench.script({"say": "here"}))
    assert isinstance(events[-1], TurnEnd)
    assert events[-1].status is TurnStatus.COMPLETED
    assert (tmp_path / "tried").exists()


async def test_a_command_that_must_pass_does_not_fail_because_a_socket_vanishes(
    bench: Bench, tmp_path: Path
) -> None:
    """The checks of an evaluation, and those of delivered work."""
    backend = enclosed(bench, bench.scripted(), closed(bench, program=losing_a_socket(tmp_path)))
    run_id, cwd = bench.run_id, bench.workspace
    done = await run_as_agent(
        backend, "echo evaluated", run_id=run_id, cwd=cwd, timeout_ms=60_000, variables={}
    )
    assert (done.exit_code, done.stdout) == (0, b"evaluated\n")
    (tmp_path / "tried").unlink()
    assert isinstance(backend, RunsCommands)
    done = await backend.run_command("echo checked", run_id=run_id, cwd=cwd, timeout_ms=60_000)
    assert (done.exit_code, done.stdout) == (0, b"checked\n")


async def test_an_enclosure_that_leaks_is_found(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    program.chmod(0o755)
    error = await refusal(bench, closed(bench, program=str(program)))
    assert "does not hold" in str(error)
    assert "beside the workspace could be written" in str(error)
    assert "another workspace can be seen" in str(error)


PLANTS = {
    "a setting that is there": "echo evil > config.toml; echo evil > settings.json",
    "one that is replaced": "for f in config.toml settings.json; do echo evil > x; mv -f x $f; done",
    "one that is not there yet": "for f in hooks.json settings.local.json AGENTS.md; do echo x > $f; done",
    "a new directory": "mkdir -p hooks commands agents plugins/x rules; echo evil > plugins/x/run",
    "a directory that is there": "echo evil > skills/evil; rm -rf skills/given; echo x > skills/given/S.md",
    "one that is renamed and made anew": "mv skills old && mkdir skills; echo evil > skills/evil",
    "the folder renamed and made anew": "cd ..; mv $OLDPWD old; mkdir -p $OLDPWD/a; echo x > .claude.json",
    "a link in the place of a thread": "rm -rf sessions projects/*; ln -sfn / sessions; ln -sfn / projects/p",
    "what a later shell reads": "mkdir -p shell-snapshots shell_snapshots; echo evil > shell-snapshots/s.sh",
    "notes for another directory": "mkdir -p projects/-h/memory; echo x > projects/-h/memory/MEMORY.md",
    "rights": "chmod 777 . config.toml settings.json hook.sh skills; echo evil > hook.sh",
}


def tree_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What is below a directory: names, modes and contents."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() and not path.is_symlink() else b"",
        )
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("folder", [".codex", ".claude"])
@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
async def test_nothing_that_is_obeyed_later_can_be_planted_in_an_agents_folder(
    bench: Bench, folder: str, plant: str
) -> None:
    """What the agent itself needs goes on: its settings, its login in either way of writing, its threads."""
    home = bench.workspace.parent / "home"
    (home / folder / "skills" / "given").mkdir(parents=True)
    for name in (
        "config.toml",
        "settings.json",
        "auth.json",
        ".credentials.json",
        "hook.sh",
        "../.claude.json",
    ):
        (home / folder / name).write_text("given\n")
    (home / folder / "hook.sh").chmod(0o755)
    login, threads = {
        ".codex": ("auth.json", "sessions/2026"),
        ".claude": (".credentials.json", f"projects/{claude_project(bench.workspace)}"),
    }[folder]
    folders = tuple(located((*CODEX_FOLDERS, *CLAUDE_FOLDERS), bench.environ, bench.workspace))
    isolation = closed(bench).allowing(folders=folders)
    await inside(bench, isolation, "true")
    before = tree_of(home)

    await inside(bench, isolation, f"cd ~/{folder}; {plant}")

    assert tree_of(home) == before
    write = (
        f"cd ~/{folder}; cat config.toml; ./hook.sh; echo new >> config.toml && tail -n 1 config.toml;"
        f" echo tmp > t; mv t {login} || cp t {login}; mkdir -p {threads}; echo said > {threads}/t.jsonl"
    )
    told = await inside(bench, isolation, write)
    assert told.startswith("given\n")
    assert "new" in told
    assert (home / folder / login).read_text() == "tmp\n"
    assert (home / folder / threads / "t.jsonl").read_text() == "said\n"


async def test_sockets_of_others_are_out_of_reach_and_those_of_the_session_are_not(bench: Bench) -> None:
    """Wherever they lie, bound by a relative path too; a read-only mount alone would not do it."""
    top = bench.workspace.parent
    places = ("home/.agent/s", "home/beside/s", "home/s", "home/.config/deep/er/s", "repository/s")
    own = ("tools/s", "workspace/s")
    listeners = []
    for place in (*places, *own):
        (top / place).parent.mkdir(parents=True, exist_ok=True)
        listeners.append(socket.socket(socket.AF_UNIX))
        with contextlib.chdir((top / place).parent):
            listeners[-1].bind("s" if place in places[:2] else str(top / place))
        listeners[-1].listen()
    (top / "home/beside/file").touch()
    isolation = closed(bench, home=top / "home").allowing(writable=[top / "tools"])
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print(sys.argv[1])"
    script = "; ".join(
        f"{word(sys.executable)} -c '{connect}' {word(top / each)} 2>/dev/null" for each in (*places, *own)
    )
    told = await inside(bench, isolation, script)
    for listener in listeners:
        listener.close()
    assert told.splitlines() == [str(top / each) for each in own]


async def test_the_state_of_another_daemon_is_not_seen(bench: Bench) -> None:
    state = bench.workspace.parent / "other"
    state.mkdir()
    for name in ("control.json", "operator.token"):
        (state / name).write_text("secret\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state / "control.sock"))
        listener.listen()
        told = await inside(bench, closed(bench), f"ls -A {word(state)}; cat {word(state)}/operator.token")
    assert "No such file" in told
    assert "secret" not in told


async def test_a_program_of_a_private_home_is_asked_for_its_version_inside(bench: Bench) -> None:
    """The agent can write the profile of that home, which a login shell obeys."""
    top = bench.workspace.parent
    (top / "bin").mkdir()
    (top / "bin" / "aider").write_text("#!/bin/sh\necho 0.86.2\n")
    (top / "bin" / "aider").chmod(0o755)
    home = top / "homes" / "mine"
    home.mkdir(parents=True)
    (home / ".bash_profile").write_text(f"echo evil > {word(top)}/planted\n")
    bench.environ["PATH"] = f"{top}/bin:{bench.environ['PATH']}"
    settings = CommandSettings(profile="aider", home="private")
    context = bench.context(isolation=closed(bench))
    backend = create_backend(NamedAgent(name="mine", kind="command", settings=settings), context)
    found = await backend.preflight(top / "root", run_id=bench.run_id)
    assert found.version == "0.86.2"
    assert not (top / "planted").exists()


@pytest.mark.real_codex
async def test_a_real_codex_sandbox_holds_within(real: Make) -> None:
    """The agent's own sandbox is made inside of ours: both hold."""
    bench = real({"work": edit_and_commit("a.txt", "hello\n", "add a")})
    top = bench.workspace.parents[1]
    backend = enclosed(bench, bench.command, Isolation(hidden=(bench.workspace.parent,)))
    found = await backend.preflight(bench.workspace.parent, run_id=bench.run_id)
    assert found.agent == "codex"
    async with backend.open(bench.request()) as session:
        events = await bench.turn(session, "[[work]] please")
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED)
    assert git(bench.workspace, "log", "-1", "--format=%s") == "add a"
    assert bench.living() == ()
    assert top.exists()


def in_the_operators_home(bench: Bench) -> Isolation:
    return Isolation(hidden=(bench.workspace.parent,), home=bench.workspace.parents[1])


@pytest.mark.real_codex
async def test_a_real_codex_in_the_operators_home_goes_on_and_leaves_nothing_but_its_thread(
    real: Make,
) -> None:
    plant = (
        "cd ~; echo 'notify = [\"evil\"]' > new.toml; mv new.toml config.toml; echo evil > AGENTS.md;"
        " mkdir skills hooks prompts; echo evil > hooks.json; echo evil > sessions/made; echo end"
    )
    settings = {"thread_sandbox": "danger-full-access", "home": "operator"}
    bench = real({"work": (shell(plant), say("Done.")), "on": (say("I went on."),)})
    before = (bench.home.path / "config.toml").read_text()
    backend = enclosed(bench, bench.command, in_the_operators_home(bench), **settings)
    found = await backend.preflight(bench.workspace.parent, run_id=bench.run_id)
    assert str(bench.home.path / "sessions") in found.notices[-1], "what is left open is said"
    async with backend.open(bench.request()) as session:
        events = await bench.turn(session, "[[work]] please")
        thread = Thread(thread_id=str(session.thread_id))
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED)
    assert (bench.home.path / "config.toml").read_text() == before
    assert {path.name for path in bench.home.path.iterdir()} == {
        *("config.toml", "sessions", "archived_sessions")
    }
    async with backend.open(bench.request(resume=thread)) as session:
        assert session.resume_refused is None
        events = await bench.turn(session, "[[on]] go on")
    assert events[-1] == TurnEnd(status=TurnStatus.COMPLETED)
    last = json.dumps(bench.server.requests[-1].body["input"])
    assert "[[work]] please" in last, "it is the same conversation"
