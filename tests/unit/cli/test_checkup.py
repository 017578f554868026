"""How checks are run and summed up, and the checks on the machine with facts of the test."""

import os
import resource
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from typing_extensions import override

from harness.pictures import busy, status_of
from symphony.cli import diagnostics
from symphony.cli.diagnostics import (
    Checkup,
    Finding,
    Status,
    check_children,
    check_clock,
    check_disk,
    check_git,
    check_open_files,
    check_user_namespaces,
    check_yaml,
    examine_all,
    failed,
    fine,
    nearest,
    odd,
)
from symphony.cli.failures import CommandError, ExitCode
from symphony.domain import Blame, Category, Failure, Redaction, SymphonyError
from symphony.processes.base import Completed
from symphony.processes.local import LocalHost

GIB = 1024**3
SECRET = "correct-horse-battery"


def failure(category: Category, blame: Blame = Blame.HOST, **more: str) -> Failure:
    return Failure(category=category, blame=blame, message="it is broken", **more)  # type: ignore[arg-type]  # texts


async def nothing() -> Sequence[Finding]:
    return [fine("nothing", "to see")]


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
    found = await examine_all(checks, redaction=Redaction([SECRET]), tell=told.append, limit_s=0.05)
    assert [(one.check, one.status, one.message, one.code) for one in found] == [
        ("hangs", Status.ERROR, "no answer within 0.05 s", ExitCode.FAILURE),
        ("crashes", Status.ERROR, "the check itself failed: ValueError: a bug with ***", ExitCode.FAILURE),
        ("fails", Status.ERROR, "it is broken", ExitCode.AUTHENTICATION),
        ("is_silent", Status.ERROR, "no answer", ExitCode.UNREACHABLE),
        ("nothing", Status.OK, "to see", ExitCode.OK),
    ]
    assert all(one.hint for one in found if one.status is not Status.OK)
    assert told[0] == list(checks)
    assert told[-1] == []


@pytest.mark.parametrize(
    ("codes", "expected"),
    [((), 0), ((1, 3), 3), ((4, 3, 1), 4), ((5, 1), 5)],
)
def test_the_highest_exit_code_wins(codes: Sequence[int], expected: int) -> None:
    errors = [failed("x", failure(Category.COMMAND), hint="h", code=ExitCode(code)) for code in codes]
    up = Checkup(workflow="W", findings=(fine("a", "b"), odd("c", "d", hint="e"), *errors))
    assert (up.code, up.document().ok) == (expected, expected == 0)


def test_a_failure_tells_its_place_and_keeps_its_own_hint() -> None:
    one = failed(
        "x", failure(Category.INVALID_WORKFLOW_CONFIG, Blame.CONFIG, where="W:3", hint="h"), hint="no"
    )
    assert (one.message, one.hint, one.code) == ("W:3: it is broken", "h", ExitCode.CONFIGURATION)


