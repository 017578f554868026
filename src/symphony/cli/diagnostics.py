"""The checks of `symphony doctor`: everything that a daemon needs on this machine and from the workflow.

A check returns findings and changes nothing. All checks run at once. One that raises or takes too long is an
error, and does not affect the others.
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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import yaml
from anyio import to_thread

from symphony.agents.environment import child_environment
from symphony.api.models import State
from symphony.cli import tracker_access
from symphony.cli.checking import check_workflow
from symphony.cli.client import connect
from symphony.cli.documents import Doctor, DoctorCheck
from symphony.cli.endpoint import UnreachableError, absence_notice, find_daemon
from symphony.cli.failures import CommandError, ExitCode, exit_code, message_of
from symphony.cli.formatting import plural
from symphony.cli.journal import journal_path
from symphony.cli.notifying import targets_of
from symphony.cli.serving import open_store
from symphony.cli.stale_workspaces import find_workspaces
from symphony.config import EXPOSED_HINT, SecretFileError, WarningCode, read_secrets
from symphony.daemon.context import RuntimeContext, build_context
from symphony.daemon.preflight import preflight_agent
from symphony.daemon.state_dir import instance_of, locate
from symphony.daemon.tracing import open_tracing
from symphony.domain import Category, Failure, Redaction, Selection, SymphonyError
from symphony.journal.reader import checkup
from symphony.processes.base import Completed, Host
from symphony.processes.cgroups import own_cgroup
from symphony.processes.local import LocalHost
from symphony.revision import version_text

TIMEOUT_S: Final = 20.0
_COMMAND_TIMEOUT_MS: Final = 10_000
_GIB: Final = 1024**3
_MIB: Final = 1024**2
_MIN_FREE_BYTES: Final = 64 * _MIB
_LOW_FREE_BYTES: Final = _GIB
_LOW_FREE_SHARE: Final = 0.05
_FILES_PER_SESSION: Final = 16
_FILES_OF_DAEMON: Final = 64
_CLOCK_TOLERANCE_MS: Final = 300_000
_FIRST_YEAR, _LAST_YEAR = 2024, 2100
_MAX_NAMES: Final = 5
_MAX_PROBLEMS: Final = 3
_OTHER_CHECKS: Final = frozenset(
    {
        Category.AGENT_NOT_FOUND.value,
        Category.CODEX_NOT_FOUND.value,
        Category.SECRET_FILE.value,
        Category.WORKSPACE_REPOSITORY.value,
        WarningCode.EXPOSED_SECRET.value,
        WarningCode.NO_REMOTE.value,
    }
)
"""Problems of a workflow file that a check other than `workflow` reports, in more detail."""


class CheckStatus(StrEnum):
    """Severity of a finding: a daemon works with a warning, and does not work with an error."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check; `hint` says how to repair it, and is None if there is nothing to repair."""

    status: CheckStatus
    message: str
    hint: str | None = None
    code: ExitCode = ExitCode.OK


def ok(message: str) -> Finding:
    """Nothing to do."""
    return Finding(status=CheckStatus.OK, message=message)


def warning(message: str, hint: str) -> Finding:
    """A daemon works, but the user should look at this."""
    return Finding(status=CheckStatus.WARNING, message=message, hint=hint)


def error(message: str, hint: str, code: ExitCode = ExitCode.FAILURE) -> Finding:
    """A daemon does not work."""
    return Finding(status=CheckStatus.ERROR, message=message, hint=hint, code=code)


def failed(failure: Failure, hint: str, code: ExitCode | None = None) -> Finding:
    """An error from a failure; `hint` is for a failure that has none."""
    return error(message_of(failure), failure.hint or hint, code or exit_code(failure))


Check = Callable[[], Awaitable[Sequence[Finding]]]


