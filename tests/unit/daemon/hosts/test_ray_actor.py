"""The actor of a run runs commands, and the relay connects them; both without Ray."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from symphony.daemon.hosts import ray_relay
from symphony.daemon.hosts.ray_actor import RunActor

LARGE = 5_000_000

HOURS_S = 86_400.0
"""An actor ends its process after such a silence, and here that is the one of the tests."""


async def read_all(actor: RunActor, key: str) -> tuple[bytes, bytes, int]:
    """Both outputs of a command, and its exit code."""
    stdout, stderr, code = bytearray(), bytearray(), None
    while code is None:
        out, err, code = await actor.read(key)
        stdout += out
        stderr += err
    return bytes(stdout), bytes(stderr), code


@pytest.mark.asyncio
async def test_a_command_gets_its_input_and_none_of_the_variables_of_ray(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "tok-very-secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OTHER", "kept")
    actor = RunActor("settings", HOURS_S)
    await actor.start("a", "cat; env; echo problem >&2; exit 7")
    await actor.write("a", b"one\n")
    await actor.write("a", b"")
    stdout, stderr, code = await read_all(actor, "a")
    assert (stdout[:4], stderr, code) == (b"one\n", b"problem\n", 7)
    assert b"OTHER=kept" in stdout
    assert b"RAY_" not in stdout
    assert b"OMP_" not in stdout


@pytest.mark.asyncio
async def test_much_output_is_complete_and_what_a_command_leaves_behind_is_not_waited_for() -> None:
    actor = RunActor("settings", HOURS_S)
    await actor.start("a", f"sleep 600 & head -c {LARGE} /dev/zero; head -c 10 /dev/zero >&2")
    stdout, stderr, code = await read_all(actor, "a")
    assert (len(stdout), len(stderr), code) == (LARGE, 10, 0)


@pytest.mark.asyncio
async def test_a_command_that_floods_is_ended_though_nobody_reads_it() -> None:
    actor = RunActor("settings", HOURS_S)
    await actor.start("a", "while :; do head -c 10000000 /dev/zero; done")
    await actor.read("a")
    await asyncio.wait_for(actor.end("a"), 60)
    await actor.write("a", b"its end may cross with input")


@pytest.mark.asyncio
async def test_the_next_bridge_ends_what_the_last_one_left_unless_the_actor_was_made_otherwise() -> None:
    actor = RunActor("settings", HOURS_S)
    await actor.start("a", "echo $$; exec sleep 600")
    pid = b""
    while not pid.endswith(b"\n"):
        pid += (await actor.read("a"))[0]
    assert await actor.begin("other settings") is None
    os.kill(int(pid), 0)
    facts = await actor.begin("settings")
    assert facts is not None
    assert facts.python == sys.executable
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    await actor.end("a")


def test_an_actor_that_nobody_calls_ends() -> None:
    code = "from symphony.daemon.hosts.ray_actor import RunActor; RunActor('s', 0.05); input()"
    done = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert done.wait(60) == 0
    done.communicate()


@pytest.mark.asyncio
async def test_a_relay_carries_both_ways_and_returns_the_exit_code(tmp_path: Path) -> None:
    asked: dict[str, str] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.update(json.loads(await reader.readline()))
        data = b""
        while size := int.from_bytes((await reader.readexactly(5))[1:], "big"):
            data += await reader.readexactly(size)
        for kind, piece in ((b"o", data.upper()), (b"e", b"problem"), (b"x", b"7")):
            writer.write(ray_relay.head(kind, len(piece)) + piece)
        writer.close()

    path = str(tmp_path / "s")
    async with await asyncio.start_unix_server(serve, path):
        relay = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", ray_relay.__file__, path, "-o", "SendEnv=X", "place-1", "cat"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await relay.communicate(b"text" * 100_000)
    assert asked == {"message": "RunCommand", "place": "place-1", "command": "cat"}
    assert (stdout, stderr, relay.returncode) == (b"TEXT" * 100_000, b"problem", 7)


@pytest.mark.parametrize("answers", [False, True])
def test_a_relay_without_a_bridge_fails_as_ssh_does(*, answers: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        if answers:
            listener.listen()
        command = [sys.executable, "-I", "-S", ray_relay.__file__, path, "place", "true"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as relay:
            if answers:
                listener.accept()[0].close()
            _, stderr = relay.communicate(timeout=60)
    assert relay.returncode == 255
    assert b"bridge to Ray" in stderr
