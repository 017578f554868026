"""The machines of one daemon: carriers in use, the fence, and workspaces outside of runs.

A run counts as ended once none of its processes can be alive: the worker reported its end, or a program on
the host ended them, or the lease of the worker is certainly over.
"""

import hashlib
import os
import platform
import re
import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import structlog

from symphony import to_thread
from symphony.config import Workflow
from symphony.daemon import carriers
from symphony.daemon.context import RuntimeContext
from symphony.daemon.frames import Site
from symphony.daemon.hosts.host_reports import checked
from symphony.daemon.hosts.host_workspaces import HostWorkspace, RemovalRequest, decode_answer
from symphony.daemon.hosts.places import NO_ROOT, HostPlace, place_script, read_place, run_script
from symphony.daemon.hosts.sites import site_at
from symphony.domain import SymphonyError
from symphony.files import write_atomic
from symphony.processes.base import Host
from symphony.scheduler import CleanWorkspace
from symphony.workspaces import BranchBase, Removal, is_sha256

FENCE_EXTRA_MS: Final = 30_000
"""How long a worker may take to end its agent, once its lease is over."""
FENCE_ATTEMPT_MS: Final = 10_000
"""How long a host may take to answer a fence request."""
_FENCE_PAUSE_S: Final = 2.0
_STARTS_AT_ONCE: Final = 4
_CLEAN_TIMEOUT_MS: Final = 120_000
_log = structlog.get_logger(__name__)