def diagnose(
    workflow: Path, environment: Mapping[str, str], on_progress: Callable[[Sequence[str]], None]
) -> Doctor:
    """Run all checks; `on_progress` receives the names of the checks that are not done yet."""
    workflow, host = workflow.absolute(), LocalHost()
    with suppress(SecretFileError):  # reported by check_secrets
        environment = read_secrets(environment).environment
    state_dir = locate(workflow, environment)
    context: RuntimeContext | None = None
    invalid: SymphonyError | None = None
    try:
        store = open_store(workflow, environment, acknowledged=True)
        context = build_context(store.current(), host=host, environment=environment)
    except SymphonyError as raised:
        invalid = raised
    settings = None if context is None else context.settings
    disks = {"state directory": state_dir}
    if settings is not None:
        disks["workspace.root"] = settings.workspace.root

    def in_thread(check: Callable[..., Sequence[Finding]], *arguments: Any) -> Check:
        # A thread that hangs, as disks do, is abandoned when the check times out.
        return partial(to_thread.run_sync, check, *arguments, abandon_on_cancel=True)

    async def not_checked() -> list[Finding]:
        text = "not looked at, because WORKFLOW.md cannot be used"
        return [warning(text, "fix WORKFLOW.md first, then run this again")]

    def with_context(check: Callable[[RuntimeContext], Awaitable[Sequence[Finding]]]) -> Check:
        return not_checked if context is None else partial(check, context)

    checks: dict[str, Check] = {
        "version": in_thread(check_version),
        "yaml": in_thread(check_yaml),
        "workflow": in_thread(check_workflow_file, workflow, environment, invalid),
        "secrets": in_thread(check_secrets, environment),
        "git": partial(check_git, host, environment),
        "git_identity": partial(
            check_git_identity, host, environment, settings.workspace.repo if settings else None
        ),
        "repository": with_context(check_repository),
        "push": with_context(check_push),
        "agent": with_context(check_agents),
        "tracker": with_context(check_tracker),
        "tracing": with_context(partial(check_tracing, environment=environment)),
        "state_directory": in_thread(check_state_directory, state_dir),
        "lock": in_thread(check_lock, workflow, environment),
        "journal": in_thread(check_journal, journal_path(workflow, environment)),
        "disk": in_thread(check_disks, disks),
        "clock": partial(check_clock, host, environment),
        "user_namespaces": partial(check_user_namespaces, host, environment),
        "open_files": in_thread(check_open_files, settings.agent.max_concurrent_agents if settings else 1),
        "children": in_thread(check_children),
        "processes": in_thread(check_processes, workflow, environment, state_dir),
        "workspaces": with_context(check_workspaces),
        "metrics": with_context(check_metrics),
        "notifications": in_thread(check_notifications, workflow, environment, context)
        if context
        else not_checked,
    }
    findings = anyio.run(partial(run_checks, checks, on_progress))
    return to_document(workflow, findings, Redaction() if context is None else context.redaction)


