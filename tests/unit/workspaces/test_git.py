import fcntl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from symphony.domain import Category
from symphony.processes.base import Completed, Host
from symphony.workspaces import (
    Git,
    GitError,
    Layout,
    Mirror,
    RemoteRefs,
    WorkspaceError,
    config_value,
    parse_ls_remote,
    without_credentials,
)

pytestmark = pytest.mark.asyncio


class RecordingHost:
    """Answers every command with the next of the given outcomes, the last one for ever."""

    def __init__(self, *outcomes: Completed | Exception) -> None:
        self._outcomes = list(outcomes)
        self.calls: list[tuple[list[str], Mapping[str, str]]] = []

    async def run(self, argv: Sequence[str], *, env: Mapping[str, str], **_: Any) -> Completed:
        await anyio.lowlevel.checkpoint()
        self.calls.append((list(argv), env))
        outcome = self._outcomes[0] if len(self._outcomes) == 1 else self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def _git(host: RecordingHost, **environment: str) -> Git:
    return Git(cast("Host", host), environment, frozenset({"GIT_SSH_COMMAND"}))


def _done(code: int = 0, *, out: bytes = b"", err: bytes = b"", timed_out: bool = False) -> Completed:
    return Completed(exit_code=code, stdout=out, stderr=err, timed_out=timed_out)


async def test_only_listed_variables_and_no_secret_reach_git() -> None:
    host = RecordingHost(_done())
    git = _git(
        host,
        PATH="/bin",
        HOME="/home/x",
        https_proxy="http://proxy",
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0="a.b",
        GIT_DIR="/evil",
        GIT_SSH_COMMAND="secret",
        GIT_EXTERNAL_DIFF="evil",
        LD_PRELOAD="evil",
        API_TOKEN="secret",
    )

    await git.trusted("fetch")

    (_, env) = host.calls[0]
    assert {"PATH", "HOME", "https_proxy", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0"} <= env.keys()
    assert not {"GIT_DIR", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "LD_PRELOAD", "API_TOKEN"} & env.keys()
    assert (env["GIT_TERMINAL_PROMPT"], env["LC_ALL"]) == ("0", "C")


async def test_isolated_commands_see_no_configuration_but_the_repositorys() -> None:
    host = RecordingHost(_done())
    git = _git(host, GIT_CONFIG_GLOBAL="/home/x/.gitconfig", GIT_CONFIG_COUNT="1")

    await git.isolated("status")
    await git.is_ancestor(Path("git"), "a", "b")

    for _, env in host.calls:
        assert (env["GIT_CONFIG_GLOBAL"], env["GIT_CONFIG_NOSYSTEM"]) == ("/dev/null", "1")
        assert (env["GIT_CONFIG_COUNT"], env["GIT_ALLOW_PROTOCOL"]) == ("0", "file")


async def test_hooks_and_fsmonitor_are_off_in_every_command() -> None:
    host = RecordingHost(_done())

    await _git(host).trusted("fetch")
    await _git(host).isolated("status")

    for argv, _ in host.calls:
        assert argv[0] == "git"
        assert {"core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.ext.allow=never"} <= set(argv)
        assert "safe.bareRepository=all" in argv, "the operator may have said `explicit`"


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (_done(128, err=b"hint: x\nfatal: no way\n"), "git fetch: fatal: no way"),
        (_done(1, err=b"plain words\n"), "git fetch: plain words"),
        (_done(-9), "git fetch: exit code -9"),
        (_done(-15, timed_out=True), "git fetch did not end in time"),
        (_done(1, err=b"fatal: http://me:pw@host/x is bad\n"), "git fetch: fatal: http://host/x is bad"),
        (_done(1, err=b"fatal: http://me:p@w@host/x is bad\n"), "git fetch: fatal: http://host/x is bad"),
        (_done(1, err=b"remote: \nremote: not \x1b[1myou\n! no\n"), "git fetch: ! no; remote: not you"),
        (
            _done(
                1, err=b"helper: password=hunter2 is old\nfatal: could not read Password for 'https://h'\n"
            ),
            r"git fetch: helper: password=\*\*\* is old; fatal: could not read Password for 'https://h'",
        ),
        (FileNotFoundError(2, "No such file", "git"), "git could not be started: .*'git'"),
    ],
)
async def test_failures_become_one_line(outcome: Completed | Exception, message: str) -> None:
    with pytest.raises(GitError, match=f"^{message}$"):
        await _git(RecordingHost(outcome)).trusted("-C", Path("/somewhere"), "fetch")


