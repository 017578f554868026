"""Checks of `symphony doctor` on this machine: secrets, git, disks, the clock, what children need."""

import os
import platform
import resource
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import yaml

from symphony.agents.environment import child_environment
from symphony.cli.checkup import Finding, failed, fine, in_thread, odd
from symphony.cli.failures import CommandError
from symphony.cli.nearest import nearest
from symphony.daemon.bound import Bound
from symphony.processes.base import Completed, Host
from symphony.processes.groups import own_group
from symphony.processes.secrets import EXPOSED_HINT, SecretFileError, read_secrets
from symphony.processes.subreaper import available
from symphony.revision import version_text

__all__ = [
    "check_children",
    "check_clock",
    "check_disk",
    "check_git",
    "check_identity",
    "check_open_files",
    "check_secrets",
    "check_user_namespaces",
    "check_version",
    "check_yaml",
]

_COMMAND_MS: Final = 10_000
_GIB: Final = 1024**3
_MIB: Final = 1024**2
_LITTLE_BYTES: Final = _GIB
_NONE_BYTES: Final = 64 * _MIB
_LITTLE_SHARE: Final = 0.05
_FEW_INODES: Final = 10_000
_FIRST_YEAR, _LAST_YEAR = 2024, 2100
_FILES_EACH, _FILES_BASE = 16, 64
_NAMESPACES_HINT: Final = (
    "sysctl kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0 permit them"
)


async def _run(host: Host, environment: Mapping[str, str], *argv: str, cwd: Path | None = None) -> Completed:
    env = child_environment(environment, run_id="doctor")
    return await host.run(argv, cwd=cwd, env=env, timeout_ms=_COMMAND_MS)


def _text(done: Completed) -> str:
    return done.stdout.decode("utf-8", "replace").strip()


async def check_version() -> list[Finding]:
    """Which program this is, and on what it runs: what whoever helps asks first."""
    return [fine("version", await in_thread(_program))]


def _program() -> str:
    system = f"{platform.system()} {platform.release()}"
    return f"symphony {version_text()}, Python {platform.python_version()}, {system}"


async def check_yaml() -> list[Finding]:
    """Whether front matter is parsed by libyaml; without it the same is read some ten times slower."""
    if yaml.__with_libyaml__:
        return [fine("yaml", f"PyYAML {yaml.__version__} with libyaml")]
    hint = "install a PyYAML that has it: pip install --force-reinstall --only-binary :all: PyYAML"
    return [odd("yaml", f"PyYAML {yaml.__version__} without libyaml: skills load slowly", hint=hint)]


async def check_git(host: Host, environment: Mapping[str, str]) -> list[Finding]:
    """The program, and its version for whoever reads the report."""
    hint = "install git: every workspace is a clone"
    try:
        done = await _run(host, environment, "git", "--version")
    except OSError as error:
        failure = CommandError.of(f"git cannot be started: {error.strerror or error}", hint=hint).failure
        return [failed("git", failure, hint=hint)]
    if done.exit_code != 0:
        failure = CommandError.of(f"git --version ends with exit code {done.exit_code}", hint=hint).failure
        return [failed("git", failure, hint=hint)]
    return [fine("git", _text(done))]


async def check_secrets(environment: Mapping[str, str]) -> list[Finding]:
    """Which secrets come from files, by name, and what is wrong or odd about those files."""
    try:
        secrets = await in_thread(read_secrets, environment)
    except SecretFileError as error:
        return [failed("secrets", failure, hint="mend the file") for failure in error.failures]
    names = ", ".join(sorted(secrets.sources))
    found = [fine("secrets", f"from files: {names}" if names else "none comes from a file")]
    text = "other users can read or change {}"
    return found + [odd("secrets", text.format(path), hint=EXPOSED_HINT) for path in secrets.exposed]


async def check_identity(host: Host, environment: Mapping[str, str], bound: Bound | None) -> list[Finding]:
    """Under which name sessions commit: the operator's own, else one of ours."""
    repo = None if bound is None else bound.settings.workspace.repo
    local = repo is not None and await anyio.Path(repo).is_dir()
    cwd = Path(repo) if repo is not None and local else None
    told = []
    for key in ("user.name", "user.email"):
        try:
            done = await _run(host, environment, "git", "config", "--get", key, cwd=cwd)
        except OSError:
            return [odd("git_identity", "not looked at, because git cannot be started", hint="install git")]
        told.append(_text(done))
    name, email = told
    if name and email:
        return [fine("git_identity", f"sessions commit as {name} <{email}>")]
    return [
        odd(
            "git_identity",
            "git has no user.name and user.email, so sessions commit under a name of ours",
            hint='git config --global user.name "…" && git config --global user.email "…"',
        )
    ]