async def run_checks(
    checks: Mapping[str, Check],
    on_progress: Callable[[Sequence[str]], None],
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
            code = raised.code if isinstance(raised, CommandError) else None
            done[name] = [failed(raised.failure, "the message names the cause", code)]
        except Exception as raised:  # noqa: BLE001 - a bug in one check must not hide the other findings
            message = f"the check itself failed: {type(raised).__name__}: {raised}"
            done[name] = [error(message, "the other checks hold")]
        on_progress([other for other in checks if other not in done])

    on_progress(list(checks))
    async with anyio.create_task_group() as group:
        for name, check in checks.items():
            group.start_soon(run, name, check)
    return {name: done[name] for name in checks}


def to_document(workflow: Path, findings: Mapping[str, Sequence[Finding]], redaction: Redaction) -> Doctor:
    """The result. Messages are masked: they may quote settings, addresses and output of agents."""
    code = max((one.code for several in findings.values() for one in several), default=ExitCode.OK)
    return Doctor(
        workflow=str(workflow),
        ok=code is ExitCode.OK,
        exit_code=int(code),
        checks=tuple(
            DoctorCheck(
                name=name,
                status=one.status.value,
                message=redaction.text(one.message),
                hint=None if one.hint is None else redaction.text(one.hint),
            )
            for name, several in findings.items()
            for one in several
        ),
    )


# --- this machine ----------------------------------------------------------------------------------------


def check_version() -> list[Finding]:
    """Never fails: for the reader of a report."""
    system = f"{platform.system()} {platform.release()}"
    return [ok(f"symphony {version_text()}, Python {platform.python_version()}, {system}")]


def check_yaml() -> list[Finding]:
    """Whether PyYAML has libyaml; without it, parsing is about ten times slower."""
    if yaml.__with_libyaml__:
        return [ok(f"PyYAML {yaml.__version__} with libyaml")]
    hint = "install a PyYAML that has it: pip install --force-reinstall --only-binary :all: PyYAML"
    return [warning(f"PyYAML {yaml.__version__} without libyaml: skills load slowly", hint)]


def check_secrets(environment: Mapping[str, str]) -> list[Finding]:
    """Which secrets come from files, and whether those files are usable and private."""
    try:
        secrets = read_secrets(environment)
    except SecretFileError as raised:
        return [failed(failure, "repair the file") for failure in raised.failures]
    names = ", ".join(sorted(secrets.sources))
    findings = [ok(f"from files: {names}" if names else "none comes from a file")]
    exposed = [f"other users can read or change {path}" for path in secrets.exposed]
    return findings + [warning(message, EXPOSED_HINT) for message in exposed]


async def _run(host: Host, environment: Mapping[str, str], *argv: str, cwd: Path | None = None) -> Completed:
    env = child_environment(environment, run_id="doctor")
    return await host.run(argv, cwd=cwd, env=env, timeout_ms=_COMMAND_TIMEOUT_MS)


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
    host: Host, environment: Mapping[str, str], repository: str | None
) -> list[Finding]:
    """The name under which sessions commit: that of the user, or else one of the daemon."""
    is_local = repository is not None and await anyio.Path(repository).is_dir()
    cwd = Path(repository) if repository is not None and is_local else None
    values = []
    for key in ("user.name", "user.email"):
        try:
            done = await _run(host, environment, "git", "config", "--get", key, cwd=cwd)
        except OSError:
            return [warning("not looked at, because git cannot be started", "install git")]
        values.append(_text(done.stdout))
    name, email = values
    if name and email:
        return [ok(f"sessions commit as {name} <{email}>")]
    hint = 'git config --global user.name "…" && git config --global user.email "…"'
    return [warning("git has no user.name and user.email, so sessions commit as Symphony", hint)]


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
    """Whether the time is plausible, and synchronised if there is a `timedatectl` that knows."""
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
    """Whether this user can create user namespaces, which the sandboxes of agents are made of."""
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

    The answer holds for the place where this command runs: a service may have other control groups.
    """
    groups = (
        "no run has a control group, as this one cannot be divided (Delegate=yes of systemd)"
        if cgroup() is None
        else "each run gets a control group too"
    )
    return [ok(f"they end with the daemon; {groups}")]


# --- the state of daemons --------------------------------------------------------------------------------


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
            return [warning(f"{path} can be read by others (mode {mode:04o})", f"chmod 700 {path}")]
    if problem is not None:
        hint = "run this as the user of the daemon, or set SYMPHONY_STATE_DIR to a directory of this user"
        return [error(problem, hint)]
    return [ok(f"{path} is private to this user")]


def check_lock(workflow: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Whether a daemon serves the workflow, and whether it answers."""
    client = connect(workflow, environment)
    if client is None:
        notice = absence_notice(workflow, environment)
        if notice is None:
            return [ok("no daemon holds it")]
        return [warning(notice, "`symphony status` shows more")]
    return daemon_findings(client.state(Selection(limit=0)), client.endpoint.pid)


def daemon_findings(state: State, pid: int) -> list[Finding]:
    """What a daemon reports about itself."""
    if state.health.status == "ok":
        findings = [ok(f"a daemon (pid {pid}) holds it, and answers")]
    else:
        text = f"a daemon (pid {pid}) holds it, and reports: {state.health.status}"
        findings = [warning(text, "`symphony status` shows why")]
    journal = state.journal
    if journal is not None and journal.state == "memory":
        text = f"the daemon (pid {pid}) keeps its journal only in memory: {journal.reason}"
        findings.append(warning(text, journal.hint or "`symphony status` shows why"))
    return findings


