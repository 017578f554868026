"""Checks what a daemon needs of this machine, for `symphony doctor` and for the page of the system.

A check returns findings and changes nothing. All checks run at once. A check that raises or takes too long
counts as an error and does not affect the others.
"""

import os
import platform
import resource
import shlex
import shutil
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import yaml

from symphony import to_thread
from symphony.agents.environment import child_environment
from symphony.api.models import DoctorCheck
from symphony.config import EXPOSED_HINT, SecretFileError, SecretSource, WorkspaceSettings, read_secrets
from symphony.daemon.context import RuntimeContext, known_secrets
from symphony.domain import Redaction, SymphonyError, plural
from symphony.processes.base import Completed, Host
from symphony.processes.cgroups import own_cgroup
from symphony.revision import version_text
from symphony.workspaces import Git, identity_at, local_repository, mirror_path

TIMEOUT_S: Final = 20.0
_COMMAND_TIMEOUT_MS: Final = 10_000
_GIB: Final = 1024**3
_MIB: Final = 1024**2
_MIN_FREE_BYTES: Final = 64 * _MIB
_LOW_FREE_BYTES: Final = _GIB
_LOW_FREE_SHARE: Final = 0.05
_FILES_PER_SESSION: Final = 16
_FILES_OF_DAEMON: Final = 64
_PARTS: Final = ("name", "email")
_FIRST_YEAR, _LAST_YEAR = 2024, 2100


class CheckStatus(StrEnum):
    """Severity of a finding: a daemon works with a warning, and does not work with an error."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check.

    Attributes:
        hint: how to repair it; None if there is nothing to repair.
        cause: the exception that an error stems from, if there is one.
    """

    status: CheckStatus
    message: str
    hint: str | None = None
    cause: SymphonyError | None = None


def ok(message: str) -> Finding:
    """A finding that needs no action."""
    return Finding(status=CheckStatus.OK, message=message)


def warning(message: str, hint: str) -> Finding:
    """A finding that the user should look at, although a daemon works."""
    return Finding(status=CheckStatus.WARNING, message=message, hint=hint)


def error(message: str, hint: str, cause: SymphonyError | None = None) -> Finding:
    """A finding with which a daemon does not work."""
    return Finding(status=CheckStatus.ERROR, message=message, hint=hint, cause=cause)


def failed(cause: SymphonyError, hint: str) -> Finding:
    """An error from an exception; `hint` is for a failure that has none."""
    failure = cause.failure
    message = failure.message if failure.where is None else f"{failure.where}: {failure.message}"
    return error(message, failure.hint or hint, cause)


Check = Callable[[], Awaitable[Sequence[Finding]]]


def in_thread(check: Callable[..., Sequence[Finding]], *arguments: Any) -> Check:
    """The check in a thread. A hanging thread, for example on a dead disk, is abandoned at the timeout."""
    return partial(to_thread.run_sync, check, *arguments, abandon_on_cancel=True)


def machine_checks(
    host: Host, environment: Mapping[str, str], state_dir: Path, context: RuntimeContext | None
) -> dict[str, Check]:
    """The checks of this machine by name. They contact no agent, no tracker and no other machine.

    Args:
        host: runs short commands of the system.
        environment: variables of the daemon.
        state_dir: the state directory, which may be missing.
        context: the one in force; `None` if the workflow file cannot be used.
    """
    settings = None if context is None else context.settings
    secrets = () if context is None else known_secrets(context.workflow, environment, tracker=context.tracker)
    disks = {"state directory": state_dir}
    if settings is not None:
        disks["workspace.root"] = settings.workspace.root
    return {
        "version": in_thread(check_version),
        "yaml": in_thread(check_yaml),
        "secrets": in_thread(check_secrets, environment, tuple(secrets)),
        "git": partial(check_git, host, environment),
        "git_identity": partial(
            check_git_identity, host, environment, settings.workspace if settings else None
        ),
        "state_directory": in_thread(check_state_directory, state_dir),
        "disk": in_thread(check_disks, disks),
        "clock": partial(check_clock, host, environment),
        "user_namespaces": partial(check_user_namespaces, host, environment),
        "open_files": in_thread(check_open_files, settings.agent.max_concurrent_agents if settings else 1),
        "children": in_thread(check_children),
    }


