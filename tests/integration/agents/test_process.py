from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest

from harness.shell import word
from integration.agents.conftest import Bench
from symphony.agents.base import AgentError
from symphony.agents.process import shell_argv
from symphony.domain import Category

if TYPE_CHECKING:
    from pathlib import Path

    from integration.agents.conftest import Bench

pytestmark = pytest.mark.asyncio


async def run(bench: Bench, command: str, *secrets: str, **env: str) -> str:
    done = await bench.host.run(
        shell_argv(command, secrets), cwd=bench.workspace, env={**bench.environ, **env}, timeout_ms=60_000
    )
    return done.stdout.decode()


@pytest.mark.conformance("A-14")
async def test_a_secret_that_the_login_profile_exports_again_is_unset(bench: Bench) -> None:
    profile = anyio.Path(bench.environ["HOME"]) / ".bash_profile"
    await profile.write_text("export LINEAR_API_KEY=from-profile OTHER=kept\n")
    shown = await run(bench, "env", "LINEAR_API_KEY", LINEAR_API_KEY="from-daemon")
    assert "LINEAR_API_KEY" not in shown
    assert "OTHER=kept" in shown
    assert "LINEAR_API_KEY=from-profile" in await run(bench, "env")


async def test_a_secret_that_cannot_be_unset_starts_nothing(bench: Bench) -> None:
    profile = anyio.Path(bench.environ["HOME"]) / ".bash_profile"
    await profile.write_text("readonly LINEAR_API_KEY=stuck; export LINEAR_API_KEY\n")
    with pytest.raises(AgentError) as caught:
        async with bench.backend(bench.scripted()).open(
            bench.request(secret_names=frozenset({"LINEAR_API_KEY"}))
        ):
            pytest.fail("the session must not open")
    assert caught.value.failure.category is Category.PORT_EXIT
    assert "LINEAR_API_KEY" in caught.value.failure.message


@pytest.mark.conformance("A-1")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pwd", "{cwd}\n"),
        ("WORD='a  b' bash -c 'echo \"$WORD\"'", "a  b\n"),
        ("echo one | tr o 0; echo two", "0ne\ntwo\n"),
        ("/bin/echo plain words", "plain words\n"),
        ("f() { echo function; }; f # a comment", "function\n"),
        ("cat <<END\nhere\nEND", "here\n"),
    ],
)
async def test_the_command_keeps_its_meaning(bench: Bench, command: str, expected: str) -> None:
    assert await run(bench, command, "A_SECRET") == expected.format(cwd=bench.workspace)


async def test_a_plain_program_takes_the_place_of_its_shell(bench: Bench, tmp_path: Path) -> None:
    program = anyio.Path(tmp_path / "who")
    await program.write_text("#!/bin/sh\necho $$ $PPID\n")
    await program.chmod(0o755)
    pid, parent = (int(line) for line in (await run(bench, f"{word(program)} app-server")).split())
    assert pid != parent
    shell_pid, shell_parent = (int(line) for line in (await run(bench, f"X=1 {word(program)}")).split())
    assert shell_pid != shell_parent
    assert parent == os.getpid()


async def test_a_function_of_the_profile_goes_before_a_program_of_its_name(bench: Bench) -> None:
    profile = anyio.Path(bench.environ["HOME"]) / ".bash_profile"
    await profile.write_text("env() { echo wrapped; }\n")
    assert await run(bench, "env") == "wrapped\n"