def check_journal(path: Path) -> list[Finding]:
    """Whether the journal is readable; a daemon without one works, and forgets everything at its end."""
    journal = checkup(path)
    if not journal.present:
        findings = [ok(f"{path} is made by the first `symphony run`")]
    elif journal.failure is not None:
        hint = "move it away; a new one loses the history and nothing else"
        findings = [warning(journal.failure.message, journal.failure.hint or hint)]
    else:
        size = f"{journal.bytes / _MIB:.1f} MiB"
        findings = [ok(f"{path} is sound (runs: {journal.runs}, claims: {journal.claims}, {size})")]
    newest = journal.newest_wall_ms
    if newest is not None and newest > time.time() * 1000 + _CLOCK_TOLERANCE_MS:
        hint = "the clock was set back, or was wrong before; old times are shown as they were recorded"
        findings.append(warning("its newest record lies in the future", hint))
    if journal.aside:
        text = f"{len(journal.aside)} damaged before and set aside, such as {journal.aside[-1]}"
        findings.append(warning(text, "delete what you do not need; `symphony clean` does in time"))
    return findings


def check_processes(workflow: Path, environment: Mapping[str, str], state_dir: Path) -> list[Finding]:
    """Whether processes of a dead daemon are left."""
    try:
        if find_daemon(workflow, environment) is not None:
            return [ok("those of the runs belong to the daemon")]
    except UnreachableError:
        return [ok("there is a daemon that cannot be asked: they may be its own")]
    pids = sorted(one.pid for one in LocalHost(instance=instance_of(state_dir)).find_survivors())
    if not pids:
        return [ok("no dead daemon has left any")]
    shown = ", ".join(map(str, pids[:_MAX_NAMES])) + (" …" if len(pids) > _MAX_NAMES else "")
    text = f"a dead daemon has left {len(pids)} running: {shown}"
    return [warning(text, "the next `symphony run` ends them before it starts anything")]


# --- the workflow and what it refers to ------------------------------------------------------------------


def check_workflow_file(
    workflow: Path, environment: Mapping[str, str], invalid: SymphonyError | None
) -> list[Finding]:
    """Whether the file is usable; `invalid` is the reason why a daemon cannot be built from it."""
    hint = "`symphony check` lists every problem"
    if invalid is not None:
        more = len(getattr(invalid, "failures", (invalid.failure,))) - 1
        finding = failed(invalid.failure, hint)
        return [replace(finding, message=finding.message + (f" (and {more} more)" if more else ""))]
    report = check_workflow(workflow, environment)
    problems = [problem for problem in report.problems if problem.code not in _OTHER_CHECKS]
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        first, more = errors[0], len(errors) - 1
        location = first.path if first.line is None else f"{first.path}:{first.line}"
        text = f"{location}: {first.message}" + (f" (and {more} more)" if more else "")
        return [warning(text, first.hint or hint)]
    if problems:
        return [warning(f"{report.path} is usable, with {plural(len(problems), 'warning')}", hint)]
    return [ok(f"{report.path} is usable")]


async def check_repository(context: RuntimeContext) -> list[Finding]:
    """Whether workspaces can be cloned, checked as at a start."""
    workspace = context.settings.workspace
    if workspace.repo is None:
        return [ok("workspace.repo is not set: hooks fill the workspaces")]
    await context.workspaces.check_repository()
    branch = f", from {workspace.base_branch}" if workspace.base_branch else ""
    return [ok(f"{workspace.repo} can be cloned{branch}")]


async def check_push(context: RuntimeContext) -> list[Finding]:
    """Whether `origin` accepts a branch, by a dry run with the user's credentials."""
    workspace = context.settings.workspace
    if workspace.push != "origin" or workspace.repo is None:
        return [ok("not asked for: workspace.push or workspace.repo is not set")]
    failure = await context.workspaces.check_push()
    if failure is None:
        return [ok("origin accepts branches in a dry run")]
    return [warning(failure.message, failure.hint or "see what `git push` says")]