@pytest.mark.parametrize(("has_libyaml", "status"), [(True, Status.OK), (False, Status.WARNING)])
@pytest.mark.asyncio
async def test_a_parser_without_libyaml_is_odd(
    monkeypatch: pytest.MonkeyPatch, *, has_libyaml: bool, status: Status
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", has_libyaml)
    (found,) = await check_yaml()
    assert (found.check, found.status, found.hint is None) == ("yaml", status, has_libyaml)


# --- disks ---


@pytest.mark.parametrize(
    ("total", "free", "status", "words"),
    [
        (100 * GIB, 50 * GIB, Status.OK, "50.0 GiB of 100.0 GiB are free"),
        (100 * GIB, 4 * GIB, Status.WARNING, "only 4.0 GiB of 100.0 GiB"),
        (2 * GIB, GIB // 2, Status.WARNING, "only 512 MiB of 2.0 GiB"),
        (2 * GIB, 1024**2, Status.ERROR, "1 MiB of 2.0 GiB"),
    ],
)
@pytest.mark.asyncio
async def test_little_room_is_warned_of_and_none_is_an_error(
    tmp_path: Path, total: int, free: int, status: Status, words: str
) -> None:
    place = tmp_path / "not" / "yet"
    (found,) = await check_disk({"journal": place}, usage=lambda _: (total, total - free, free))
    assert (found.status, (found.hint is None)) == (status, status is Status.OK)
    assert found.message.startswith(words)
    assert str(place) in found.message


@pytest.mark.asyncio
async def test_a_disk_may_run_out_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = list(os.statvfs(tmp_path))
    facts[5], facts[7] = 1_000_000, 12  # f_files, f_favail
    facts[6] = 12
    few = os.statvfs_result(facts)
    monkeypatch.setattr(os, "statvfs", lambda _: few)
    (found,) = await check_disk({"journal": tmp_path}, usage=lambda _: (9 * GIB, 0, 9 * GIB))
    assert found.status is Status.WARNING
    assert "more files fit" in found.message


def test_the_nearest_directory_is_that_which_is_there(tmp_path: Path) -> None:
    assert nearest(tmp_path) == tmp_path
    assert nearest(tmp_path / "a" / "b") == tmp_path
    (tmp_path / "file").touch()
    assert nearest(tmp_path / "file" / "b") == tmp_path
    assert nearest(Path("relative/none")) in {Path(), Path("/")}


# --- the clock ---


@pytest.mark.parametrize(("year", "count"), [(1970, 1), (2023, 1), (2026, 0), (2101, 1)])
def test_a_year_that_cannot_be_is_an_error(year: int, count: int) -> None:
    found = diagnostics._year(datetime(year, 1, 1, tzinfo=UTC))
    assert [one.status for one in found] == [Status.ERROR] * count


class Told(LocalHost):
    """A machine whose programs print what the test says; one that is not named is not installed."""

    def __init__(self, **said: tuple[int, bytes, bytes]) -> None:
        self._said = said

    @override
    async def run(self, argv: Sequence[str], **_: object) -> Completed:
        if argv[0] not in self._said:
            raise FileNotFoundError(2, "No such file or directory")
        code, out, err = self._said[argv[0]]
        return Completed(exit_code=code, stdout=out, stderr=err)


@pytest.mark.parametrize(("said", "status"), [(b"no\n", Status.WARNING), (b"yes\n", Status.OK)])
@pytest.mark.asyncio
async def test_a_clock_that_nothing_synchronises_is_odd(said: bytes, status: Status) -> None:
    found = await check_clock(Told(timedatectl=(0, said, b"")), {})
    assert [one.status for one in found] == [status]


@pytest.mark.parametrize("told", [{}, {"timedatectl": (1, b"", b"no bus")}])
@pytest.mark.asyncio
async def test_a_machine_that_cannot_tell_whether_its_clock_is_synchronised_is_fine(
    told: dict[str, tuple[int, bytes, bytes]],
) -> None:
    (found,) = await check_clock(Told(**told), {})
    assert found.status is Status.OK


# --- programs and limits ---


@pytest.mark.asyncio
async def test_git_that_is_missing_or_broken_is_an_error() -> None:
    (found,) = await check_git(Told(), {})
    assert (found.status, found.hint) == (Status.ERROR, "install git: every workspace is a clone")
    (found,) = await check_git(Told(git=(127, b"", b"")), {})
    assert found.message == "git --version ends with exit code 127"
    (found,) = await check_git(Told(git=(0, b"git version 2.39.5\n", b"")), {})
    assert (found.status, found.message) == (Status.OK, "git version 2.39.5")


@pytest.mark.asyncio
async def test_an_identity_that_is_missing_is_odd() -> None:
    (found,) = await diagnostics.check_identity(Told(git=(1, b"", b"")), {}, None)
    assert found.status is Status.WARNING
    (found,) = await diagnostics.check_identity(Told(), {}, None)
    assert found.status is Status.WARNING
    (found,) = await diagnostics.check_identity(Told(git=(0, b"me\n", b"")), {}, None)
    assert found.message == "sessions commit as me <me>"


@pytest.mark.asyncio
async def test_user_namespaces_that_cannot_be_made_are_odd() -> None:
    (found,) = await check_user_namespaces(Told(unshare=(1, b"", b"unshare: Operation not permitted\n")), {})
    assert found.message == "this user cannot make them: unshare: Operation not permitted"
    (found,) = await check_user_namespaces(Told(unshare=(0, b"", b"")), {})
    assert found.status is Status.OK
    (found,) = await check_user_namespaces(Told(), {})
    assert found.status is Status.OK


@pytest.mark.parametrize(
    ("soft", "status"), [(64, Status.WARNING), (80, Status.OK), (resource.RLIM_INFINITY, Status.OK)]
)
@pytest.mark.asyncio
async def test_too_few_open_files_are_odd(soft: int, status: Status) -> None:
    (found,) = await check_open_files(None, limit=lambda _: (soft, soft))
    assert found.status is status


@pytest.mark.parametrize("group", [Path("/sys/fs/cgroup/mine"), None])
@pytest.mark.asyncio
async def test_children_end_with_the_daemon_with_or_without_control_groups(group: Path | None) -> None:
    (found,) = await check_children(group=lambda: group)
    assert found.status is Status.OK
    assert ("Delegate=yes" in found.message) is (group is None)


# --- what a daemon says of itself ---


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"health": {"status": "ok"}}, [("ok", "a daemon (pid 7) holds it, and answers")]),
        (
            {"health": {"status": "draining"}},
            [("warning", "a daemon (pid 7) holds it, and says of itself: draining")],
        ),
        (
            {"health": {"status": "ok"}, "journal": {"state": "memory", "reason": "full", "hint": None}},
            [
                ("ok", "a daemon (pid 7) holds it, and answers"),
                ("warning", "the daemon (pid 7) keeps its journal in memory alone: full"),
            ],
        ),
    ],
)
def test_a_daemon_that_is_not_well_is_odd(state: dict[str, Any], told: list[tuple[str, str]]) -> None:
    found = diagnostics._told_by(status_of(busy(**state)), 7)
    assert [(one.status.value, one.message) for one in found] == told
