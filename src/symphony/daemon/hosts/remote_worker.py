"""The daemon's carrier to a worker on a host: repository, frames, fence, and the branch that comes back.

    fence earlier runs -> connect -> send the repository -> frames -> fence -> fetch the branch -> deliver

A run counts as ended once none of its processes can be alive: the worker said so at its end, or a program on
the host ended them, or the lease of the worker is surely over.
"""

import hashlib
import os
import platform
import re
import secrets
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from symphony import to_thread
from symphony.config import Workflow
from symphony.daemon.context import RuntimeContext
from symphony.daemon.frames import (
    DaemonFrame,
    Ended,
    Report,
    Site,
    Spawned,
    Start,
    Stop,
    TurnFinished,
    WorkerFrame,
)
from symphony.daemon.hosts.host_reports import HostReports, checked
from symphony.daemon.hosts.host_workspaces import HostWorkspace, RemovalRequest, decode_answer
from symphony.daemon.hosts.lfs_carrier import fetch_objects, send_objects
from symphony.daemon.hosts.remote_host import (
    COMMAND_TIMEOUT_MS,
    MAX_SAID_CHARS,
    NO_ROOT,
    HostCarrier,
    RemoteHost,
    RemoteRun,
    Wanted,
    host_failure,
    place_script,
    read_place,
    run_script,
    said,
)
from symphony.daemon.hosts.stdio_worker import StdioWorker, site_of
from symphony.daemon.runs.library_skills import carry_skills
from symphony.daemon.runs.progress import with_work
from symphony.daemon.runs.transcript import EntryWriter
from symphony.domain import Failure, SymphonyError, is_disk_full, workspace_key
from symphony.files import write_atomic
from symphony.observability import bugs
from symphony.scheduler import (
    WAITING_FOR_SLOT,
    CleanWorkspace,
    DeliveredBranch,
    Outcome,
    OutcomeKind,
    RunReport,
    RunStage,
    StartRun,
)
from symphony.workspaces import BranchBase, Courier, Delivery, GitError, RemoteSource, Removal, is_sha256

FENCE_EXTRA_MS: Final = 30_000
"""How long a worker may take to end its agent, once its lease is over."""
_FENCE_PAUSE_S: Final = 2.0
_FENCE_ATTEMPT_MS: Final = 10_000
_STARTS_AT_ONCE: Final = 4
_CLEAN_TIMEOUT_MS: Final = 120_000
_log = structlog.get_logger(__name__)


# --- runs that may be alive ------------------------------------------------------------------------------


