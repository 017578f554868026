import errno
import signal
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from symphony.agents.base import Program
from symphony.agents.codex.backend import CodexBackend
from symphony.agents.preflight import missing_program, program_of
from symphony.config import CodexSettings
from symphony.domain import Category
from symphony.processes.base import Completed
from symphony.processes.local import LocalHost


@pytest.mark.conformance("L-4")
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"thread_sandbox": "danger-full-access"}, "thread_sandbox"),
        ({"turn_sandbox_policy": {"type": "dangerFullAccess"}}, "turn_sandbox_policy"),
        ({"turn_sandbox_policy": {"type": "danger-full-access"}}, "turn_sandbox_policy"),
        ({"turn_sandbox_policy": {"type": "externalSandbox"}}, "turn_sandbox_policy"),
        ({"command": "codex --yolo app-server"}, "command"),
        ({"command": "codex --dangerously-bypass-approvals-and-sandbox app-server"}, "command"),
        ({"command": "codex --sandbox danger-full-access app-server"}, "command"),
        ({"command": 'codex -c sandbox_mode="danger-full-access" app-server'}, "command"),
        ({"on_approval": "accept", "approval_policy": "on-request"}, "on_approval"),
        ({"on_approval": "accept", "approval_policy": {"granular": {}}}, "on_approval"),
    ],
)
def test_settings_without_a_sandbox_are_known_by_their_key(settings: dict[str, Any], key: str) -> None:
    remark = CodexBackend.check_settings(CodexSettings(**settings), isolated=False).no_sandbox
    assert remark is not None
    assert remark.key == key
    assert remark.hint


@pytest.mark.conformance("L-4")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"thread_sandbox": "read-only"},
        {"thread_sandbox": "something-new"},
        {"on_approval": "accept"},
        {"on_approval": "decline", "approval_policy": "on-request"},
        {"thread_sandbox": "danger-full-access", "turn_sandbox_policy": {"type": "readOnly"}},
        {"command": "codex app-server # not --yoloish"},
        {"turn_sandbox_policy": {}},
    ],
)
def test_settings_with_a_sandbox_need_no_word(settings: dict[str, Any]) -> None:
    assert CodexBackend.check_settings(CodexSettings(**settings), isolated=False).no_sandbox is None


@pytest.mark.parametrize("policy", ["never", "on-request", "untrusted", {"granular": {"rules": True}}])
def test_what_codex_takes_is_passed_on_without_a_word(policy: Any) -> None:
    assert CodexBackend.check_settings(CodexSettings(approval_policy=policy), isolated=False).warnings == ()


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        ("on-failure", "'on-failure'"),
        ({"reject": {"sandbox_approval": True}}, "'{reject: …}'"),
        ({"granular": {}, "x": 1}, "'{granular, x: …}'"),
        ({}, "'{: …}'"),
    ],
)
def test_what_codex_refuses_is_told_with_what_it_takes(policy: Any, shown: str) -> None:
    settings = CodexSettings(approval_policy=policy)
    (found,) = CodexBackend.check_settings(settings, isolated=False).warnings
    assert found.problem.startswith(f"{shown} is refused by Codex 0.169")
    assert "never, on-request, untrusted" in found.hint


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("codex app-server", "codex"),
        ("  exec codex app-server", "codex"),
        ("A=1 B='x y' /opt/codex/bin/codex app-server", "/opt/codex/bin/codex"),
        ("~/bin/codex app-server", "~/bin/codex"),
        ("'quoted' x", "quoted"),
        ("A=1 '/opt/my agent/bin' x", "'/opt/my agent/bin'"),
        ('"/opt/it\'s/bin" x', "'/opt/it'\"'\"'s/bin'"),
        ('"$HOME/my agent" x', None),
        ("$HOME/$(cat x)/agent", None),
        ("$CODEX app-server", None),
        ("(cd x; codex)", None),
        ("./codex app-server", None),
        ("tools/codex", None),
        ("'open", None),
        ("A=1", None),
        ("", None),
    ],
)
def test_the_program_of_a_command(command: str, program: str | None) -> None:
    assert program_of(command) == program


def program_for(command: str) -> Program:
    program = CodexBackend.program(CodexSettings(command=command), "codex")
    assert program is not None
    return program


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("FOO=1 bash -c x", True),
        ("no-such-program-here x", False),
        ("$UNKNOWN x", True),
        ("/nowhere/codex", False),
    ],
)
async def test_a_program_is_looked_for_as_it_would_be_started(command: str, *, found: bool) -> None:
    failure = await missing_program(
        program_for(command), host=LocalHost(), environment={"PATH": "/usr/bin:/bin"}
    )
    assert (failure is None) is found
    if failure is not None:
        assert failure.category is Category.CODEX_NOT_FOUND
        assert failure.hint


class LookupHost(LocalHost):
    """A host on which the lookup of a program ends as given."""

    def __init__(self, result: Completed | OSError) -> None:
        super().__init__()
        self._result = result

    @override
    async def run(self, *_: Any, **__: Any) -> Completed:
        if isinstance(self._result, OSError):
            raise self._result
        return self._result


def ended(exit_code: int, *, timed_out: bool = False) -> Completed:
    return Completed(exit_code=exit_code, stdout=b"", stderr=b"", timed_out=timed_out)


@pytest.mark.asyncio
async def test_without_a_shell_nothing_is_found() -> None:
    host = LookupHost(FileNotFoundError(errno.ENOENT, "No such file or directory", "bash"))
    failure = await missing_program(program_for("codex"), host=host, environment={})
    assert failure is not None
    assert "no program bash" in failure.message


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "result",
    [
        ended(-signal.SIGKILL),
        ended(-signal.SIGTERM),
        ended(128 + signal.SIGKILL),
        ended(1, timed_out=True),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    ],
    ids=["killed", "terminated", "killed below a subreaper", "too slow", "no memory", "no process"],
)
async def test_a_lookup_that_was_cut_short_does_not_make_a_program_missing(
    result: Completed | OSError,
) -> None:
    host = LookupHost(result)
    assert await missing_program(program_for("codex"), host=host, environment={}) is None


@pytest.mark.asyncio
async def test_a_shell_that_is_killed_does_not_make_a_program_missing(tmp_path: Path) -> None:
    (tmp_path / ".bash_profile").write_text("kill -9 $$\n")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    assert (
        await missing_program(program_for("no-such-program"), host=LocalHost(), environment=environment)
        is None
    )