async def check_disk(
    disks: Mapping[str, Path], *, usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage
) -> list[Finding]:
    """Room for workspaces, for the journal and for what agents say."""
    return await in_thread(lambda: [_disk(name, path, usage) for name, path in disks.items()])


def _disk(name: str, path: Path, usage: Callable[[Path], tuple[int, int, int]]) -> Finding:
    place = nearest(path)
    total, _, free = usage(place)
    inodes = os.statvfs(place)
    text = f"{_size(free)} of {_size(total)} are free for the {name} {path}"
    hint = "free some room there; `symphony clean --dry-run` shows what old runs have left"
    if free < _NONE_BYTES:
        return failed("disk", CommandError.of(text, hint=hint).failure, hint=hint)
    if free < _LITTLE_BYTES or free < total * _LITTLE_SHARE:
        return odd("disk", f"only {text}", hint=hint)
    if inodes.f_files > 0 and inodes.f_favail < _FEW_INODES:
        return odd("disk", f"only {inodes.f_favail} more files fit where the {name} {path} is", hint=hint)
    return fine("disk", text)


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


async def check_clock(host: Host, environment: Mapping[str, str]) -> list[Finding]:
    """Whether times in logs, comments and the journal can be believed; no timer depends on it."""
    found = _year(datetime.now(UTC))
    if await _unsynchronised(host, environment):
        hint = "switch time synchronisation on (timedatectl set-ntp true, or chrony)"
        found.append(odd("clock", "nothing synchronises the clock of this machine", hint=hint))
    return found or [fine("clock", f"it is {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")]


def _year(now: datetime) -> list[Finding]:
    if _FIRST_YEAR <= now.year <= _LAST_YEAR:
        return []
    hint = "set the clock: certificates, tokens and the daily budget depend on it"
    return [
        failed("clock", CommandError.of(f"it cannot be the year {now.year}", hint=hint).failure, hint=hint)
    ]


async def _unsynchronised(host: Host, environment: Mapping[str, str]) -> bool:
    """Whether `timedatectl` says so; a machine without it says nothing."""
    try:
        done = await _run(host, environment, "timedatectl", "show", "--property=NTPSynchronized", "--value")
    except OSError:
        return False
    return done.exit_code == 0 and _text(done) == "no"


async def check_user_namespaces(host: Host, environment: Mapping[str, str]) -> list[Finding]:
    """Whether an agent's sandbox can be made of them."""
    argv: Sequence[str] = ("unshare", "--user", "--map-root-user", "true")
    try:
        done = await _run(host, environment, *argv)
    except OSError:
        return [fine("user_namespaces", "not tried: there is no unshare(1); the agent's own check decides")]
    if done.exit_code == 0:
        return [fine("user_namespaces", "this user can make them, as sandboxes of agents do")]
    said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.exit_code}"
    return [odd("user_namespaces", f"this user cannot make them: {said}", hint=_NAMESPACES_HINT)]


async def check_open_files(
    bound: Bound | None, *, limit: Callable[[int], tuple[int, int]] = resource.getrlimit
) -> list[Finding]:
    """Pipes, sockets and logs of all sessions at once."""
    agents = 1 if bound is None else bound.settings.agent.max_concurrent_agents
    needed = _FILES_BASE + _FILES_EACH * agents
    soft, _ = limit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        told = "without limit" if soft == resource.RLIM_INFINITY else f"up to {soft}"
        return [fine("open_files", f"{told}, enough for {agents} session{'' if agents == 1 else 's'}")]
    text = f"at most {soft} files may be open, and {agents} sessions may need {needed}"
    return [odd("open_files", text, hint=f"ulimit -n {needed}, or LimitNOFILE={needed} in the service unit")]


async def check_children(
    *, tied: Callable[[], bool] = available, group: Callable[[], Path | None] = own_group
) -> list[Finding]:
    """What becomes of agents and hooks when the daemon is killed, and whether a run can lose a process.

    Without groups nothing is amiss: marks have to do. They are those of where this is asked, and a service
    may have others.
    """
    held, own = await in_thread(lambda: (tied(), group()))
    groups = (
        "each run gets a control group too"
        if own is not None
        else "no run has a control group, as this one cannot be divided (Delegate=yes of systemd)"
    )
    if held:
        return [fine("children", f"they end with the daemon; {groups}")]
    hint = "this is so on Linux, with /proc; elsewhere the next start ends them"
    return [odd("children", f"they outlive a daemon that is killed; {groups}", hint=hint)]
