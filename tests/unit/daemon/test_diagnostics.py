"""The checks on the machine with facts of the test."""

import resource
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from typing_extensions import override

from symphony.daemon.diagnostics import (
    CheckStatus,
    check_children,
    check_clock,
    check_disks,
    check_git,
    check_git_identity,
    check_open_files,
    check_user_namespaces,
    check_yaml,
    nearest_directory,
)
from symphony.processes.base import Completed
from symphony.processes.local import LocalHost

GIB = 1024**3


@pytest.mark.parametrize(("has_libyaml", "status"), [(True, CheckStatus.OK), (False, CheckStatus.WARNING)])
def test_a_parser_without_libyaml_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, *, has_libyaml: bool, status: CheckStatus
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", has_libyaml)
    (found,) = check_yaml()
    assert (found.status, found.hint is None) == (status, has_libyaml)


# --- disks ---


@pytest.mark.parametrize(
    ("total", "free", "status", "words"),
    [
        (100 * GIB, 50 * GIB, CheckStatus.OK, "50.0 GiB of 100.0 GiB are free"),
        (100 * GIB, 4 * GIB, CheckStatus.WARNING, "only 4.0 GiB of 100.0 GiB"),
        (2 * GIB, GIB // 2, CheckStatus.WARNING, "only 512 MiB of 2.0 GiB"),
        (2 * GIB, 1024**2, CheckStatus.ERROR, "1 MiB of 2.0 GiB"),
    ],
)
def test_little_room_is_warned_of_and_none_is_an_error(
    tmp_path: Path, total: int, free: int, status: CheckStatus, words: str
) -> None:
    place = tmp_path / "not" / "yet"
    (found,) = check_disks({"journal": place}, usage=lambda _: (total, total - free, free))
    assert (found.status, (found.hint is None)) == (status, status is CheckStatus.OK)
    assert found.message.startswith(words)
    assert str(place) in found.message


def test_the_nearest_directory_is_that_which_is_there(tmp_path: Path) -> None:
    assert nearest_directory(tmp_path) == tmp_path
    assert nearest_directory(tmp_path / "a" / "b") == tmp_path
    (tmp_path / "file").touch()
    assert nearest_directory(tmp_path / "file" / "b") == tmp_path
    assert nearest_directory(Path("relative/none")) in {Path(), Path("/")}


# --- the clock ---


@pytest.mark.parametrize(
    ("year", "status"),
    [(1970, CheckStatus.ERROR), (2023, CheckStatus.ERROR), (2026, CheckStatus.OK), (2101, CheckStatus.ERROR)],
)
@pytest.mark.asyncio
async def test_a_year_that_cannot_be_is_an_error(year: int, status: CheckStatus) -> None:
    (found,) = await check_clock(Told(), {}, datetime(year, 1, 1, tzinfo=UTC))
    assert found.status is status


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


@pytest.mark.parametrize(("said", "status"), [(b"no\n", CheckStatus.WARNING), (b"yes\n", CheckStatus.OK)])
@pytest.mark.asyncio
async def test_a_clock_that_nothing_synchronises_is_a_warning(said: bytes, status: CheckStatus) -> None:
    found = await check_clock(Told(timedatectl=(0, said, b"")), {})
    assert [one.status for one in found] == [status]


@pytest.mark.parametrize("told", [{}, {"timedatectl": (1, b"", b"no bus")}])
@pytest.mark.asyncio
async def test_a_machine_that_cannot_tell_whether_its_clock_is_synchronised_is_fine(
    told: dict[str, tuple[int, bytes, bytes]],
) -> None:
    (found,) = await check_clock(Told(**told), {})
    assert found.status is CheckStatus.OK


# --- programs and limits ---


@pytest.mark.asyncio
async def test_git_that_is_missing_or_broken_is_an_error() -> None:
    (found,) = await check_git(Told(), {})
    assert (found.status, found.hint) == (CheckStatus.ERROR, "install git: every workspace is a clone")
    (found,) = await check_git(Told(git=(127, b"", b"")), {})
    assert found.message == "git --version ends with exit code 127"
    (found,) = await check_git(Told(git=(0, b"git version 2.39.5\n", b"")), {})
    assert (found.status, found.message) == (CheckStatus.OK, "git version 2.39.5")


@pytest.mark.asyncio
async def test_an_identity_that_is_missing_is_a_warning() -> None:
    (found,) = await check_git_identity(Told(git=(1, b"", b"")), {}, None)
    assert found.status is CheckStatus.WARNING
    (found,) = await check_git_identity(Told(), {}, None)
    assert found.status is CheckStatus.WARNING
    (found,) = await check_git_identity(Told(git=(0, b"user.name\nme\0", b"")), {}, None)
    assert found.status is CheckStatus.WARNING, "an address is missing"
    both = b"user.name\nme\0user.email\nme@there\0committer.name\nbot\0"
    (found,) = await check_git_identity(Told(git=(0, both, b"")), {}, None)
    assert found.message == "sessions commit as me <me@there>, committed by bot <me@there>"


@pytest.mark.asyncio
async def test_user_namespaces_that_cannot_be_made_are_a_warning() -> None:
    (found,) = await check_user_namespaces(Told(unshare=(1, b"", b"unshare: Operation not permitted\n")), {})
    assert found.message == "this user cannot make them: unshare: Operation not permitted"
    (found,) = await check_user_namespaces(Told(unshare=(0, b"", b"")), {})
    assert found.status is CheckStatus.OK
    (found,) = await check_user_namespaces(Told(), {})
    assert found.status is CheckStatus.OK


@pytest.mark.parametrize(
    ("soft", "status"),
    [(64, CheckStatus.WARNING), (80, CheckStatus.OK), (resource.RLIM_INFINITY, CheckStatus.OK)],
)
def test_too_few_open_files_are_a_warning(soft: int, status: CheckStatus) -> None:
    (found,) = check_open_files(1, soft)
    assert found.status is status


@pytest.mark.parametrize("group", [Path("/sys/fs/cgroup/mine"), None])
def test_children_end_with_the_daemon_with_or_without_control_groups(group: Path | None) -> None:
    (found,) = check_children(lambda: group)
    assert found.status is CheckStatus.OK
    assert ("Delegate=yes" in found.message) is (group is None)
