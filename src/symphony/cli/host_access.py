"""Asks the machines of `worker.ssh_hosts`, and prepares them; without a daemon."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

import symphony
from symphony.api.models import HostInUse
from symphony.cli.client import connect
from symphony.cli.documents import HostChecked, HostsChecked, HostsShown
from symphony.cli.failures import CommandError, ExitCode, printable
from symphony.cli.host_install import install
from symphony.cli.offline import open_context
from symphony.config import did_you_mean_one_of, read_secrets
from symphony.daemon.context import RuntimeContext
from symphony.daemon.hosts.remote_host import place_script, read_place
from symphony.daemon.hosts.ssh_hosts import SshHost, SshHosts
from symphony.domain import Failure, Selection, SymphonyError
from symphony.processes.local import LocalHost
from symphony.revision import version_text

MAX_SKEW_S: Final = 30.0
LOW_SPACE_MB: Final = 1_024


def show_hosts(workflow: Path) -> HostsShown:
    """The hosts, with their runs if a daemon runs.

    Raises:
        SymphonyError: the workflow is not usable, or the daemon does not answer.
    """
    client = connect(workflow, os.environ)
    if client is not None:
        return HostsShown(source="daemon", hosts=client.state(Selection(limit=0)).hosts)
    settings = open_context(workflow, os.environ).settings
    limit = settings.worker.max_concurrent_agents_per_host or settings.agent.max_concurrent_agents
    found = tuple(HostInUse(name=name, used=0, limit=limit) for name in settings.worker.ssh_hosts)
    return HostsShown(source="files", hosts=found)


def host_lines(found: HostsShown) -> Iterator[str]:
    """The hosts for people."""
    if not found.hosts:
        yield "All sessions run on this machine: WORKFLOW.md names no worker.ssh_hosts."
    for host in found.hosts:
        state = ""
        if host.rests_until is not None:
            state = f", rests until {host.rests_until} after {host.failures} failures: {host.failure}"
        elif host.failure is not None:
            state = f", the last run failed because of it: {host.failure}"
        yield printable(f"{host.name} {host.used} of {host.limit}{state}")
    if found.hosts and found.source == "files":
        yield "No daemon is running."


async def check_hosts(
    context: RuntimeContext, names: Sequence[str], environment: Mapping[str, str]
) -> HostsChecked:
    """Connect to the named hosts, or to all of them. Raises `CommandError` for a name that is none."""
    chosen = [_known(context, name) for name in names] or [*context.settings.worker.ssh_hosts]
    found: dict[str, HostChecked] = {}

    async def check(name: str, hosts: SshHosts) -> None:
        try:
            found[name] = await check_host(hosts.get(name, context.settings.worker), context)
        except SymphonyError as error:
            found[name] = _unusable(name, error.failure)

    async with (
        SshHosts(LocalHost(), read_secrets(environment).environment) as hosts,
        anyio.create_task_group() as tasks,
    ):
        for name in chosen:
            tasks.start_soon(check, name, hosts)
        # The connections stay until all are checked.
    return HostsChecked(hosts=tuple(found[name] for name in chosen))


def _unusable(name: str, failure: Failure) -> HostChecked:
    return HostChecked(name=name, ok=False, problem=failure.message, hint=failure.hint)


async def check_host(host: SshHost, context: RuntimeContext) -> HostChecked:
    """Whether a host can carry out runs.

    Raises:
        SymphonyError: `host_unavailable`, with a hint.
    """
    needs_git = context.settings.workspace.repo is not None
    further = (
        'PYTHONSAFEPATH=1 "$python" -m symphony --version || exit 92',
        "git --version 2>/dev/null || echo no git",
        "df -Pm . | tail -n 1 | awk '{print $4}'",
    )
    output = await host.script(place_script(host, needs_git=needs_git, further=further))
    place, rest = read_place(output, now_s=time.time())
    version, git, free = [*rest, "", "", ""][:3]
    free_mb = int(free) if free.isdigit() else None
    own, theirs = version_text(), version.rpartition(",")[2].strip().removeprefix("symphony ")
    problem = hint = None
    if symphony.__version__ not in version:
        problem, hint = f"it has {theirs}, and this is {own}", f"run `symphony hosts prepare {host.name}`"
    elif abs(place.clock_skew_s) > MAX_SKEW_S:
        problem, hint = f"its clock is off by {place.clock_skew_s:.0f} s", "set the clock there (NTP)"
    elif free_mb is not None and free_mb < LOW_SPACE_MB:
        problem, hint = f"{free_mb} MB are free there", "free space there"
    return HostChecked(
        name=host.name,
        ok=problem is None,
        version=theirs or None,
        git=git.removeprefix("git version ") or None,
        free_mb=free_mb,
        clock_skew_s=round(place.clock_skew_s, 1),
        root=place.root,
        problem=problem,
        hint=hint,
    )


def checked_lines(found: HostsChecked) -> Iterator[str]:
    """The result of a check for people."""
    if not found.hosts:
        yield "All sessions run on this machine: WORKFLOW.md names no worker.ssh_hosts."
    for host in found.hosts:
        if host.version is not None:
            facts = f"{host.version}, git {host.git}, {host.free_mb} MB free, clock {host.clock_skew_s:+g} s"
            yield printable(f"{host.name} {facts}")
        if host.problem is not None:
            yield printable(f"error: {host.name}: {host.problem.removeprefix(f'{host.name}: ')}")
            if host.hint is not None:
                yield printable(f"  hint: {host.hint}")


def prepare_hosts(
    workflow: Path, names: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Install this release on hosts, one after the other; each with its version there.

    Raises:
        SymphonyError: a host cannot be used, or `worker.ssh.python` names another installation.
    """
    context = open_context(workflow, environment)
    for name in [_known(context, name) for name in names]:
        yield name, anyio.run(_prepare, context, name, environment)


async def _prepare(context: RuntimeContext, name: str, environment: Mapping[str, str]) -> str:
    worker = context.settings.worker
    if worker.ssh.python is not None:
        raise CommandError.of(
            "worker.ssh.python names an installation, which is not changed from here",
            hint="leave the key out, or install this release there yourself",
            code=ExitCode.CONFIGURATION,
        )
    async with SshHosts(LocalHost(), read_secrets(environment).environment) as hosts:
        return await install(hosts.get(name, worker))


def _known(context: RuntimeContext, name: str) -> str:
    names = context.settings.worker.ssh_hosts
    if name not in names:
        message = f"worker.ssh_hosts does not name {name}"
        raise CommandError.of(message, hint=did_you_mean_one_of(name, names), code=ExitCode.CONFIGURATION)
    return name