class RemoteRuns:
    """The runs on hosts whose end is not known, in files that survive the daemon.

    <state dir>/remote-runs/<run id>.json
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "remote-runs"

    def add(self, run: RemoteRun) -> None:
        """A run is about to begin; blocking."""
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._path / f"{run.run_id}.json", msgspec.json.encode(run), durable=True)

    def remove(self, run_id: str) -> None:
        """None of its processes is alive; blocking."""
        (self._path / f"{run_id}.json").unlink(missing_ok=True)

    def all(self) -> tuple[RemoteRun, ...]:
        """Those that were not removed; blocking."""
        found = []
        for path in sorted(self._path.glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=RemoteRun))
            except (OSError, msgspec.MsgspecError) as error:
                _log.warning("remote_run_unreadable", path=str(path), reason=str(error))
        return tuple(found)


# --- one host, by one workflow ---------------------------------------------------------------------------


def directory_of(workflow: Workflow) -> str:
    """The name of the directory of a workflow file below `worker.ssh.remote_root`."""
    real = os.path.realpath(workflow.path)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(real).parent.name).strip("-.") or "workflow"
    digest = hashlib.sha256(os.fsencode(f"{platform.node()}:{real}")).hexdigest()[:12]
    return f"{name}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSite:
    """Where the things of one workflow file are on a host.

    Attributes:
        base: the directory of the workflow file.
        python: runs the worker.
    """

    base: str
    python: str

    @property
    def repository(self) -> str:
        """The bare repository."""
        return f"{self.base}/repository.git"

    def command(self, *words: str) -> str:
        """A shell command that runs `symphony` with a state directory of its own; no word may be secret."""
        state = f"SYMPHONY_STATE_DIR={self.base}/state"
        return f"exec env {shlex.join([state, self.python, '-m', 'symphony', *words])}"


class RemoteHosts:
    """Carries runs out on hosts; a context manager that ends their workers.

    Args:
        ssh: leads to the hosts of `worker.ssh_hosts`.
        ray: leads to the nodes of `worker.ray`.
        state_dir: where runs whose end is not known are written down.
    """

    def __init__(self, ssh: HostCarrier, ray: HostCarrier, state_dir: Path) -> None:
        self._ssh = ssh
        self._ray = ray
        self._runs = RemoteRuns(state_dir)
        self._tasks: TaskGroup | None = None
        self._open: dict[str, tuple[RemoteRun, float | None]] = {}  # with a moment after its last frame
        self._starts: dict[str, anyio.CapacityLimiter] = {}
        self._sites: dict[tuple[str | None, ...], RemoteSite] = {}

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._workers.cancel_scope.cancel()
        return await self._workers.__aexit__(exc_type, exc, traceback)

    @property
    def _workers(self) -> TaskGroup:
        assert self._tasks is not None  # noqa: S101 - a context manager
        return self._tasks

    async def recover(self) -> None:
        """Take over the runs whose end an earlier daemon did not see."""
        now_s = anyio.current_time()
        for run in await to_thread.run_sync(self._runs.all):
            self._open[run.run_id] = (run, now_s)
            _log.warning("remote_run_left", run_id=run.run_id, issue_id=run.issue_id, host=run.host)

    async def begin(self, run: RemoteRun) -> None:
        """A run is about to begin."""
        self._open[run.run_id] = (run, None)
        await to_thread.run_sync(self._runs.add, run)

    async def finish(self, run_id: str) -> None:
        """None of the processes of a run is alive."""
        await to_thread.run_sync(self._runs.remove, run_id)
        self._open.pop(run_id, None)

    async def keep(self, context: RuntimeContext) -> None:
        """These settings are in force; see `HostCarrier.keep`."""
        for carrier in (self._ssh, self._ray):
            await carrier.keep(context.settings.worker)

    def _carrier(self, context: RuntimeContext) -> HostCarrier:
        return self._ssh if context.settings.worker.ray.address is None else self._ray

    async def names(self, context: RuntimeContext) -> tuple[str, ...]:
        """The hosts that there are now. Raises `SymphonyError`: a cluster cannot be asked."""
        return await self._carrier(context).names(context.settings.worker)

    def place(
        self, context: RuntimeContext, command: StartRun, on_wait: Callable[[str], None]
    ) -> AbstractAsyncContextManager[RemoteHost]:
        """The host of a run; see `HostCarrier.place`."""
        assert command.host is not None  # noqa: S101 - the caller chose a remote worker
        wanted = Wanted(
            issue_id=command.issue.id,
            host=command.host,
            last_host=command.last_host,
            labels=context.workflow.agents[command.agent].settings.ray_labels,
        )
        return self._carrier(context).place(context.settings.worker, wanted, on_wait)

    def visit(self, context: RuntimeContext, name: str) -> AbstractAsyncContextManager[RemoteHost]:
        """The host of this name, apart from a run."""
        return self._carrier(context).visit(context.settings.worker, name)

    async def fence_issue(self, context: RuntimeContext, issue_id: str) -> None:
        """Wait until no earlier run of the issue can be alive."""
        for run, since_s in tuple(self._open.values()):
            if run.issue_id == issue_id:
                known_s = anyio.current_time() if since_s is None else since_s
                await self.fence(context, run, since_s=known_s)

    async def fence(self, context: RuntimeContext, run: RemoteRun, *, since_s: float) -> None:
        """End a run that may be alive, or wait until its lease is over.

        `since_s` is a moment after the last frame that its worker may have received.
        """
        over_s = since_s + (run.lease_ms + FENCE_EXTRA_MS) / 1_000
        while (left_s := over_s - anyio.current_time()) > 0 or not await self._is_gone(context, run):
            try:
                if await self._end(context, run):
                    break
            except SymphonyError as error:
                _log.debug("remote_run_not_ended", run_id=run.run_id, reason=error.failure.line)
            await anyio.sleep(min(_FENCE_PAUSE_S, left_s) if left_s > 0 else _FENCE_PAUSE_S)
        _log.info("remote_run_fenced", run_id=run.run_id, issue_id=run.issue_id, host=run.host)
        await self.finish(run.run_id)

    async def _is_gone(self, context: RuntimeContext, run: RemoteRun) -> bool:
        return await self._carrier(context).is_gone(context.settings.worker, run)

    async def _end(self, context: RuntimeContext, run: RemoteRun) -> bool:
        async with self.visit(context, run.host) as host:
            site = await self._find_site(context, host, timeout_ms=_FENCE_ATTEMPT_MS)
            command = site.command("worker", "--end", run.run_id)
            done = await host.run(command, timeout_ms=_FENCE_ATTEMPT_MS)
            return done.exit_code == 0

    def starts_on(self, host: RemoteHost) -> anyio.CapacityLimiter:
        """Limits how many workers start on a host at a time: each needs a second of its processor."""
        if host.name not in self._starts:
            self._starts[host.name] = anyio.CapacityLimiter(_STARTS_AT_ONCE)
        return self._starts[host.name]

    async def start_worker(self, context: RuntimeContext, host: RemoteHost, stderr_path: Path) -> StdioWorker:
        """A worker on the host, which loads its program.

        Raises:
            SymphonyError: `host_unavailable`, with a hint.
        """
        await host.connect()
        site = self._sites.get(_key(host)) or await self._find_site(context, host)
        worker = StdioWorker(
            host=host.local,
            argv=host.argv(site.command("worker", "--stdio")),
            env=host.env,
            lease_ms=lease_of(context),
            stderr_path=stderr_path,
        )
        self._workers.start_soon(worker.run)
        return worker

    async def _find_site(
        self, context: RuntimeContext, host: RemoteHost, *, timeout_ms: int = COMMAND_TIMEOUT_MS
    ) -> RemoteSite:
        """Make the directories of the workflow file on a host. Raises `SymphonyError`, with a hint."""
        site, _ = await self._look(context, host, timeout_ms=timeout_ms)
        return site

    async def _look(
        self,
        context: RuntimeContext,
        host: RemoteHost,
        begun: BranchBase | None = None,
        *,
        timeout_ms: int = COMMAND_TIMEOUT_MS,
    ) -> tuple[RemoteSite, dict[str, str]]:
        """As `_find_site`; with `begun` also a bare repository, and its refs."""
        self._sites.pop(_key(host), None)
        directory = directory_of(context.workflow)
        further = [f"mkdir -p {directory}/state && cd {directory} || exit {NO_ROOT}"]
        if begun is not None:
            kind = "sha256" if is_sha256(begun.base) else "sha1"
            # Two runs may be the first ones here at the same time: one of them makes the repository.
            draft = f"repository.{secrets.token_hex(4)}.tmp"
            init = f"git init --quiet --bare --template= --object-format={kind} {draft}"
            # Large packs are kept as they come, and no deltas of large files are looked for.
            settings = (
                *("receive.unpackLimit 1", "core.bigFileThreshold 1m", "core.hooksPath /dev/null"),
                "receive.fsckObjects false",
            )
            configure = " && ".join(f"git --git-dir={draft} config {each}" for each in settings)
            keep = f"{{ mv -T {draft} repository.git || rm -rf {draft}; }}"
            make = f"export GIT_DEFAULT_REF_FORMAT=files && {init} >&2 && {configure} && {keep}"
            git = "git --git-dir=repository.git"
            base = shlex.quote(f"refs/heads/{begun.base_branch}")
            further += [
                f"[ -d repository.git ] || {{ {make}; }} || exit {NO_ROOT}",
                f"{git} symbolic-ref HEAD {base} || exit {NO_ROOT}",
                f"{git} for-each-ref --format='%(objectname) %(refname)' || exit {NO_ROOT}",
            ]
        script = place_script(host, needs_git=begun is not None, further=further)
        output = await run_script(host, script, timeout_ms=timeout_ms)
        place, rest = read_place(output)
        refs = {name: commit for commit, _, name in (line.partition(" ") for line in rest)}
        site = RemoteSite(base=f"{place.root}/{directory}", python=place.python)
        self._sites[_key(host)] = site
        return site, refs

    # --- the repository ----------------------------------------------------------------------------------

    async def prepare(self, context: RuntimeContext, host: RemoteHost, command: StartRun) -> "PreparedHost":
        """Give a host what a run of the issue needs.

        A workspace that the host has keeps its branch when the issue gets another identifier. On another host
        the branch of the new identifier begins with the work on the former one.

        Raises:
            SymphonyError: the host, the repository, or the way between them cannot be used.
        """
        last_host = command.last_host
        found = await context.workspaces.courier(_worked_on_as(command, host))
        if found is None:
            return PreparedHost(host=host, site=await self._find_site(context, host))
        courier, branch = found
        begun = await courier.begin(branch)
        if last_host is not None and last_host != host.name:
            earlier = await context.workspaces.courier(command.last_identifier or command.issue.identifier)
            former = branch if earlier is None else earlier[1]
            await self._salvage(context, last_host, courier, former, await courier.begin(former))
            await courier.go_on(branch, former)
            begun = await courier.begin(branch)
        site, refs = await self._look(context, host, begun)
        source = source_of(host, site)
        if refs.get(f"refs/heads/{branch}", begun.delivered) != begun.delivered:
            with suppress(GitError, OSError):
                await courier.fetch(source, branch, begun.base)
            begun = await courier.begin(branch)
        try:
            await courier.send(source, branch, begun, there=refs)
        except SymphonyError:  # another run may have sent the same refs at this moment
            site, refs = await self._look(context, host, begun)
            await courier.send(source, branch, begun, there=refs)
        await send_objects(host, site.repository, courier, begun.start or begun.base)
        sent = SentBranch(courier=courier, branch=branch, begun=begun, source=source)
        return PreparedHost(host=host, site=site, sent=sent)

    async def _salvage(
        self, context: RuntimeContext, name: str, courier: Courier, branch: str, begun: BranchBase
    ) -> None:
        """Fetch what an earlier run left on its host, if the host can be reached."""
        try:
            async with self.visit(context, name) as host:
                site, refs = await self._look(context, host, begun, timeout_ms=_FENCE_ATTEMPT_MS)
                if refs.get(f"refs/heads/{branch}", begun.delivered) != begun.delivered:
                    head = await courier.fetch(source_of(host, site), branch, begun.base)
                    if head is not None:
                        await fetch_objects(host, site.repository, courier, head)
        except (SymphonyError, GitError, OSError) as error:
            _log.warning("remote_work_not_fetched", host=name, branch=branch, reason=str(error))

    # --- removal -----------------------------------------------------------------------------------------

    async def workspaces(self, context: RuntimeContext, name: str) -> tuple[HostWorkspace, ...]:
        """The workspaces on a host. Raises `SymphonyError`: the host cannot be used."""
        kind = tuple[HostWorkspace, ...]
        answer: tuple[HostWorkspace, ...] = await self._ask(context, name, "--list", lambda site: site, kind)
        return answer

    async def clean(self, context: RuntimeContext, command: CleanWorkspace) -> Removal:
        """Remove the workspace of an issue on its host. Raises `SymphonyError`: the host cannot be used."""

        def request(site: Site) -> RemovalRequest:
            return RemovalRequest(site=site, issue_id=command.issue_id, identifier=command.identifier)

        assert command.host is not None  # noqa: S101 - the caller asks for a host
        answer: Removal = await self._ask(context, command.host, "--remove", request, Removal)
        return answer

    async def _ask(
        self,
        context: RuntimeContext,
        name: str,
        word: str,
        request: Callable[[Site], msgspec.Struct],
        kind: Any,
    ) -> Any:
        """The answer of the worker program on a host, masked. Raises `SymphonyError`."""
        async with self.visit(context, name) as host:
            found = await self._find_site(context, host)
            site = make_site(context, found, base_branch=None)
            done = await host.run(
                found.command("worker", word),
                stdin=msgspec.json.encode(request(site), enc_hook=str),
                timeout_ms=_CLEAN_TIMEOUT_MS,
            )
        try:
            answer = decode_answer(done.stdout.decode("utf-8", "replace"), kind)
        except ValueError as error:
            reason = context.redaction.line(str(error), MAX_SAID_CHARS)
            raise SymphonyError(host_failure(name, f"its answer cannot be used: {reason}")) from error
        if answer is None:
            text = f"its workspaces cannot be used: {said(done) or f'exit code {done.exit_code}'}"
            raise SymphonyError(context.redaction.failure(host_failure(name, text)))
        return checked(answer, context.redaction.line)


def _worked_on_as(command: StartRun, host: RemoteHost) -> str:
    """The identifier whose workspace and branch a run on a host uses."""
    is_there = command.last_host == host.name
    return (command.last_identifier if is_there else None) or command.issue.identifier


def _key(host: RemoteHost) -> tuple[str | None, ...]:
    """What decides where things are on a host."""
    return host.name, host.node_id, host.remote_root, host.remote_python


def lease_of(context: RuntimeContext) -> int:
    """The lease of workers on hosts, in milliseconds."""
    worker = context.settings.worker
    return worker.ssh.lease_ms if worker.ray.address is None else worker.ray.lease_ms


def source_of(host: RemoteHost, site: RemoteSite) -> RemoteSource:
    """The bare repository of a host, for git."""
    return RemoteSource(address=host.git_address(site.repository), ssh_command=host.git_ssh_command)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBranch:
    """The branch of an issue in the bare repository `source` of a host; `courier` fetches it back."""

    courier: Courier
    branch: str
    begun: BranchBase
    source: RemoteSource


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedHost:
    """A host that has what a run needs; `sent` is `None` where hooks populate workspaces."""

    host: RemoteHost
    site: RemoteSite
    sent: SentBranch | None = None


def make_site(
    context: RuntimeContext,
    site: RemoteSite,
    *,
    base_branch: str | None,
    env: Mapping[str, str] | None = None,
) -> Site:
    """What a worker on a host works by, without what belongs to one run."""
    workspace: dict[str, str | None] = {"root": f"{site.base}/workspaces", "push": "never"}
    if context.settings.workspace.repo is not None:
        workspace |= {"repo": site.repository, "base_branch": base_branch}
    made = site_of(context.workflow, lease_ms=lease_of(context), workspace=workspace)
    return msgspec.structs.replace(made, env=env or {})


# --- one run ---------------------------------------------------------------------------------------------


class RemoteWorker:
    """A worker on a host (`WorkerEnd`).

    Args:
        start: begins the run; its command names the host.
        send: takes the frames of the worker.
        on_placed: takes the machine that a cluster chose.
        hosts: carries runs out on hosts.
        context: settings and adapters of the daemon.
        environment: variables of the daemon, for `worker.env`.
        stderr_path: the file that receives the stderr of ssh and of the worker.
        transcript: takes the entries of the transcript.
    """

    def __init__(
        self,
        start: Start,
        send: Callable[[WorkerFrame], None],
        *,
        on_placed: Callable[[str], None],
        hosts: RemoteHosts,
        context: RuntimeContext,
        environment: Mapping[str, str],
        stderr_path: Path,
        transcript: EntryWriter,
    ) -> None:
        self._start = start
        self._send = send
        self._on_placed = on_placed
        self._hosts = hosts
        self._context = context
        self._environment = environment
        self._stderr_path = stderr_path
        self._transcript = transcript
        self._early: list[DaemonFrame] = []
        self._preparation = anyio.CancelScope()
        self._reports: HostReports | None = None
        self._inner: StdioWorker | None = None
        self._over = anyio.Event()
        self._ended: Outcome | None = None

    def on_frame(self, frame: DaemonFrame) -> None:
        """Take a frame of the daemon."""
        if self._reports is not None:
            self._reports.on_directive(frame)
        if self._inner is not None:
            self._inner.on_frame(frame)
            return
        self._early.append(frame)
        if isinstance(frame, Stop):
            self._preparation.cancel()

    async def run(self) -> None:
        """Carry out the run; sends exactly one `Ended`."""
        outcome = Outcome(kind=OutcomeKind.CANCELED)
        async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            try:
                outcome = await self._carry_out(stack, tasks)
            except SymphonyError as error:
                outcome = self._failed(error.failure)
            except Exception as error:  # noqa: BLE001 - a bug costs one attempt, never the daemon
                outcome = self._failed(bugs.contained("run_crashed", error))
            tasks.cancel_scope.cancel()  # ends a worker that got no run
        await to_thread.run_sync(self._transcript.close)
        if outcome.failure is not None:  # it may tell what the host says
            outcome = replace(outcome, failure=self._context.redaction.failure(outcome.failure))
        self._send(Ended(outcome=outcome))

    def _on_wait(self, reason: str) -> None:
        """Tell people why the run has no host yet."""
        stage = RunStage.PREPARING_WORKSPACE
        report = RunReport(stage=stage, last_event=WAITING_FOR_SLOT, last_message=reason)
        self._send(Report(report=report))

    def _failed(self, failure: Failure) -> Outcome:
        failure = self._context.redaction.failure(failure)
        return Outcome(kind=OutcomeKind.FAILED, failure=failure)

    async def _site(self, prepared: PreparedHost) -> Site:
        context, command = self._context, self._start.command
        # Credentials of tracker and forge stay here, even if a setting names them.
        names = frozenset(context.settings.worker.env) - context.secret_names
        env = {name: self._environment[name] for name in sorted(names) if name in self._environment}
        begun = None if prepared.sent is None else prepared.sent.begun
        made = make_site(
            context, prepared.site, base_branch=None if begun is None else begun.base_branch, env=env
        )
        store = context.instructions
        return msgspec.structs.replace(
            made,
            delivered=None if begun is None else begun.delivered,
            skills=await carry_skills(context, command.issue, command.agent),
            instructions=None if store is None else await store.carry(),
            fallback=None if store is None else await to_thread.run_sync(store.fallback),
        )

    async def _carry_out(self, stack: AsyncExitStack, tasks: TaskGroup) -> Outcome:
        """Start the worker, send the repository while it loads, and give it the run."""
        command, site = self._start.command, None
        with self._preparation:
            host = await stack.enter_async_context(self._hosts.place(self._context, command, self._on_wait))
            if host.name != command.host:
                self._on_placed(host.name)
            async with self._hosts.starts_on(host):
                inner = await self._hosts.start_worker(self._context, host, self._stderr_path)
                # Its agent ends, a hook runs, and its branch is delivered: each within its limit.
                stop_s = 2 * (lease_of(self._context) + self._context.settings.hooks.timeout_ms) / 1000
                inner.take_run(self._take, self._transcript, self._check, stop_s)
                tasks.start_soon(self._watch, inner)
                prepared = await self._hosts.prepare(self._context, host, command)
                site = await self._site(prepared)
                await inner.until_ready()
        if site is None or self._preparation.cancel_called:
            return Outcome(kind=OutcomeKind.CANCELED)
        run = RemoteRun(
            run_id=command.run_id,
            issue_id=command.issue.id,
            host=host.name,
            lease_ms=site.lease_ms,
            node_id=host.node_id,
        )
        await self._hosts.begin(run)
        self._reports = self._make_reports(prepared, site)
        self._inner = inner
        for frame in (msgspec.structs.replace(self._start, site=site), *self._early):
            inner.on_frame(frame)
        await self._over.wait()
        if inner.reported_end or not inner.started:
            await self._hosts.finish(run.run_id)
        else:
            await self._hosts.fence(self._context, run, since_s=anyio.current_time())
        outcome = _judged(host.name, self._ended or Outcome(kind=OutcomeKind.FAILED))
        return await self._deliver(prepared, outcome) if inner.started else outcome

    async def _watch(self, inner: StdioWorker) -> None:
        """End the worker with the run."""
        try:
            await inner.over.wait()
        finally:
            inner.abandon()
            with anyio.CancelScope(shield=True):
                await inner.over.wait()
            self._over.set()

    def _make_reports(self, prepared: PreparedHost, site: Site) -> HostReports:
        command, library = self._start.command, self._context.settings.agent.library
        key = workspace_key(_worked_on_as(command, prepared.host))
        return HostReports(
            command,
            host=prepared.host.name,
            branch=None if prepared.sent is None else prepared.sent.branch,
            workspace=f"{prepared.site.base}/workspaces/{key}",
            carried=site.skills,
            directory=library.directory,
            redaction=self._context.redaction,
        )

    def _check(self, frame: WorkerFrame) -> WorkerFrame:
        assert self._reports is not None  # noqa: S101 - a worker says nothing before its run
        return self._reports.check(frame)

    def _take(self, frame: WorkerFrame) -> None:
        match frame:
            case Ended():
                self._ended = frame.outcome
            case Spawned():
                pass  # a process of another machine
            case TurnFinished() if self._reports is not None:
                self._send(Report(report=self._reports.latest))  # the turn counts, whatever was reported
                self._send(frame)
            case _:
                self._send(frame)

    async def _deliver(self, prepared: PreparedHost, outcome: Outcome) -> Outcome:
        """Fetch the branch that the worker delivered on its host, and deliver it here."""
        reported = outcome.delivered
        lost = self._inner is None or not self._inner.reported_end
        if prepared.sent is None or (reported is None and not lost):
            return outcome
        with anyio.CancelScope(shield=True):
            delivery = await self._fetch(prepared, prepared.sent, reported)
        if reported is None or delivery is None:  # the link was lost: the outcome says so
            return outcome
        for warning in delivery.warnings:
            _log.warning("workspace_warning", reason=warning)
        if delivery.failure is not None:
            return _undelivered(outcome, self._context.redaction.failure(delivery.failure))
        delivered = self._published(reported, delivery)
        if self._reports is not None:
            report = self._reports.latest
            self._send(Report(report=replace(report, facts=with_work(report.facts, delivery))))
        return replace(outcome, delivered=delivered)

    async def _fetch(
        self, prepared: PreparedHost, sent: SentBranch, reported: DeliveredBranch | None
    ) -> Delivery | None:
        delivery = Delivery(branch=sent.branch, head=None if reported is None else reported.head)
        try:
            head = await sent.courier.fetch(sent.source, sent.branch, sent.begun.base)
        except (GitError, OSError) as error:
            failure = host_failure(prepared.host.name, f"the branch cannot be fetched: {error}")
            return replace(delivery, failure=failure)
        if reported is None:
            return None
        if head != reported.head:
            text = "the branch there is not the one that the worker reported"
            return replace(delivery, failure=host_failure(prepared.host.name, text))
        warning = await fetch_objects(prepared.host, prepared.site.repository, sent.courier, head)
        delivery = await sent.courier.deliver(sent.branch, head)
        return replace(delivery, warnings=(*delivery.warnings, warning)) if warning else delivery

    def _published(self, reported: DeliveredBranch, delivery: Delivery) -> DeliveredBranch:
        failure = delivery.branch_failure
        changes = delivery.changes
        return replace(
            reported,
            commits=delivery.commits,
            files_changed=len(changes.files) if changes else 0,
            insertions=changes.insertions if changes else 0,
            deletions=changes.deletions if changes else 0,
            branch_failure=None if failure is None else self._context.redaction.failure(failure),
            pushed=delivery.pushed,
            to_push=delivery.to_push,
        )


def _judged(host: str, outcome: Outcome) -> Outcome:
    """The outcome of a worker; a disk that is full there is a trouble of the host, and not of the issue."""
    failure = outcome.failure
    if failure is None or not is_disk_full(failure.message):
        return outcome
    full = host_failure(host, f"its disk is full: {failure.message}", hint="free space there")
    return replace(outcome, failure=full)


def _undelivered(outcome: Outcome, failure: Failure) -> Outcome:
    _log.warning("delivery_failed", reason=failure.message, hint=failure.hint)
    kind = OutcomeKind.FAILED if outcome.kind is OutcomeKind.SUCCEEDED else outcome.kind
    return replace(outcome, kind=kind, failure=outcome.failure or failure, delivered=None)