async def run_checks(
    checks: Mapping[str, Check],
    on_progress: Callable[[Sequence[str]], None] = lambda _: None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> Mapping[str, Sequence[Finding]]:
    """Run the checks at once; return their findings by the name of the check."""
    done: dict[str, Sequence[Finding]] = {}

    async def run(name: str, check: Check) -> None:
        try:
            with anyio.fail_after(timeout_s):
                done[name] = await check()
        except TimeoutError:
            hint = "something hangs: a disk, the network or a program"
            done[name] = [error(f"no answer within {timeout_s:g} s", hint)]
        except SymphonyError as raised:
            done[name] = [failed(raised, "the message names the cause")]
        except Exception as raised:  # noqa: BLE001 - a bug in one check must not hide the other findings
            message = f"the check itself failed: {type(raised).__name__}: {raised}"
            done[name] = [error(message, "the other checks hold")]
        on_progress([other for other in checks if other not in done])

    on_progress(list(checks))
    async with anyio.create_task_group() as group:
        for name, check in checks.items():
            group.start_soon(run, name, check)
    return {name: done[name] for name in checks}


def check_documents(
    findings: Mapping[str, Sequence[Finding]], redaction: Redaction
) -> tuple[DoctorCheck, ...]:
    """The findings as documents.

    They are masked, because they may quote settings, addresses and output of agents.
    """
    return tuple(
        DoctorCheck(
            name=name,
            status=one.status.value,
            message=redaction.text(one.message),
            hint=None if one.hint is None else redaction.text(one.hint),
        )
        for name, several in findings.items()
        for one in several
    )


def check_version() -> list[Finding]:
    """The versions, for the reader of a report. Never fails."""
    system = f"{platform.system()} {platform.release()}"
    return [ok(f"symphony {version_text()}, Python {platform.python_version()}, {system}")]


def check_yaml() -> list[Finding]:
    """Whether PyYAML has libyaml; without it, parsing is about ten times slower."""
    if yaml.__with_libyaml__:
        return [ok(f"PyYAML {yaml.__version__} with libyaml")]
    hint = "install a PyYAML that has it: pip install --force-reinstall --only-binary :all: PyYAML"
    return [warning(f"PyYAML {yaml.__version__} without libyaml: skills load slowly", hint)]


def check_secrets(environment: Mapping[str, str], known: Sequence[SecretSource] = ()) -> list[Finding]:
    """Which secrets come from files, whether those files are usable and private, and what is masked.

    The findings name settings and variables, but no values.
    """
    try:
        secrets = read_secrets(environment)
    except SecretFileError as raised:
        return [failed(SymphonyError(failure), "repair the file") for failure in raised.failures]
    names = ", ".join(sorted(secrets.sources))
    findings = [ok(f"from files: {names}" if names else "none comes from a file")]
    masked = sorted({source.setting for source in known if source.parts})
    plain = sorted({source.setting for source in known if not source.parts})
    if masked:
        findings.append(ok(f"masked: {', '.join(masked)}"))
    if plain:
        findings.append(ok(f"not masked, as too short or ordinary words: {', '.join(plain)}"))
    exposed = [f"other users can read or change {path}" for path in secrets.exposed]
    return findings + [warning(message, EXPOSED_HINT) for message in exposed]


async def _run(host: Host, environment: Mapping[str, str], *argv: str) -> Completed:
    env = child_environment(environment, run_id="doctor")
    return await host.run(argv, env=env, timeout_ms=_COMMAND_TIMEOUT_MS)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace").strip()


async def check_git(host: Host, environment: Mapping[str, str]) -> list[Finding]:
    """Whether git can be started."""
    hint = "install git: every workspace is a clone"
    try:
        done = await _run(host, environment, "git", "--version")
    except OSError as raised:
        return [error(f"git cannot be started: {raised.strerror or raised}", hint)]
    if done.exit_code != 0:
        return [error(f"git --version ends with exit code {done.exit_code}", hint)]
    return [ok(_text(done.stdout))]


async def check_git_identity(
    host: Host, environment: Mapping[str, str], workspace: WorkspaceSettings | None
) -> list[Finding]:
    """The identity for commits of sessions: that of the repository or the user, or else the daemon's."""
    place = Path("/")
    if workspace is not None and workspace.repo is not None:
        mirror = await to_thread.run_sync(mirror_path, workspace)
        source = local_repository(workspace.repo) or mirror
        place = source if await to_thread.run_sync(source.is_dir) else place
    identity = await identity_at(Git(host, environment, frozenset()), place)
    shown = []
    for role in ("author", "committer"):
        name, email = (identity.get(f"{role}.{part}") or identity.get(f"user.{part}") for part in _PARTS)
        if name is None or email is None:
            hint = 'git config --global user.name "…" && git config --global user.email "…"'
            return [warning("git has no user.name and user.email, so sessions commit as Symphony", hint)]
        shown.append(f"{name} <{email}>")
    return [ok(f"sessions commit as {', committed by '.join(dict.fromkeys(shown))}")]


def check_disks(
    disks: Mapping[str, Path], usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage
) -> list[Finding]:
    """Free space for workspaces, the journal and logs; `usage` returns total, used and free bytes."""
    findings = []
    for name, path in disks.items():
        total, _, free = usage(nearest_directory(path))
        text = f"{_size(free)} of {_size(total)} are free for the {name} {path}"
        hint = "free some space there; `symphony clean --dry-run` shows what old runs have left"
        if free < _MIN_FREE_BYTES:
            findings.append(error(text, hint))
        elif free < _LOW_FREE_BYTES or free < total * _LOW_FREE_SHARE:
            findings.append(warning(f"only {text}", hint))
        else:
            findings.append(ok(text))
    return findings


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


def nearest_directory(path: Path) -> Path:
    """The path, or the first of its parents that is a directory."""
    for place in (path, *path.parents):
        with suppress(OSError):
            if place.is_dir():
                return place
    return Path("/")


async def check_clock(
    host: Host, environment: Mapping[str, str], now: datetime | None = None
) -> list[Finding]:
    """Whether the time is plausible, and synchronised if `timedatectl` can tell."""
    now = now or datetime.now(UTC)
    if not _FIRST_YEAR <= now.year <= _LAST_YEAR:
        hint = "set the clock: certificates, tokens and the daily budget depend on it"
        return [error(f"it cannot be the year {now.year}", hint)]
    try:
        done = await _run(host, environment, "timedatectl", "show", "--property=NTPSynchronized", "--value")
    except OSError:
        pass
    else:
        if done.exit_code == 0 and _text(done.stdout) == "no":
            hint = "switch time synchronisation on (timedatectl set-ntp true, or chrony)"
            return [warning("nothing synchronises the clock of this machine", hint)]
    return [ok(f"it is {now:%Y-%m-%d %H:%M:%S} UTC")]


async def check_user_namespaces(host: Host, environment: Mapping[str, str]) -> list[Finding]:
    """Whether this user can create user namespaces, which the sandboxes of agents need."""
    try:
        done = await _run(host, environment, "unshare", "--user", "--map-root-user", "true")
    except OSError:
        return [ok("not tried: there is no unshare(1); the check of the agent decides")]
    if done.exit_code == 0:
        return [ok("this user can make them, as sandboxes of agents do")]
    hint = "set sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0"
    reason = _text(done.stderr) or f"exit code {done.exit_code}"
    return [warning(f"this user cannot make them: {reason}", hint)]


def check_open_files(sessions: int, limit: int | None = None) -> list[Finding]:
    """Whether the limit of open files is enough for all sessions at once."""
    needed = _FILES_OF_DAEMON + _FILES_PER_SESSION * sessions
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    if soft == resource.RLIM_INFINITY:
        return [ok("without limit")]
    if soft >= needed:
        return [ok(f"up to {soft}, enough for {plural(sessions, 'session')}")]
    text = f"at most {soft} files may be open, and {plural(sessions, 'session')} may need {needed}"
    return [warning(text, f"ulimit -n {needed}, or LimitNOFILE={needed} in the service unit")]


def check_children(cgroup: Callable[[], Path | None] = own_cgroup) -> list[Finding]:
    """Whether each run gets a control group; without one, processes are recognised by their environment.

    The finding applies to this process: a service may have other control groups.
    """
    groups = (
        "no run has a control group, as this one cannot be divided (Delegate=yes of systemd)"
        if cgroup() is None
        else "each run gets a control group too"
    )
    return [ok(f"they end with the daemon; {groups}")]


def check_state_directory(path: Path) -> list[Finding]:
    """Whether the state directory is usable and private, or can be created."""
    problem = None
    try:
        status = path.stat()
    except FileNotFoundError:
        parent = nearest_directory(path)
        if os.access(parent, os.W_OK | os.X_OK):
            return [ok(f"{path} is made by the first `symphony run`")]
        problem = f"{path} cannot be made: {parent} cannot be written by this user"
    except OSError as raised:
        problem = f"{path} cannot be used: {raised.strerror}"
    else:
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISDIR(status.st_mode):
            problem = f"{path} is not a directory"
        elif status.st_uid != os.geteuid():
            problem = f"{path} belongs to another user (uid {status.st_uid})"
        elif not os.access(path, os.W_OK | os.X_OK):
            problem = f"{path} cannot be written"
        elif mode & 0o077:
            command = f"chmod 700 {shlex.quote(str(path))}"
            return [warning(f"{path} can be read by others (mode {mode:04o})", command)]
    if problem is not None:
        hint = "run this as the user of the daemon, or set SYMPHONY_STATE_DIR to a directory of this user"
        return [error(problem, hint)]
    return [ok(f"{path} is private to this user")]