async def test_an_ancestor_is_known_by_the_exit_code() -> None:
    late = _done(1, timed_out=True)
    git = _git(RecordingHost(_done(0), _done(1), _done(128, err=b"fatal: bad object\n"), late))

    assert await git.is_ancestor(Path("git"), "a", "b")
    assert not await git.is_ancestor(Path("git"), "a", "b")
    with pytest.raises(GitError, match="git merge-base: fatal: bad object"):
        await git.is_ancestor(Path("git"), "a", "b")
    with pytest.raises(GitError):
        await git.is_ancestor(Path("git"), "a", "b")


async def test_values_are_escaped_for_configuration_files() -> None:
    assert config_value('a "b" \\ # ;\n[c]') == '"a \\"b\\" \\\\ # ;\\n[c]"'


async def test_credentials_are_taken_out_of_addresses() -> None:
    assert (
        without_credentials("https://me:pw@host/p and ssh://git@host/q") == "https://host/p and ssh://host/q"
    )
    assert without_credentials("git@host:path") == "git@host:path"
    assert without_credentials("/a@b/c") == "/a@b/c"


async def test_what_a_repository_advertises_is_read() -> None:
    answer = (
        b"ref: refs/heads/main\tHEAD\n1\tHEAD\n1\trefs/heads/main\n2\trefs/heads/a/b\n"
        b"3\trefs/remotes/origin/HEAD\n\n"
    )

    assert parse_ls_remote(answer) == RemoteRefs(
        head_branch="main", head="1", branches={"main": "1", "a/b": "2"}
    )
    assert parse_ls_remote(b"") == RemoteRefs()


class TestBurst:
    @pytest.fixture
    def layout(self, tmp_path: Path) -> Layout:
        layout = Layout(tmp_path)
        layout.staging.mkdir(parents=True)
        return layout

    async def test_a_failed_refresh_serves_all_that_waited_for_it(self, layout: Layout) -> None:
        host = RecordingHost(_done(128, err=b"fatal: unreachable\n"))
        mirror = Mirror(_git(host), layout, "/repo", now_s=lambda: 100.0)
        failures: list[WorkspaceError] = []

        async def ask() -> None:
            with pytest.raises(WorkspaceError) as caught:
                await mirror.refresh()
            failures.append(caught.value)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)

        assert [error.failure.category for error in failures] == [Category.WORKSPACE_REPOSITORY] * 5
        assert len(host.calls) == 1

    async def test_who_asks_while_a_refresh_runs_shares_the_next_one(self, layout: Layout) -> None:
        host = RecordingHost(_done(128, err=b"fatal: unreachable\n"))
        mirror = Mirror(_git(host), layout, "/repo")
        asked: list[int] = []

        async def ask() -> None:
            with pytest.raises(WorkspaceError):
                await mirror.refresh()
            asked.append(len(host.calls))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not host.calls:
                await anyio.lowlevel.checkpoint()
            for _ in range(4):
                group.start_soon(ask)

        assert asked == [1, 2, 2, 2, 2]

    async def test_later_the_repository_is_asked_again(self, layout: Layout) -> None:
        host = RecordingHost(_done(128, err=b"fatal: unreachable\n"))
        now = [100.0]
        mirror = Mirror(_git(host), layout, "/repo", now_s=lambda: now[0])

        for now[0] in (100.0, 100.1):
            with pytest.raises(WorkspaceError):
                await mirror.refresh()

        assert len(host.calls) == 2


async def test_a_mirror_that_somebody_locks_for_ever_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.mirrors.mkdir(parents=True)
    mirror = Mirror(_git(RecordingHost(_done())), layout, "/repo", lock_wait_s=0.1)
    with mirror.path.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        with anyio.fail_after(60), pytest.raises(WorkspaceError, match="another process has held"):
            await mirror.refresh()
