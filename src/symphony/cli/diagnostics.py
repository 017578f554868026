"""What `symphony doctor` finds out, and how its checks are run: all at once, each within a bound.

A check is asked for findings and changes nothing. One that raises or takes too long is an error of its own.
"""

import os
import platform
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import yaml
from anyio import to_thread

from symphony.agents.environment import child_environment
from symphony.api.models import State
from symphony.cli.checking import check_workflow
from symphony.cli.client import connect
from symphony.cli.documents import Doctor, DoctorCheck, TrackerProblem
from symphony.cli.endpoint import UnreachableError, absence_notice, find_daemon
from symphony.cli.failures import CommandError, ExitCode, exit_code
from symphony.cli.journal import journal_path
from symphony.cli.serving import open_store
from symphony.cli.stale_workspaces import kept_workspaces
from symphony.cli.tracker_access import check_tracker
from symphony.config import EXPOSED_HINT, SecretFileError, WarningCode, read_secrets
from symphony.daemon.context import RuntimeContext, build_context, preflight_agent
from symphony.daemon.state_dir import instance_of, locate
from symphony.domain import Category, Failure, Redaction, Selection, SymphonyError
from symphony.journal.reader import checkup
from symphony.processes.base import Completed, Host
from symphony.processes.cgroups import own_cgroup
from symphony.processes.local import LocalHost
from symphony.revision import version_text

# The nearest directory to a place that need not exist yet: it says what holds for the place itself.


def nearest(path: Path) -> Path:
    """The path, or the first of its parents that is a directory."""
    for place in (path, *path.parents):
        try:
            if place.is_dir():
                return place
        except OSError:
            continue
    return Path("/")


LIMIT_S: Final = 20.0
_T = TypeVar("_T")


class Status(StrEnum):
    """How bad a finding is: a daemon cannot work with an error, and works with a warning."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line about one thing; `hint` says how to mend it, and is null where nothing has to be."""

    check: str
    status: Status
    message: str
    hint: str | None = None
    code: ExitCode = ExitCode.OK


def fine(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, status=Status.OK, message=message)


def odd(check: str, message: str, *, hint: str) -> Finding:
    """It works, and somebody should look."""
    return Finding(check=check, status=Status.WARNING, message=message, hint=hint)


def failed(check: str, failure: Failure, *, hint: str, code: ExitCode | None = None) -> Finding:
    """A daemon would not work; `hint` is for failures that have none."""
    return Finding(
        check=check,
        status=Status.ERROR,
        message=failure.message if failure.where is None else f"{failure.where}: {failure.message}",
        hint=failure.hint or hint,
        code=code or exit_code(failure),
    )


