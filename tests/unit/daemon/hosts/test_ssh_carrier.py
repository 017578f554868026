"""What ssh says, what a host says of itself, and the runs whose end is not known."""

import os
import subprocess
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from harness.project import until
from harness.shell import word
from symphony.config import SshSettings
from symphony.daemon.carriers import CarrierContext
from symphony.daemon.hosts.host_runs import HostRuns, own_identity
from symphony.daemon.hosts.places import HostPlace, place_script, read_place
from symphony.daemon.hosts.ssh_carrier import SshCarrier, ssh_failure
from symphony.domain import Blame, Category, SymphonyError
from symphony.processes.local import LocalHost


def carrier(*names: str, settings: SshSettings | None = None, **environment: str) -> SshCarrier:
    context = CarrierContext(
        local=LocalHost(),
        environment={"PATH": os.defpath, **environment},
        state_dir=Path("/nowhere"),
        log=Path("/nowhere/ssh.log"),
    )
    return SshCarrier(settings or SshSettings(), names, context)


SAID = {
    "agent@h: Permission denied (publickey,password).": "refuses the login",
    "ssh: Could not resolve hostname h: Name or service not known": "cannot be reached",
    "ssh: connect to host h port 22: Connection timed out": "cannot be reached",
    "": "no reason given",
    "No ED25519 host key is known for h.\nHost key verification failed.": "its key is not known here",
    "@@@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n@@@@@@\nHost key verification failed.": (
        "its key is not the known one"
    ),
}


@pytest.mark.parametrize("stderr", SAID)
def test_what_ssh_says_becomes_one_line_with_a_hint(stderr: str) -> None:
    failure = ssh_failure("h:2222", stderr)
    assert (failure.category, failure.blame) == (Category.HOST_UNAVAILABLE, Blame.HOST)
    assert failure.retryable
    assert SAID[stderr] in failure.message
    assert "\n" not in failure.message
    assert failure.hint


def test_the_commands_of_hints_reach_the_same_port() -> None:
    unknown = ssh_failure("agent@h:2222", "Host key verification failed.")
    assert "`ssh -p 2222 agent@h true`" in (unknown.hint or "")
    changed = ssh_failure("agent@h:2222", "IDENTIFICATION HAS CHANGED")
    assert "`ssh-keygen -R '[h]:2222'`" in (changed.hint or "")
    assert "`ssh-keygen -R h`" in (ssh_failure("agent@h", "IDENTIFICATION HAS CHANGED").hint or "")


def test_addresses_become_words_for_ssh_and_for_git() -> None:
    hosts = carrier(TRACKER_TOKEN="secret")
    plain = hosts.host("build-1")
    assert plain.argv("true")[-3:] == ("--", "build-1", "true")
    assert plain.git_address("/srv/r.git") == "build-1:/srv/r.git"
    other = hosts.host("agent@build-2:2222")
    assert other.git_ssh_command.endswith(" -p 2222")
    assert other.argv("true")[-5:] == ("-p", "2222", "--", "agent@build-2", "true")
    six = hosts.host("[::1]:22")
    assert six.argv("true")[-5:] == ("-p", "22", "--", "::1", "true")
    assert six.git_address("/r.git") == "[::1]:/r.git"
    assert "TRACKER_TOKEN" not in plain.env
    assert hosts.host("build-1") is plain


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "name", ["-oProxyCommand=touch pwned", "root@db.internal:2222", "build-2", "build-1:22", ""]
)
async def test_a_destination_is_one_of_the_settings(name: str) -> None:
    async with aclosing(carrier("build-1")) as hosts:
        async with hosts.visit("build-1") as known:
            assert known.name == "build-1"
        with pytest.raises(SymphonyError) as refused:
            async with hosts.visit(name):
                pass
    assert refused.value.failure.category is Category.HOST_UNAVAILABLE


@pytest.mark.parametrize("printed", ["9" * 5_000, "²", "-5", "1e3", "", "x"])
def test_a_clock_that_is_no_number_is_none(printed: str) -> None:
    assert read_place(f"/srv\n/bin/python\n{printed}\n")[0].clock_s is None
    assert read_place("/srv\n/bin/python\n1700000000\n")[0].clock_s == 1_700_000_000


@pytest.mark.asyncio
async def test_a_client_ends_with_the_run_that_waits_for_its_connection(tmp_path: Path) -> None:
    client, pid = tmp_path / "ssh", tmp_path / "pid"
    client.write_text(
        f"#!/bin/sh\necho $$ > {word(pid)}.new; mv {word(pid)}.new {word(pid)}; exec sleep 600\n"
    )
    client.chmod(0o755)
    async with aclosing(carrier("h", settings=SshSettings(command=str(client)))) as hosts:
        host = hosts.host("h")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.connect)
            await to_thread.run_sync(until, lambda: pid.exists() or None, lambda: "no client was started")
            os.kill(int(pid.read_text()), 0)
            tasks.cancel_scope.cancel()
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_no_option_switches_the_check_of_keys_off() -> None:
    client = carrier().host("h").client
    assert "BatchMode=yes" in client
    assert not any("StrictHostKeyChecking" in word for word in client)


@pytest.mark.parametrize("python", [None, "python3", "relative/python"])
def test_a_host_says_where_things_are(python: str | None, tmp_path: Path) -> None:
    settings = SshSettings(python=python, remote_root="work")
    for name in ("work/venv/bin/python", "relative/python"):
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    host = carrier(settings=settings).host("h")
    script = place_script(host, needs_git=True, further=["echo one", "echo two"])
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-s"], input=script, env=env, capture_output=True, text=True, check=True)
    _, _, output = done.stdout.partition("symphony-host\n")
    place, rest = read_place(output)
    assert place.root == str(tmp_path / "work")
    assert Path(place.python).is_absolute()
    assert place.clock_s is not None
    assert place.clock_s > 1_000_000_000
    assert rest == ["one", "two"]
    assert (tmp_path / "work" / "state").is_dir()


def test_the_python_of_a_host_may_have_any_path(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o755)
    host = carrier().host("h")
    host.remote_python = str(tmp_path / "python")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    script = place_script(host, needs_git=False)
    done = subprocess.run(["sh", "-s"], input=script, env=env, capture_output=True, text=True, check=True)
    place, _ = read_place(done.stdout.partition("symphony-host\n")[2])
    assert place.python == str(tmp_path / "python")


def test_a_host_without_an_installation_is_told(tmp_path: Path) -> None:
    script = place_script(carrier().host("h"), needs_git=False)
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-s"], input=script, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 92


def test_half_an_answer_is_no_place() -> None:
    place, rest = read_place("/srv/work")
    assert (place, rest) == (HostPlace(root="/srv/work", python="", clock_s=None), [])


def test_a_run_id_is_no_path(tmp_path: Path) -> None:
    with pytest.raises(SymphonyError):
        HostRuns(tmp_path).begin("../../x", own_identity(LocalHost()))
