"""Agents that cannot be inspected end where `/proc` hides them from the daemon: `hidepid`, `ProtectProc=`."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from harness.other_user import NOBODY, ordinary_python, search_path

_HIDING = """
import anyio, os, sys
from pathlib import Path
from symphony.agents.process import AgentProcess, Launch
from symphony.processes.local import LocalHost
from symphony.processes.supervisor_program import become_subreaper

HIDDEN = "import ctypes, os, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(os.getpid(), flush=True); "
LEFT = "import os; os.fork() and (os.read(0, 1), os._exit(0)); os.setsid(); " + HIDDEN + "time.sleep(600)"

def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

async def main():
    become_subreaper()
    host, here = LocalHost(instance=sys.argv[2], adopt_orphans=True), Path(sys.argv[1])
    env = {"PATH": os.environ["PATH"], "SYMPHONY_RUN_ID": "run"}
    agent = here / "agent.py"
    for script, supervised in ((HIDDEN + "time.sleep(600)", True), (LEFT, True), (LEFT, False)):
        agent.write_text(script)
        child = await host.spawn(
            [sys.executable, str(agent)], cwd=here, env=env, stderr_path=here / "log", supervised=supervised
        )
        launch = Launch(command="", cwd=here, env=env, stderr_path=here / "log")
        process = AgentProcess(host, child, launch, grace_ms=1_000)
        pid = int(await process.receive())
        assert not Path(f"/proc/{pid}").exists()
        await process.stop()
        while lives(pid):  # at worst until the test's limit
            await host.end_orphans()
            await anyio.sleep(0.05)
        print("ended")
anyio.run(main)
"""
_MOUNT = """
mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid "$0" --regid "$0" --clear-groups "$@"
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount /proc so that it hides processes")
def test_an_agent_and_an_orphan_that_proc_hides_end(reachable: Path) -> None:
    reachable.chmod(0o777)
    namespaces = ["unshare", "--pid", "--fork", "--mount", "--kill-child"]
    command = [*namespaces, "sh", "-c", _MOUNT, str(NOBODY)]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": search_path()}
    if subprocess.run([*command, "true"], env=env, capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespace in which /proc can be mounted")

    done = subprocess.run(
        [*command, ordinary_python(), "-c", _HIDING, str(reachable), uuid.uuid4().hex],
        env=env,
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=200,
    )

    assert [line for line in done.stdout.splitlines() if line == "ended"] == ["ended"] * 3


def test_a_proc_of_another_pid_namespace_is_refused() -> None:
    command = ["unshare", "--pid", "--fork", *([] if os.geteuid() == 0 else ["--user"])]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no PID namespace can be made")

    script = "from symphony.processes.table import ProcessTable; ProcessTable()"
    done = subprocess.run(
        [*command, sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "HostError" in done.stderr