Check = Callable[[], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Everything that was found, in the order of the checks."""

    workflow: str
    findings: tuple[Finding, ...]

    @property
    def code(self) -> ExitCode:
        """The exit code: the highest of those that the errors give."""
        return max((finding.code for finding in self.findings), default=ExitCode.OK)

    def document(self) -> Doctor:
        """What is printed with `--json`."""
        return Doctor(
            workflow=self.workflow,
            ok=self.code is ExitCode.OK,
            exit_code=int(self.code),
            checks=tuple(
                DoctorCheck(name=one.check, status=one.status.value, message=one.message, hint=one.hint)
                for one in self.findings
            ),
        )


async def in_thread(ask: Callable[..., _T], *arguments: Any) -> _T:
    """The answer of a blocking question; one that hangs, as disks do, is left alone when its time is over."""
    return await to_thread.run_sync(ask, *arguments, abandon_on_cancel=True)


async def examine_all(
    checks: Mapping[str, Check],
    *,
    redaction: Redaction,
    tell: Callable[[Sequence[str]], None],
    limit_s: float = LIMIT_S,
) -> tuple[Finding, ...]:
    """Run the checks together; `tell` hears the names of those that are not done yet.

    What a check found is masked by `redaction`: messages may quote settings, addresses and what agents say.
    """
    found: dict[str, Sequence[Finding]] = {}

    async def ask(name: str, check: Check) -> None:
        found[name] = await _asked(name, check, limit_s)
        tell([other for other in checks if other not in found])

    tell(list(checks))
    async with anyio.create_task_group() as group:
        for name, check in checks.items():
            group.start_soon(partial(ask, name, check))
    return tuple(_shown(finding, redaction) for name in checks for finding in found[name])


async def _asked(name: str, check: Check, limit_s: float) -> Sequence[Finding]:
    try:
        with anyio.fail_after(limit_s):
            return await check()
    except TimeoutError:
        failure = CommandError.of(
            f"no answer within {limit_s:g} s", hint="something hangs: a disk, the network or a program"
        ).failure
    except SymphonyError as error:
        code = error.code if isinstance(error, CommandError) else None
        return [failed(name, error.failure, hint="the message says what is in the way", code=code)]
    except Exception as error:  # noqa: BLE001 - one check that cannot be made is a finding, and no end of all
        failure = CommandError.of(
            f"the check itself failed: {type(error).__name__}: {error}", hint="the other checks hold"
        ).failure
    return [failed(name, failure, hint="")]


def _shown(finding: Finding, redaction: Redaction) -> Finding:
    return Finding(
        check=finding.check,
        status=finding.status,
        message=redaction.text(finding.message),
        hint=None if finding.hint is None else redaction.text(finding.hint),
        code=finding.code,
    )


# Checks of `symphony doctor` on this machine: secrets, git, disks, the clock, what children need.


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


async def check_identity(
    host: Host, environment: Mapping[str, str], bound: RuntimeContext | None
) -> list[Finding]:
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
    bound: RuntimeContext | None, *, limit: Callable[[int], tuple[int, int]] = resource.getrlimit
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


async def check_children(*, group: Callable[[], Path | None] = own_cgroup) -> list[Finding]:
    """Whether a run can lose a process; agents and hooks end with the daemon in any case.

    Without groups nothing is amiss: marks have to do. They are those of where this is asked, and a service
    may have others.
    """
    own = await in_thread(group)
    groups = (
        "each run gets a control group too"
        if own is not None
        else "no run has a control group, as this one cannot be divided (Delegate=yes of systemd)"
    )
    return [fine("children", f"they end with the daemon; {groups}")]


# Checks of `symphony doctor` on what daemons have left: the state directory and all that is in it.


_OTHERS: Final = 0o077
_AHEAD_MS: Final = 300_000
_SHOWN_LEFTOVERS: Final = 5


async def check_state_directory(path: Path) -> list[Finding]:
    """Whose it is, who can read it, and whether it can be written."""
    return await in_thread(_state_directory, path)


def _state_directory(path: Path) -> list[Finding]:
    name = "state_directory"
    try:
        unusable = _why_unusable(path, path.stat())
    except FileNotFoundError:
        parent = nearest(path)
        if os.access(parent, os.W_OK | os.X_OK):
            return [fine(name, f"{path} is made by the first `symphony run`")]
        unusable = f"{path} cannot be made: {parent} cannot be written by this user"
    except OSError as error:
        unusable = f"{path} cannot be used: {error.strerror}"
    if unusable is not None:
        hint = "run this as the user of the daemon, or set SYMPHONY_STATE_DIR to a directory of this user"
        return [failed(name, CommandError.of(unusable, hint=hint).failure, hint=hint)]
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        text = f"{path} can be read by others (mode {mode:04o})"
        return [odd(name, text, hint=f"chmod 700 {path}")]
    return [fine(name, f"{path} is private to this user")]


def _why_unusable(path: Path, facts: os.stat_result) -> str | None:
    if not stat.S_ISDIR(facts.st_mode):
        return f"{path} is no directory"
    if facts.st_uid != os.geteuid():
        return f"{path} belongs to another user (uid {facts.st_uid})"
    return None if os.access(path, os.W_OK | os.X_OK) else f"{path} cannot be written"


async def check_lock(workflow: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Who serves the workflow, and whether it answers; a lock of a dead daemon is free."""
    return await in_thread(partial(_lock, workflow, environment))


def _lock(workflow: Path, environment: Mapping[str, str]) -> list[Finding]:
    client = connect(workflow, environment)
    if client is None:
        notice = absence_notice(workflow, environment)
        if notice is None:
            return [fine("lock", "no daemon holds it")]
        return [odd("lock", notice, hint="`symphony status` tells more")]
    return _told_by(client.state(Selection(limit=0)), client.endpoint.pid)


def _told_by(state: State, pid: int) -> list[Finding]:
    """What a daemon says of itself."""
    status, journal = state.health.status, state.journal
    found = [fine("lock", f"a daemon (pid {pid}) holds it, and answers")]
    if status != "ok":
        text = f"a daemon (pid {pid}) holds it, and says of itself: {status}"
        found = [odd("lock", text, hint="`symphony status` says why")]
    if journal is not None and journal.state == "memory":
        text = f"the daemon (pid {pid}) keeps its journal in memory alone: {journal.reason}"
        found.append(odd("lock", text, hint=journal.hint or "`symphony status` says why"))
    return found


async def check_journal(path: Path) -> list[Finding]:
    """Whether what is remembered can be read; a daemon works without it, and forgets at its end."""
    return await in_thread(_journal, path)


def _journal(path: Path) -> list[Finding]:
    name = "journal"
    found = checkup(path)
    if not found.present:
        told = [fine(name, f"{path} is begun by the first `symphony run`")]
    elif found.failure is not None:
        hint = "move it away; a new one costs the history and nothing else"
        told = [odd(name, found.failure.message, hint=found.failure.hint or hint)]
    else:
        size = f"{found.bytes / 1024**2:.1f} MiB"
        held = f"runs: {found.runs}, claims: {found.claims}"
        told = [fine(name, f"{path} is sound ({held}, {size})")]
    if found.newest_wall_ms is not None and found.newest_wall_ms > time.time() * 1000 + _AHEAD_MS:
        hint = "the clock was set back, or was wrong before; times of then are told as they were written"
        told.append(odd(name, "its newest record lies in the future", hint=hint))
    if found.aside:
        text = f"{len(found.aside)} damaged before and set aside, such as {found.aside[-1]}"
        told.append(
            odd(name, text, hint="delete what nobody wants to look at; `symphony clean` does in time")
        )
    return told


async def check_processes(workflow: Path, environment: Mapping[str, str], state_dir: Path) -> list[Finding]:
    """What a daemon that is dead has left running."""
    return await in_thread(partial(_processes, workflow, environment, state_dir))


def _processes(workflow: Path, environment: Mapping[str, str], state_dir: Path) -> list[Finding]:
    try:
        if find_daemon(workflow, environment) is not None:
            return [fine("processes", "those of the runs belong to the daemon")]
    except UnreachableError:
        return [fine("processes", "there is a daemon, though it cannot be asked: they may be its own")]
    left = LocalHost(instance=instance_of(state_dir)).find_survivors()
    if not left:
        return [fine("processes", "no dead daemon has left any")]
    pids = sorted(one.pid for one in left)
    shown = ", ".join(map(str, pids[:_SHOWN_LEFTOVERS])) + (" …" if len(pids) > _SHOWN_LEFTOVERS else "")
    text = f"a dead daemon has left {len(pids)} running: {shown}"
    return [odd("processes", text, hint="the next `symphony run` ends them before it starts anything")]


async def check_workspaces(bound: RuntimeContext | None) -> list[Finding]:
    """Workspaces of issues that are over."""
    if bound is None:
        hint = "mend WORKFLOW.md first, then run this again"
        return [odd("workspaces", "not looked at, because WORKFLOW.md cannot be used", hint=hint)]
    found = await kept_workspaces(bound)
    ended = [one for one in found if one.ended]
    if not ended:
        return [fine("workspaces", f"{len(found)} there, none of an issue that is over")]
    names = ", ".join(one.record.identifier for one in ended[:_SHOWN_LEFTOVERS])
    text = f"{len(ended)} of {len(found)} are of issues that are over: {names}"
    return [odd("workspaces", text, hint="`symphony clean --dry-run` says which can go, and why others stay")]


# The list of checks of `symphony doctor`, and those on the workflow and what its settings lead to.


_TOLD_ELSEWHERE = frozenset(
    {
        Category.AGENT_NOT_FOUND.value,
        Category.CODEX_NOT_FOUND.value,
        Category.SECRET_FILE.value,
        Category.WORKSPACE_REPOSITORY.value,
        WarningCode.EXPOSED_SECRET.value,
        WarningCode.NO_REMOTE.value,
    }
)
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What the checks are about; `bound` is null where the workflow cannot be used."""

    workflow: Path
    environment: Mapping[str, str]
    host: LocalHost
    state_dir: Path
    bound: RuntimeContext | None


def check_up(
    workflow: Path, environment: Mapping[str, str], tell: Callable[[Sequence[str]], None]
) -> Checkup:
    """Look at everything; never raises for what is wrong."""
    workflow = workflow.absolute()
    host = LocalHost()
    with suppress(SecretFileError):  # told by a check
        environment = read_secrets(environment).environment
    place = _Place(
        workflow=workflow,
        environment=environment,
        host=host,
        state_dir=locate(workflow, environment),
        bound=_bound(workflow, environment, host),
    )
    redaction = Redaction() if place.bound is None else place.bound.redaction
    findings = anyio.run(partial(examine_all, _checks(place), redaction=redaction, tell=tell))
    return Checkup(workflow=str(workflow), findings=findings)


def _bound(workflow: Path, environment: Mapping[str, str], host: LocalHost) -> RuntimeContext | None:
    """The adapters of the workflow; what is wrong with it is found again, and told, by a check."""
    try:
        store = open_store(workflow, environment, acknowledged=True)
        return build_context(store.current(), host=host, environment=environment)
    except SymphonyError:
        return None


def _checks(place: _Place) -> dict[str, Check]:
    """Every check by its name, in the order in which they are shown."""
    state_dir, environment, bound = place.state_dir, place.environment, place.bound
    checks: dict[str, Check] = {
        "version": check_version,
        "yaml": check_yaml,
        "workflow": partial(_check_workflow, place),
        "secrets": partial(check_secrets, environment),
        "git": partial(check_git, place.host, environment),
        "git_identity": partial(check_identity, place.host, environment, bound),
        "repository": partial(_check_repository, bound),
        "push": partial(_check_push, bound),
        "agent": partial(_check_agent, bound),
        "tracker": partial(_check_tracker, bound),
        "state_directory": partial(check_state_directory, state_dir),
        "lock": partial(check_lock, place.workflow, environment),
        "journal": partial(check_journal, journal_path(place.workflow, environment)),
        "disk": partial(check_disk, _disks(place)),
        "clock": partial(check_clock, place.host, environment),
        "user_namespaces": partial(check_user_namespaces, place.host, environment),
        "open_files": partial(check_open_files, bound),
        "children": check_children,
        "processes": partial(check_processes, place.workflow, environment, state_dir),
        "workspaces": partial(check_workspaces, bound),
    }
    return checks


def _disks(place: _Place) -> dict[str, Path]:
    disks = {"state directory": place.state_dir}
    if place.bound is not None:
        disks["workspace.root"] = place.bound.settings.workspace.root
    return disks


async def _check_workflow(place: _Place) -> list[Finding]:
    """The verdict of `symphony check`, without what other checks tell more about."""
    report = await in_thread(check_workflow, place.workflow, place.environment)
    problems = [problem for problem in report.problems if problem.code not in _TOLD_ELSEWHERE]
    errors = [problem for problem in problems if problem.severity == "error"]
    if place.bound is None:
        found = await in_thread(_why_unbound, place)
        return [found] if found is not None else [fine("workflow", f"{place.workflow} became usable")]
    if errors:
        first, more = errors[0], len(errors) - 1
        others = f" (and {more} more)" if more else ""
        where = first.path if first.line is None else f"{first.path}:{first.line}"
        text = f"{where}: {first.message}{others}"
        return [odd("workflow", text, hint=first.hint or "`symphony check` tells all of it")]
    if problems:
        count = len(problems)
        text = f"{report.path} is usable, with {count} warning{'' if count == 1 else 's'}"
        return [odd("workflow", text, hint="`symphony check` tells what they are")]
    return [fine("workflow", f"{report.path} is usable")]


def _why_unbound(place: _Place) -> Finding | None:
    try:
        store = open_store(place.workflow, place.environment, acknowledged=True)
        build_context(store.current(), host=place.host, environment=place.environment)
    except SymphonyError as error:
        more = len(getattr(error, "failures", (error.failure,))) - 1
        found = failed("workflow", error.failure, hint="`symphony check` tells all of it")
        if not more:
            return found
        return Finding(
            check=found.check,
            status=found.status,
            message=f"{found.message} (and {more} more)",
            hint=found.hint,
            code=found.code,
        )
    return None


def _unknown(check: str) -> list[Finding]:
    text = "not looked at, because WORKFLOW.md cannot be used"
    return [odd(check, text, hint="mend WORKFLOW.md first, then run this again")]


async def _check_repository(bound: RuntimeContext | None) -> list[Finding]:
    """What workspaces are made of, asked as a start would."""
    if bound is None:
        return _unknown("repository")
    repo = bound.settings.workspace.repo
    if repo is None:
        return [fine("repository", "workspace.repo is not set: hooks fill the workspaces")]
    await bound.workspaces.check_repository()
    branch = bound.settings.workspace.base_branch
    return [fine("repository", f"{repo} can be cloned" + (f", from {branch}" if branch else ""))]


async def _check_push(bound: RuntimeContext | None) -> list[Finding]:
    """Whether `origin` would take a branch, asked by a dry run with the credentials there are."""
    if bound is None:
        return _unknown("push")
    workspace = bound.settings.workspace
    if workspace.push != "origin" or workspace.repo is None:
        return [fine("push", "not asked for: workspace.push or workspace.repo is not set")]
    failure = await bound.workspaces.check_push()
    if failure is None:
        return [fine("push", "origin takes branches, as far as a dry run tells")]
    return [odd("push", failure.message, hint=failure.hint or "see what `git push` says")]


async def _check_agent(bound: RuntimeContext | None) -> list[Finding]:
    """The check before the first dispatch of every agent: program, version, login, one sandboxed command."""
    if bound is None:
        return _unknown("agent")
    root = bound.settings.workspace.root
    place = await in_thread(partial(_scratch, root))
    try:
        return [finding for name in bound.agents for finding in await _ask(bound, name, place)]
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(partial(shutil.rmtree, place, ignore_errors=True))


async def _ask(bound: RuntimeContext, name: str, place: Path) -> list[Finding]:
    found = await preflight_agent(bound, name, place, mark="doctor")
    which = "" if len(bound.agents) == 1 else f"{name}: "
    told = fine("agent", f"{which}{found.agent} {found.version} passes the check before the first dispatch")
    hint = "the agent works; see what it says"
    return [told, *(odd("agent", f"{which}{notice}", hint=hint) for notice in found.notices)]


def _scratch(root: Path) -> Path:
    """A directory as near to the workspaces as can be made: what a sandbox permits depends on the place."""
    try:
        return Path(tempfile.mkdtemp(prefix=".symphony-doctor-", dir=nearest(root)))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="symphony-doctor-"))


async def _check_tracker(bound: RuntimeContext | None) -> list[Finding]:
    """What `symphony tracker check` finds, with one poll as the daemon would ask it."""
    if bound is None:
        return _unknown("tracker")
    look = await check_tracker(bound)
    states = ", ".join(bound.active_states) or "no state at all"
    plural = "" if look.issues == 1 else "s"
    found = [fine("tracker", f"{look.kind} answers: {look.issues} issue{plural} in {states}")]
    found += [_finding(problem) for problem in look.problems[:_SHOWN]]
    if len(look.problems) > _SHOWN:
        text = f"{len(look.problems) - _SHOWN} more records or states are wrong"
        found.append(odd("tracker", text, hint="`symphony tracker check` shows them"))
    return found


def _finding(problem: TrackerProblem) -> Finding:
    error = problem.severity == "error"
    return Finding(
        check="tracker",
        status=Status.ERROR if error else Status.WARNING,
        message=problem.message,
        hint=problem.hint,
        code=ExitCode.FAILURE if error else ExitCode.OK,
    )