async def check_agents(context: RuntimeContext) -> list[Finding]:
    """The preflight of every agent: program, version, login, one command in its sandbox."""
    findings = []
    place = await to_thread.run_sync(_temporary_directory, context.settings.workspace.root)
    try:
        for name in context.agents:
            result = await preflight_agent(context, name, place, mark="doctor")
            label = "" if len(context.agents) == 1 else f"{name}: "
            version = f"{result.agent} {result.version}"
            findings.append(ok(f"{label}{version} passes the check before the first dispatch"))
            hint = "the agent works; see what it says"
            findings += [warning(f"{label}{notice}", hint) for notice in result.notices]
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))
    return findings


def _temporary_directory(root: Path) -> Path:
    """A directory near the workspaces: what a sandbox permits depends on the location."""
    try:
        return Path(tempfile.mkdtemp(prefix=".symphony-doctor-", dir=nearest_directory(root)))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="symphony-doctor-"))


async def check_tracker(context: RuntimeContext) -> list[Finding]:
    """The result of `symphony tracker check`, with one poll as the daemon would send it."""
    found = await tracker_access.check_tracker(context)
    states = ", ".join(context.active_states) or "no state at all"
    findings = [ok(f"{found.kind} answers: {plural(found.issues, 'issue')} in {states}")]
    for problem in found.problems[:_MAX_PROBLEMS]:
        make = error if problem.severity == "error" else warning
        findings.append(make(problem.message, problem.hint))
    more = len(found.problems) - _MAX_PROBLEMS
    if more > 0:
        text = f"{more} more records or states are wrong"
        findings.append(warning(text, "`symphony tracker check` shows them"))
    return findings


async def check_tracing(context: RuntimeContext, *, environment: Mapping[str, str]) -> list[Finding]:
    """Whether the collector of traces takes a request."""

    def send() -> list[Finding]:
        tracing = open_tracing(context, "", environment)
        if tracing is None:
            return [ok("off: tracing.endpoint is not set")]
        failure = tracing.check()
        tracing.close()
        endpoint = context.settings.tracing.endpoint
        if failure is None:
            return [ok(f"{endpoint} takes traces")]
        hint = "see whether the collector runs, and whether tracing.endpoint is its URL"
        return [warning(f"traces are not taken: {failure}", hint)]

    return await to_thread.run_sync(send)


async def check_workspaces(context: RuntimeContext) -> list[Finding]:
    """Whether there are workspaces of issues that are in a terminal state."""
    found = await find_workspaces(context)
    names = [workspace.record.identifier for workspace in found if workspace.ended]
    if not names:
        return [ok(f"{len(found)} there, none of an issue that is over")]
    text = f"{len(names)} of {len(found)} are of issues that are over: {', '.join(names[:_MAX_NAMES])}"
    return [warning(text, "`symphony clean --dry-run` says which can go, and why others stay")]


async def check_metrics(context: RuntimeContext) -> list[Finding]:
    """Where Prometheus can scrape the daemon."""
    server = context.settings.server
    if server.port is None:
        return [ok("GET /metrics on the control socket; server.port opens it for Prometheus")]
    return [ok(f"GET /metrics on {server.host} port {server.port or '(any free one)'}, with operator.token")]


def check_notifications(
    workflow: Path, environment: Mapping[str, str], context: RuntimeContext
) -> list[Finding]:
    """The targets of `notify`, and how the deliveries of a running daemon went."""
    client = None
    with suppress(UnreachableError):  # reported by check_lock
        client = connect(workflow, environment)
    targets = targets_of(context, environment)
    if client is not None:
        targets = client.state(Selection(limit=0)).notifications
    if not targets:
        return [ok("nobody is notified: WORKFLOW.md has no notify")]
    findings = []
    for target in targets:
        problem = target.problem or target.failure
        if problem is not None:
            hint = f"`symphony notify test {target.name}` tries it from here"
            findings.append(warning(f"{target.name} ({target.kind}): {problem}", hint))
        else:
            last = "" if target.delivered_at is None else f", last delivery {target.delivered_at}"
            findings.append(ok(f"{target.name} ({target.kind}) is on{last}"))
    return findings
