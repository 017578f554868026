"""One run on another machine, as the daemon sees it: a session of its worker there.

    fence earlier runs -> slot -> connect -> send the repository -> frames -> fence -> fetch -> deliver

The worker is not trusted (`host_reports`). It ends its agent when it gets no frame for the time of its lease,
and then the run ends (`Hosts.fence`).
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup
from msgspec import Struct

from symphony import scheduler, to_thread
from symphony.daemon import frames
from symphony.daemon.carriers import Carrier, PlaceRequest, RemoteHost, RemoteRun, host_failure
from symphony.daemon.context import RuntimeContext
from symphony.daemon.hosts.host_reports import HostReports
from symphony.daemon.hosts.hosts import FENCE_ATTEMPT_MS, Hosts
from symphony.daemon.hosts.lfs_transfer import fetch_objects, send_objects
from symphony.daemon.hosts.places import HostPlace
from symphony.daemon.hosts.sites import site_at
from symphony.daemon.hosts.stdio_worker import StdioWorker
from symphony.daemon.runs.library_skills import carry_skills
from symphony.daemon.runs.progress import with_work
from symphony.daemon.runs.transcript import EntryWriter
from symphony.domain import DeliveredBranch, Failure, SymphonyError, is_disk_full, workspace_key
from symphony.observability import bugs
from symphony.workspaces import BranchBase, Courier, Delivery, GitError, RemoteSource

_log = structlog.get_logger(__name__)


class _Branch(Struct, frozen=True, kw_only=True):
    """The branch of the issue in the repository of a host, and where it begins."""

    courier: Courier
    name: str
    begun: BranchBase


class _Machine(Struct, frozen=True, kw_only=True):
    """The prepared host of the run; `sent` is `None` if hooks populate workspaces."""

    host: RemoteHost
    place: HostPlace
    sent: _Branch | None = None

    @property
    def source(self) -> RemoteSource:
        """The bare repository there, for git."""
        return _source(self.host, self.place)


def _source(host: RemoteHost, place: HostPlace) -> RemoteSource:
    return RemoteSource(address=host.git_address(place.repository), ssh_command=host.git_ssh_command)


class HostSession:
    """The life of one run on another machine (`WorkerEnd`).

    Args:
        start: begins the run; its command names the host.
        send: receives the frames of the worker.
        on_placed: called with the machine that a cluster chose.
        hosts: the machines, and the runs on them.
        context: settings and adapters of the daemon.
        environment: variables of the daemon, for `worker.env`.
        stderr_path: the file that receives the stderr of the client and of the worker.
        transcript: receives the entries of the transcript.
    """

    def __init__(
        self,
        start: frames.Start,
        send: Callable[[frames.WorkerFrame], None],
        *,
        on_placed: Callable[[str], None],
        hosts: Hosts,
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
        self._early: list[frames.DaemonFrame] = []
        self._preparation = anyio.CancelScope()
        self._reports: HostReports | None = None
        self._worker: StdioWorker | None = None
        self._ended: scheduler.Outcome | None = None

    def on_frame(self, frame: frames.DaemonFrame) -> None:
        """Take a frame of the daemon."""
        if self._reports is not None:
            self._reports.on_directive(frame)
        if self._worker is not None:
            self._worker.on_frame(frame)
            return
        self._early.append(frame)
        if isinstance(frame, frames.Stop):
            self._preparation.cancel()

    async def run(self) -> None:
        """Carry out the run; sends exactly one `RunOutcome`."""
        outcome = scheduler.Outcome(kind=scheduler.OutcomeKind.CANCELED)
        async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            try:
                carrier = await stack.enter_async_context(self._hosts.carrier(self._context.carrier))
                outcome = await self._carry_out(carrier, stack, tasks)
            except SymphonyError as error:
                outcome = self._failed(error.failure)
            except Exception as error:  # noqa: BLE001 - a bug costs one attempt, never the daemon
                outcome = self._failed(bugs.contained("run_crashed", error))
            tasks.cancel_scope.cancel()  # ends a worker without a run
        await to_thread.run_sync(self._transcript.close)
        if outcome.failure is not None:  # it may contain text of the host
            outcome = replace(outcome, failure=self._context.redaction.failure(outcome.failure))
        self._send(frames.RunOutcome(outcome=outcome))

    def _failed(self, failure: Failure) -> scheduler.Outcome:
        return scheduler.Outcome(
            kind=scheduler.OutcomeKind.FAILED, failure=self._context.redaction.failure(failure)
        )

    async def _carry_out(
        self, carrier: Carrier[Any], stack: AsyncExitStack, tasks: TaskGroup
    ) -> scheduler.Outcome:
        """Start the worker, send the repository while it loads, and start the run on it."""
        command, site, lease_ms = self._start.command, None, carrier.settings.lease_ms
        with self._preparation:
            host = await stack.enter_async_context(carrier.place(self._place_request(), self._on_wait))
            if host.name != command.host:
                self._on_placed(host.name)
            async with self._hosts.starts_on(host):
                worker = await self._start_worker(host, lease_ms)
                tasks.start_soon(worker.run)
                machine = await self._prepare(carrier, host)
                site = await self._site(machine, lease_ms)
                await worker.until_ready()
        if site is None or self._preparation.cancel_called:
            return scheduler.Outcome(kind=scheduler.OutcomeKind.CANCELED)
        run = RemoteRun(
            run_id=command.run_id,
            issue_id=command.issue.id,
            host=host.name,
            lease_ms=lease_ms,
            node_id=host.node_id,
            carrier=None if self._context.carrier is None else self._context.carrier.kind,
        )
        await self._hosts.begin(run)
        self._reports = self._make_reports(machine, site)
        self._worker = worker
        for frame in (msgspec.structs.replace(self._start, site=site), *self._early):
            worker.on_frame(frame)
        await worker.over.wait()
        if worker.reported_end or not worker.started:
            await self._hosts.finish(run.run_id)
        else:
            await self._hosts.fence(self._context, run, since_s=anyio.current_time())
        outcome = _judged(host.name, self._ended or scheduler.Outcome(kind=scheduler.OutcomeKind.FAILED))
        return await self._deliver(machine, outcome) if worker.started else outcome

    # --- the machine -------------------------------------------------------------------------------------

    def _place_request(self) -> PlaceRequest:
        command = self._start.command
        assert command.host is not None  # noqa: S101 - the caller chose another machine
        return PlaceRequest(
            issue_id=command.issue.id,
            host=command.host,
            last_host=command.last_host,
            labels=self._context.workflow.agents[command.agent].settings.ray_labels,
        )

    def _on_wait(self, reason: str) -> None:
        """Report why the run has no host yet."""
        stage = scheduler.RunStage.PREPARING_WORKSPACE
        report = scheduler.RunReport(stage=stage, last_event=scheduler.WAITING_FOR_SLOT, last_message=reason)
        self._send(frames.Report(report=report))

    async def _start_worker(self, host: RemoteHost, lease_ms: int) -> StdioWorker:
        """A worker on the host, which waits for its run. Raises `SymphonyError`, with a hint."""
        await host.connect()
        place = await self._hosts.place_of(self._context, host)
        worker = StdioWorker(
            host=host.local,
            argv=host.argv(place.command("worker", "--stdio")),
            env=host.env,
            lease_ms=lease_ms,
            stderr_path=self._stderr_path,
        )
        # Its agent ends, a hook runs, and its branch is delivered: each within its limit.
        stop_s = 2 * (lease_ms + self._context.settings.hooks.timeout_ms) / 1000
        worker.take_run(self._take, self._transcript, self._check, stop_s)
        return worker

    async def _prepare(self, carrier: Carrier[Any], host: RemoteHost) -> _Machine:
        """Prepare the host for the run.

        If the host has a workspace, it keeps its branch when the issue gets another identifier. On another
        host the branch of the new identifier begins with the work on the former one.

        Raises:
            SymphonyError: the host, the repository, or the way between them cannot be used.
        """
        hosts, context, command = self._hosts, self._context, self._start.command
        last_host = command.last_host
        found = await context.workspaces.courier(self._worked_on_as(host))
        if found is None:
            return _Machine(host=host, place=await hosts.find_place(context, host))
        courier, branch = found
        begun = await courier.begin(branch)
        if last_host is not None and last_host != host.name:
            earlier = await context.workspaces.courier(command.last_identifier or command.issue.identifier)
            former = branch if earlier is None else earlier[1]
            await self._salvage(carrier, last_host, courier, former, await courier.begin(former))
            await courier.go_on(branch, former)
            begun = await courier.begin(branch)
        place, refs = await hosts.look(context, host, begun)
        if refs.get(f"refs/heads/{branch}", begun.delivered) != begun.delivered:
            with suppress(GitError, OSError):
                await courier.fetch(_source(host, place), branch, begun.base)
            begun = await courier.begin(branch)
        try:
            await courier.send(_source(host, place), branch, begun, there=refs)
        except SymphonyError:  # another run may have just sent the same refs
            place, refs = await hosts.look(context, host, begun)
            await courier.send(_source(host, place), branch, begun, there=refs)
        await send_objects(host, place.repository, courier, begun.start or begun.base)
        return _Machine(host=host, place=place, sent=_Branch(courier=courier, name=branch, begun=begun))

    async def _salvage(
        self, carrier: Carrier[Any], name: str, courier: Courier, branch: str, begun: BranchBase
    ) -> None:
        """Fetch what an earlier run left on its host, if the host can be reached."""
        try:
            async with carrier.visit(name) as host:
                place, refs = await self._hosts.look(self._context, host, begun, timeout_ms=FENCE_ATTEMPT_MS)
                if refs.get(f"refs/heads/{branch}", begun.delivered) != begun.delivered:
                    head = await courier.fetch(_source(host, place), branch, begun.base)
                    if head is not None:
                        await fetch_objects(host, place.repository, courier, head)
        except (SymphonyError, GitError, OSError) as error:
            _log.warning("remote_work_not_fetched", host=name, branch=branch, reason=str(error))

    def _worked_on_as(self, host: RemoteHost) -> str:
        """The identifier whose workspace and branch the run uses on a host."""
        command = self._start.command
        is_there = command.last_host == host.name
        return (command.last_identifier if is_there else None) or command.issue.identifier

    async def _site(self, machine: _Machine, lease_ms: int) -> frames.Site:
        context, command = self._context, self._start.command
        # Credentials of tracker and forge stay here, even if a setting names them.
        names = frozenset(context.settings.worker.env) - context.secret_names
        begun = None if machine.sent is None else machine.sent.begun
        base_branch = None if begun is None else begun.base_branch
        store = context.instructions
        return msgspec.structs.replace(
            site_at(context.workflow, machine.place, lease_ms=lease_ms, base_branch=base_branch),
            env={name: self._environment[name] for name in sorted(names) if name in self._environment},
            delivered=None if begun is None else begun.delivered,
            skills=await carry_skills(context, command.issue, command.agent),
            instructions=None if store is None else await store.carry(),
            fallback=None if store is None else await to_thread.run_sync(store.fallback),
        )

    # --- frames ------------------------------------------------------------------------------------------

    def _make_reports(self, machine: _Machine, site: frames.Site) -> HostReports:
        command, library = self._start.command, self._context.settings.agent.library
        key = workspace_key(self._worked_on_as(machine.host))
        return HostReports(
            command,
            host=machine.host.name,
            branch=None if machine.sent is None else machine.sent.name,
            workspace=f"{machine.place.root}/workspaces/{key}",
            carried=site.skills,
            directory=library.directory,
            redaction=self._context.redaction,
        )

    def _check(self, frame: frames.WorkerFrame) -> frames.WorkerFrame:
        assert self._reports is not None  # noqa: S101 - a worker says nothing before its run
        return self._reports.check(frame)

    def _take(self, frame: frames.WorkerFrame) -> None:
        match frame:
            case frames.RunOutcome():
                self._ended = frame.outcome
            case frames.Spawned():
                pass  # a process of another machine
            case frames.TurnFinished() if self._reports is not None:
                self._send(frames.Report(report=self._reports.latest))  # the turn counts in any case
                self._send(frame)
            case _:
                self._send(frame)

    # --- the branch --------------------------------------------------------------------------------------

    async def _deliver(self, machine: _Machine, outcome: scheduler.Outcome) -> scheduler.Outcome:
        """Fetch the branch that the worker delivered on its host, and deliver it here."""
        reported = outcome.delivered
        lost = self._worker is None or not self._worker.reported_end
        if machine.sent is None or (reported is None and not lost):
            return outcome
        with anyio.CancelScope(shield=True):
            delivery = await self._fetch(machine, machine.sent, reported)
        if reported is None or delivery is None:  # the connection was lost, as the outcome says
            return outcome
        for warning in delivery.warnings:
            _log.warning("workspace_warning", reason=warning)
        if delivery.failure is not None:
            return _undelivered(outcome, self._context.redaction.failure(delivery.failure))
        delivered = delivery.delivered
        if self._reports is not None:
            report = self._reports.latest
            self._send(frames.Report(report=replace(report, facts=with_work(report.facts, delivery))))
        return replace(outcome, delivered=delivered and delivered.masked(self._context.redaction))

    async def _fetch(
        self, machine: _Machine, sent: _Branch, reported: DeliveredBranch | None
    ) -> Delivery | None:
        delivery = Delivery(head=None if reported is None else reported.head)
        try:
            head = await sent.courier.fetch(machine.source, sent.name, sent.begun.base)
        except (GitError, OSError) as error:
            failure = host_failure(machine.host.name, f"the branch cannot be fetched: {error}")
            return replace(delivery, failure=failure)
        if reported is None:
            return None
        if head != reported.head:
            text = "the branch there is not the one that the worker reported"
            return replace(delivery, failure=host_failure(machine.host.name, text))
        warning = await fetch_objects(machine.host, machine.place.repository, sent.courier, head)
        delivery = await sent.courier.deliver(sent.name, head)
        return replace(delivery, warnings=(*delivery.warnings, warning)) if warning else delivery


def _judged(host: str, outcome: scheduler.Outcome) -> scheduler.Outcome:
    """The outcome of a worker; a full disk there is blamed on the host, not on the issue."""
    failure = outcome.failure
    if failure is None or not is_disk_full(failure.message):
        return outcome
    full = host_failure(host, f"its disk is full: {failure.message}", hint="free space there")
    return replace(outcome, failure=full)


def _undelivered(outcome: scheduler.Outcome, failure: Failure) -> scheduler.Outcome:
    _log.warning("delivery_failed", reason=failure.message, hint=failure.hint)
    kind = scheduler.OutcomeKind.FAILED if outcome.kind is scheduler.OutcomeKind.SUCCEEDED else outcome.kind
    return replace(outcome, kind=kind, failure=outcome.failure or failure, delivered=None)