class RemoteRuns:
    """The runs on hosts whose end is unknown, in files that survive the daemon.

    <state dir>/remote-runs/<run id>.json
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "remote-runs"

    def add(self, run: carriers.RemoteRun) -> None:
        """Record that a run is about to begin; blocking."""
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._path / f"{run.run_id}.json", msgspec.json.encode(run), durable=True)

    def remove(self, run_id: str) -> None:
        """Record that none of its processes is alive; blocking."""
        (self._path / f"{run_id}.json").unlink(missing_ok=True)

    def all(self) -> tuple[carriers.RemoteRun, ...]:
        """The runs that were not removed; blocking."""
        found = []
        for path in sorted(self._path.glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=carriers.RemoteRun))
            except (OSError, msgspec.MsgspecError) as error:
                _log.warning("remote_run_unreadable", path=str(path), reason=str(error))
        return tuple(found)


def directory_of(workflow: Workflow) -> str:
    """The name of the directory of a workflow file below `worker.ssh.remote_root`."""
    real = os.path.realpath(workflow.path)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(real).parent.name).strip("-.") or "workflow"
    digest = hashlib.sha256(os.fsencode(f"{platform.node()}:{real}")).hexdigest()[:12]
    return f"{name}-{digest}"


@dataclass(slots=True)
class _InUse:
    """A carrier, and the number of its present users."""

    chosen: carriers.ChosenCarrier
    carrier: carriers.Carrier[Any]
    uses: int = 0


class Hosts:
    """The machines in the settings in force and in settings that a run still uses; call `aclose` at the end.

    Args:
        local: the host of the carriers' clients: this machine.
        environment: variables of the daemon.
        state_dir: identifies this daemon; runs whose end is unknown are recorded there.
        purpose: distinguishes the logs of carriers from the daemon's, if the user is not the daemon.
    """

    def __init__(
        self, local: Host, environment: Mapping[str, str], state_dir: Path, *, purpose: str = ""
    ) -> None:
        self._local = local
        self._environment = environment
        self._state_dir = state_dir
        self._purpose = purpose
        self._runs = RemoteRuns(state_dir)
        self._made: list[_InUse] = []
        self._in_force: RuntimeContext | None = None
        self._reconfigured = anyio.Event()
        # With a time after the last frame of each.
        self._open: dict[str, tuple[carriers.RemoteRun, float | None]] = {}
        self._starts: dict[str, anyio.CapacityLimiter] = {}
        self._places: dict[tuple[str | None, ...], HostPlace] = {}

    async def aclose(self) -> None:
        """End the connections."""
        with anyio.CancelScope(shield=True):
            for made in self._made:
                await made.carrier.aclose()

    # --- carriers ----------------------------------------------------------------------------------------

    def reconfigure(self, context: RuntimeContext) -> None:
        """Close carriers of other settings, each after its last use."""
        self._in_force = context
        self._reconfigured.set()

    async def run(self) -> None:
        """Close carriers whose settings are no longer in force, until cancelled."""
        while True:
            await self._reconfigured.wait()
            self._reconfigured = anyio.Event()
            for made in tuple(self._made):
                await self._release(made)

    @asynccontextmanager
    async def carrier(self, chosen: carriers.ChosenCarrier | None) -> AsyncIterator[carriers.Carrier[Any]]:
        """The carrier of these settings. Raises `SymphonyError`: there is none."""
        if chosen is None:
            raise SymphonyError(carriers.host_failure("worker", "the settings name no other machine"))
        made = next((made for made in self._made if made.chosen == chosen), None)
        if made is None:
            log = self._state_dir / "logs" / f"{chosen.kind}{self._purpose}.log"
            carrier = chosen.make(
                carriers.CarrierContext(
                    local=self._local, environment=self._environment, state_dir=self._state_dir, log=log
                )
            )
            made = _InUse(chosen, carrier)
            self._made.append(made)
        made.uses += 1
        try:
            yield made.carrier
        finally:
            made.uses -= 1
            await self._release(made)

    async def _release(self, made: _InUse) -> None:
        if not made.uses and self._is_former(made.chosen) and made in self._made:
            self._made.remove(made)
            with anyio.CancelScope(shield=True):
                await made.carrier.aclose()

    def _is_former(self, chosen: carriers.ChosenCarrier) -> bool:
        return self._in_force is not None and chosen != self._in_force.carrier

    async def survey(self, context: RuntimeContext) -> carriers.Survey:
        """The present hosts. Raises `SymphonyError`: a cluster cannot be asked."""
        async with self.carrier(context.carrier) as carrier:
            return await carrier.survey()

    @asynccontextmanager
    async def visit(self, context: RuntimeContext, name: str) -> AsyncIterator[carriers.RemoteHost]:
        """The host with this name, outside of a run. Raises `SymphonyError`."""
        async with self.carrier(context.carrier) as carrier, carrier.visit(name) as host:
            yield host

    # --- runs that may be alive --------------------------------------------------------------------------

    async def recover(self) -> None:
        """Take over the runs whose end an earlier daemon did not record."""
        now_s = anyio.current_time()
        for run in await to_thread.run_sync(self._runs.all):
            self._open[run.run_id] = (run, now_s)
            _log.warning("remote_run_left", run_id=run.run_id, issue_id=run.issue_id, host=run.host)

    async def begin(self, run: carriers.RemoteRun) -> None:
        """Record that a run is about to begin."""
        self._open[run.run_id] = (run, None)
        await to_thread.run_sync(self._runs.add, run)

    async def finish(self, run_id: str) -> None:
        """Record that none of the processes of a run is alive."""
        await to_thread.run_sync(self._runs.remove, run_id)
        self._open.pop(run_id, None)

    async def fence_issue(self, context: RuntimeContext, issue_id: str) -> None:
        """Wait until no earlier run of the issue can be alive."""
        for run, since_s in tuple(self._open.values()):
            if run.issue_id == issue_id:
                known_s = anyio.current_time() if since_s is None else since_s
                await self.fence(context, run, since_s=known_s)

    async def fence(self, context: RuntimeContext, run: carriers.RemoteRun, *, since_s: float) -> None:
        """End a run that may be alive, or wait until its lease is over.

        `since_s` is a time after the last frame that its worker may have received.
        """
        over_s = since_s + (run.lease_ms + FENCE_EXTRA_MS) / 1_000
        # A machine with the same name at another carrier is a different machine.
        is_known = context.carrier is not None and run.carrier in {None, context.carrier.kind}
        while (left_s := over_s - anyio.current_time()) > 0 or (
            is_known and not await self._is_gone(context, run)
        ):
            try:
                if is_known and await self._end(context, run):
                    break
            except SymphonyError as error:
                _log.debug("remote_run_not_ended", run_id=run.run_id, reason=error.failure.line)
            await anyio.sleep(min(_FENCE_PAUSE_S, left_s) if left_s > 0 else _FENCE_PAUSE_S)
        _log.info("remote_run_fenced", run_id=run.run_id, issue_id=run.issue_id, host=run.host)
        await self.finish(run.run_id)

    async def _is_gone(self, context: RuntimeContext, run: carriers.RemoteRun) -> bool:
        async with self.carrier(context.carrier) as carrier:
            return await carrier.is_gone(run)

    async def _end(self, context: RuntimeContext, run: carriers.RemoteRun) -> bool:
        async with self.visit(context, run.host) as host:
            place = await self.find_place(context, host, timeout_ms=FENCE_ATTEMPT_MS)
            command = place.command("worker", "--end", run.run_id)
            done = await host.run(command, timeout_ms=FENCE_ATTEMPT_MS)
            return done.exit_code == 0

    # --- places ------------------------------------------------------------------------------------------

    def starts_on(self, host: carriers.RemoteHost) -> anyio.CapacityLimiter:
        """Limits how many workers start on a host at a time: each needs a second of processor time."""
        if host.name not in self._starts:
            self._starts[host.name] = anyio.CapacityLimiter(_STARTS_AT_ONCE)
        return self._starts[host.name]

    async def place_of(self, context: RuntimeContext, host: carriers.RemoteHost) -> HostPlace:
        """As `find_place`, with a cache."""
        return self._places.get(_key(host)) or await self.find_place(context, host)

    async def find_place(
        self,
        context: RuntimeContext,
        host: carriers.RemoteHost,
        *,
        timeout_ms: int = carriers.COMMAND_TIMEOUT_MS,
    ) -> HostPlace:
        """Make the directories of the workflow file on a host. Raises `SymphonyError`, with a hint."""
        place, _ = await self.look(context, host, timeout_ms=timeout_ms)
        return place

    async def look(
        self,
        context: RuntimeContext,
        host: carriers.RemoteHost,
        begun: BranchBase | None = None,
        *,
        timeout_ms: int = carriers.COMMAND_TIMEOUT_MS,
    ) -> tuple[HostPlace, dict[str, str]]:
        """As `find_place`; with `begun` also makes a bare repository and returns its refs."""
        self._places.pop(_key(host), None)
        further: list[str] = []
        if begun is not None:
            kind = "sha256" if is_sha256(begun.base) else "sha1"
            # Two runs may be the first ones at the same time; one of them makes the repository.
            draft = f"repository.{secrets.token_hex(4)}.tmp"
            init = f"git init --quiet --bare --template= --object-format={kind} {draft}"
            # Large packs are kept unchanged, and git does not search deltas of large files.
            settings = (
                *("receive.unpackLimit 1", "core.bigFileThreshold 1m", "core.hooksPath /dev/null"),
                "receive.fsckObjects false",
            )
            configure = " && ".join(f"git --git-dir={draft} config {each}" for each in settings)
            keep = f"{{ mv -T {draft} repository.git || rm -rf {draft}; }}"
            make = f"export GIT_DEFAULT_REF_FORMAT=files && {init} >&2 && {configure} && {keep}"
            git = "git --git-dir=repository.git"
            base = shlex.quote(f"refs/heads/{begun.base_branch}")
            further = [
                f"[ -d repository.git ] || {{ {make}; }} || exit {NO_ROOT}",
                f"{git} symbolic-ref HEAD {base} || exit {NO_ROOT}",
                f"{git} for-each-ref --format='%(objectname) %(refname)' || exit {NO_ROOT}",
            ]
        directory = directory_of(context.workflow)
        script = place_script(host, needs_git=begun is not None, directory=directory, further=further)
        place, rest = read_place(await run_script(host, script, timeout_ms=timeout_ms))
        refs = {name: commit for commit, _, name in (line.partition(" ") for line in rest)}
        self._places[_key(host)] = place
        return place, refs

    # --- workspaces --------------------------------------------------------------------------------------

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
        async with self.carrier(context.carrier) as carrier, carrier.visit(name) as host:
            place = await self.find_place(context, host)
            site = site_at(context.workflow, place, lease_ms=carrier.settings.lease_ms)
            done = await host.run(
                place.command("worker", word),
                stdin=msgspec.json.encode(request(site), enc_hook=str),
                timeout_ms=_CLEAN_TIMEOUT_MS,
            )
        try:
            answer = decode_answer(done.stdout.decode("utf-8", "replace"), kind)
        except ValueError as error:
            reason = context.redaction.line(str(error), carriers.MAX_SAID_CHARS)
            raise SymphonyError(
                carriers.host_failure(name, f"its answer cannot be used: {reason}")
            ) from error
        if answer is None:
            said = carriers.stderr_line(done) or f"exit code {done.exit_code}"
            text = f"its workspaces cannot be used: {said}"
            raise SymphonyError(context.redaction.failure(carriers.host_failure(name, text)))
        return checked(answer, context.redaction.line)


def _key(host: carriers.RemoteHost) -> tuple[str | None, ...]:
    """The facts that determine the paths on a host."""
    return host.name, host.node_id, host.remote_root, host.remote_python
