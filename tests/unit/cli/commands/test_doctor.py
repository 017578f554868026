"""How checks are run and summed up."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import UNSET, structs

from harness.pictures import busy, status_of
from symphony import __version__, revision
from symphony.cli.commands.doctor import daemon_findings, exit_code_of, to_document
from symphony.cli.failures import CommandError, ExitCode
from symphony.config import SecretSource
from symphony.daemon.diagnostics import Finding, check_secrets, error, failed, ok, run_checks, warning
from symphony.domain import Blame, Category, Failure, Redaction, SymphonyError

SECRET = "correct-horse-battery"


def failure(category: Category, blame: Blame = Blame.HOST, **more: str) -> Failure:
    return Failure(category=category, blame=blame, message="it is broken", **more)  # type: ignore[arg-type]  # texts


async def nothing() -> Sequence[Finding]:
    return [ok("to see")]


async def hangs() -> Sequence[Finding]:
    await anyio.sleep_forever()
    return []


async def crashes() -> Sequence[Finding]:
    raise ValueError(f"a bug with {SECRET}")


async def fails() -> Sequence[Finding]:
    raise SymphonyError(failure(Category.AGENT_AUTH, Blame.CONFIG, hint="log in"))


async def is_silent() -> Sequence[Finding]:
    raise CommandError.of("no answer", hint="wait", code=ExitCode.UNREACHABLE)


@pytest.mark.asyncio
async def test_each_check_is_bounded_and_what_it_raises_is_a_finding() -> None:
    told: list[Sequence[str]] = []
    checks = {"hangs": hangs, "crashes": crashes, "fails": fails, "is_silent": is_silent, "nothing": nothing}
    found = await run_checks(checks, told.append, timeout_s=0.05)
    document = to_document(Path("W"), found, Redaction([SECRET]))
    assert [(one.name, one.status, one.message) for one in document.checks] == [
        ("hangs", "error", "no answer within 0.05 s"),
        ("crashes", "error", "the check itself failed: ValueError: a bug with ***"),
        ("fails", "error", "it is broken"),
        ("is_silent", "error", "no answer"),
        ("nothing", "ok", "to see"),
    ]
    assert all(one.hint for one in document.checks if one.status != "ok")
    assert [exit_code_of(one) for (one,) in found.values()] == [
        ExitCode.FAILURE,
        ExitCode.FAILURE,
        ExitCode.AUTHENTICATION,
        ExitCode.UNREACHABLE,
        ExitCode.OK,
    ]
    assert told[0] == list(checks)
    assert told[-1] == []


@pytest.mark.parametrize(
    ("codes", "expected"),
    [((), 0), ((1, 3), 3), ((4, 3, 1), 4), ((5, 1), 5)],
)
def test_the_highest_exit_code_wins(codes: Sequence[int], expected: int) -> None:
    errors = [
        error("it is broken", "h", CommandError.of("it is broken", hint="h", code=ExitCode(code)))
        for code in codes
    ]
    document = to_document(Path("W"), {"a": [ok("b")], "c": [warning("d", "e"), *errors]}, Redaction())
    assert (document.exit_code, document.ok) == (expected, expected == 0)


def test_a_failure_tells_its_place_and_keeps_its_own_hint() -> None:
    broken = failure(Category.INVALID_WORKFLOW_CONFIG, Blame.CONFIG, where="W:3", hint="h")
    one = failed(SymphonyError(broken), "no")
    assert (one.message, one.hint, exit_code_of(one)) == ("W:3: it is broken", "h", ExitCode.CONFIGURATION)


# --- what a daemon says of itself ---


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"health": {"status": "ok"}}, [("ok", "a daemon (pid 7) has it, and answers")]),
        (
            {"health": {"status": "draining"}},
            [("warning", "a daemon (pid 7) has it, and reports: draining")],
        ),
        (
            {"health": {"status": "ok"}, "journal": {"state": "memory", "reason": "full", "hint": None}},
            [
                ("ok", "a daemon (pid 7) has it, and answers"),
                ("warning", "the daemon (pid 7) keeps its journal only in memory: full"),
            ],
        ),
    ],
)
def test_a_daemon_that_is_not_well_is_a_warning(state: dict[str, Any], told: list[tuple[str, str]]) -> None:
    found = daemon_findings(status_of(busy(**state)), 7)
    assert [(one.status.value, one.message) for one in found] == told


@pytest.mark.parametrize(
    ("version", "commit", "told"),
    [
        ("0.0.9", None, True),
        ("0.0.9", "abc1234", True),
        (__version__, None, False),
        (__version__, revision.commit(), False),
        (__version__, "0000000", revision.commit() is not None),
        (UNSET, UNSET, False),
    ],
)
def test_a_daemon_that_is_not_the_installed_package_is_named(
    version: Any, commit: Any, *, told: bool
) -> None:
    state = structs.replace(status_of(busy(health={"status": "ok"})), version=version, commit=commit)
    found = daemon_findings(state, 7)
    assert [one.status.value for one in found] == ["ok", *(["warning"] if told else [])]
    assert (revision.other_version(version, commit) is not None) == told


# --- secrets ---


def test_what_is_masked_is_named_by_its_setting_and_never_by_its_value() -> None:
    known = [
        SecretSource("tracker.provider.api_key ($KEY)", "Zx9q81Lmb2", named=True),
        SecretSource("notify.ops.url", "https://hooks.example.com/symphony", named=False),
        SecretSource("$DB_PASSWORD", "hunter2", named=True),
    ]
    said = [one.message for one in check_secrets({}, known)]
    assert [one.status.value for one in check_secrets({}, known)] == ["ok"] * 3
    assert "tracker.provider.api_key ($KEY)" in said[1]
    assert "$DB_PASSWORD" in said[2]
    assert "notify.ops.url" in said[2]
    assert not any(value in line for line in said for value in ("Zx9q81Lmb2", "hunter2", "example.com"))
