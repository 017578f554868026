"""`symphony hosts`: the machines of `worker.ssh_hosts`, or the nodes of `worker.ray`."""

import io
import os
import re
import shlex
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import anyio
import click
from msgspec import structs

import symphony
from symphony.api.models import HostInUse
from symphony.cli.client import connect
from symphony.cli.commands.tracker import run_on_tracker
from symphony.cli.documents import HostChecked, HostsChecked, HostsShown
from symphony.cli.failures import CommandError, ExitCode, printable
from symphony.cli.main import LazyGroup
from symphony.cli.offline import open_context
from symphony.cli.options import json_option, print_json, workflow_option
from symphony.config import did_you_mean_one_of, read_secrets
from symphony.daemon.carriers import MAX_SAID_CHARS, HostFacts, RemoteHost, host_failure, stderr_line
from symphony.daemon.context import RuntimeContext, scheduler_settings
from symphony.daemon.hosts.hosts import Hosts
from symphony.daemon.hosts.places import place_script, read_number, read_place, run_script
from symphony.daemon.state_dir import locate
from symphony.domain import Failure, Selection, SymphonyError, one_line
from symphony.processes.local import LocalHost
from symphony.revision import FILE_NAME, commit, version_text


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog="""\b
Examples:
  symphony hosts
  symphony hosts --json | jq -r '.hosts[] | select(.used == .limit) | .name'
  symphony hosts check
  symphony hosts prepare build-1

Without a subcommand it shows the hosts of the running daemon, and connects to none.
""",
    short_help="Show, check and prepare the machines that run sessions.",
)
@json_option
@workflow_option
@click.pass_context
def hosts(ctx: click.Context, *, as_json: bool, workflow: Path) -> int:
    """Show the machines of worker.ssh_hosts or worker.ray: their runs, their slots, and whether they rest."""
    if ctx.invoked_subcommand is not None:
        return ExitCode.OK
    found = show_hosts(workflow)
    if as_json:
        print_json(found)
    else:
        for line in host_lines(found):
            click.echo(line)
    return ExitCode.OK


@hosts.command(
    epilog="""\b
Examples:
  symphony hosts check
  symphony hosts check build-1 --json | jq '.hosts[].problem'

Exit codes: 0 all hosts can be used, 1 at least one cannot, 3 the configuration is invalid.
"""
)
@click.argument("host", nargs=-1)
@json_option
@workflow_option
def check(host: tuple[str, ...], *, as_json: bool, workflow: Path) -> int:
    """Connect to each host, and show its release, git, free space and clock."""
    found = run_on_tracker(workflow, partial(check_hosts, names=host, environment=os.environ))
    if as_json:
        print_json(found)
    else:
        for line in checked_lines(found):
            click.echo(line)
    return ExitCode.OK if all(one.ok for one in found.hosts) else ExitCode.FAILURE


@hosts.command(
    epilog="""\b
Examples:
  symphony hosts prepare build-1
  symphony hosts prepare build-1 build-2

It copies this release and its dependencies over the connection into a virtual environment on the host. The
host needs no package index. It needs the same version of Python on the same platform, and git.
"""
)
@click.argument("host", nargs=-1, required=True)
@workflow_option
def prepare(host: tuple[str, ...], *, workflow: Path) -> int:
    """Install this release of symphony on hosts."""
    for name, version in prepare_hosts(workflow, host, os.environ):
        click.echo(f"{one_line(name, 300)} {one_line(version, 300)}")
    return ExitCode.OK


# --- asking hosts ----------------------------------------------------------------------------------------

MAX_SKEW_S: Final = 30.0
LOW_SPACE_MB: Final = 1_024
_NO_HOSTS: Final = "All sessions run on this machine: WORKFLOW.md names no others in `worker`."


def show_hosts(workflow: Path) -> HostsShown:
    """The hosts, with their runs if a daemon runs.

    Raises:
        SymphonyError: the workflow is not usable, or the daemon does not answer.
    """
    client = connect(workflow, os.environ)
    if client is not None:
        return HostsShown(source="daemon", hosts=client.state(Selection(limit=0)).hosts)
    settings = scheduler_settings(open_context(workflow, os.environ))
    limit = settings.max_agents_per_host or settings.max_concurrent_agents
    found = tuple(HostInUse(name=name, used=0, limit=limit) for name in settings.hosts)
    return HostsShown(source="files", hosts=found)


def host_lines(found: HostsShown) -> Iterator[str]:
    """The hosts for people."""
    if not found.hosts:
        yield _NO_HOSTS
    for host in found.hosts:
        machines = ", ".join(f"{count} on {name}" for name, count in sorted(host.machines.items()))
        state = f": {machines}" if machines else ""
        if host.rests_until is not None:
            state += f", rests until {host.rests_until} after {host.failures} failures: {host.failure}"
        elif host.failure is not None:
            state += f", the last run failed because of it: {host.failure}"
        yield printable(f"{host.name} {host.used} of {host.limit}{state}")
    if found.hosts and found.source == "files":
        yield "No daemon is running."


async def check_hosts(
    context: RuntimeContext, names: Sequence[str], environment: Mapping[str, str]
) -> HostsChecked:
    """Connect to the named hosts, or to all of them. Raises `CommandError` for a name that is none."""
    if context.carrier is None:
        return HostsChecked(hosts=())
    kind, found = context.carrier.kind, dict[str, HostChecked]()
    async with aclosing(_hosts(context, environment, "-check")) as hosts:
        try:
            survey = await hosts.survey(context)
        except SymphonyError as error:
            return HostsChecked(hosts=(_unusable(kind, error.failure),))
        chosen = _known(survey.hosts, names)

        async def check(name: str) -> None:
            try:
                async with hosts.visit(context, name) as host:
                    checked = await check_host(host, context)
            except SymphonyError as error:
                checked = _unusable(name, error.failure)
            facts = survey.hosts[name]
            labels = None if facts.labels is None else dict(facts.labels)
            found[name] = structs.replace(checked, slots=facts.slots, labels=labels)

        async with anyio.create_task_group() as tasks:
            for name in chosen:
                tasks.start_soon(check, name)
    cluster = () if survey.cluster is None else (_cluster(kind, survey.cluster),)
    return HostsChecked(hosts=(*cluster, *(found[name] for name in chosen)))


def _hosts(context: RuntimeContext, environment: Mapping[str, str], purpose: str) -> Hosts:
    secrets, state_dir = read_secrets(environment).environment, locate(context.workflow.path, environment)
    return Hosts(LocalHost(), secrets, state_dir, purpose=purpose)


def _cluster(name: str, facts: HostFacts) -> HostChecked:
    return HostChecked(
        name=name,
        ok=facts.problem is None,
        version=facts.release,
        slots=facts.slots,
        problem=facts.problem,
        hint=facts.hint,
    )


def _unusable(name: str, failure: Failure) -> HostChecked:
    return HostChecked(name=name, ok=False, problem=failure.message, hint=failure.hint)


async def check_host(host: RemoteHost, context: RuntimeContext) -> HostChecked:
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
    script = place_script(host, needs_git=needs_git, further=further)
    asked_s = int(time.time())
    place, rest = read_place(await run_script(host, script))
    # It may have read its clock at any moment meanwhile.
    clock_s = asked_s if place.clock_s is None else place.clock_s
    skew_s = round(clock_s - min(max(clock_s, asked_s), time.time()), 1)
    version, git, free = (one_line(line, MAX_SAID_CHARS) for line in [*rest, "", "", ""][:3])
    free_mb = read_number(free)
    own, theirs = version_text(), version.rpartition(",")[2].strip().removeprefix("symphony ")
    problem = hint = None
    if symphony.__version__ not in version:
        problem, hint = f"it has {theirs}, and this is {own}", host.install_hint
    elif abs(skew_s) > MAX_SKEW_S:
        problem, hint = f"its clock is off by {skew_s:.0f} s", "set the clock there (NTP)"
    elif free_mb is not None and free_mb < LOW_SPACE_MB:
        problem, hint = f"{free_mb} MB are free there", "free space there"
    return HostChecked(
        name=host.name,
        ok=problem is None,
        version=theirs or None,
        git=git.removeprefix("git version ") or None,
        free_mb=free_mb,
        clock_skew_s=skew_s,
        root=place.root,
        problem=problem,
        hint=hint,
    )


def checked_lines(found: HostsChecked) -> Iterator[str]:
    """The result of a check for people."""
    if not found.hosts:
        yield _NO_HOSTS
    for host in found.hosts:
        facts = [] if host.version is None else [host.version]
        if host.root is not None:
            facts += [f"git {host.git}", f"{host.free_mb} MB free", f"clock {host.clock_skew_s:+g} s"]
        if host.slots is not None:
            labels = "".join(f", {key}={value}" for key, value in sorted((host.labels or {}).items()))
            facts.append(f"{host.slots} slots{labels}")
        if facts:
            yield printable(f"{host.name} {', '.join(facts)}")
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
    chosen = context.carrier
    if chosen is not None and (found := chosen.carrier.unprepared(chosen.settings)) is not None:
        message, hint = found
        raise CommandError.of(message, hint=hint, code=ExitCode.CONFIGURATION)
    for name in _known(() if chosen is None else chosen.names, names):
        yield name, anyio.run(_prepare, context, name, environment)


async def _prepare(context: RuntimeContext, name: str, environment: Mapping[str, str]) -> str:
    async with (
        aclosing(_hosts(context, environment, "-prepare")) as hosts,
        hosts.visit(context, name) as host,
    ):
        return await install(host)


def _known(hosts: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """The hosts of these names, or all of them. Raises `CommandError` for a name that is none."""
    hosts = tuple(hosts)
    for name in names:
        if name not in hosts:
            hint = did_you_mean_one_of(name, hosts)
            raise CommandError.of(f"there is no host {name}", hint=hint, code=ExitCode.CONFIGURATION)
    return tuple(names) or hosts


# --- copying this release to a host ----------------------------------------------------------------------
#
# The files of the program and of what it needs are taken from this installation and unpacked into a virtual
# environment there, over the connection: the host needs no network and no index. So it must have the same
# version of Python on the same platform.

_PROGRAM: Final = "symphony-orchestrator"
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)([^;]*)(;.*)?")
_DIST_INFO: Final = frozenset({"METADATA", "WHEEL", "entry_points.txt", "INSTALLER"})
_TIMEOUT_MS: Final = 600_000
_NO_PYTHON: Final = 94


def needed_distributions() -> tuple[Distribution, ...]:
    """The installed packages that the program needs, without itself; extras are left out."""
    found: dict[str, Distribution] = {}
    names = [*_requirements(distribution(_PROGRAM))]
    while names:
        name = names.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # for another platform or version of Python
            continue
        names += _requirements(found[name])
    return tuple(found[name] for name in sorted(found))


def _requirements(package: Distribution) -> Iterator[str]:
    for line in package.requires or ():
        matched = _REQUIREMENT.match(line)
        if matched is not None and "extra" not in (matched[3] or ""):
            yield re.sub(r"[-_.]+", "-", matched[1]).lower()


def pack() -> bytes:
    """A tar archive of the program and of what it needs, relative to a `site-packages`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for package in needed_distributions():
            for file in package.files or ():
                path = Path(str(package.locate_file(file)))
                inside = ".." not in file.parts and "__pycache__" not in file.parts
                if inside and path.is_file():
                    archive.add(path, arcname=str(file), filter=_plain)
        own = distribution(_PROGRAM)
        for file in own.files or ():  # the entry points are in there
            if file.parent.name.endswith(".dist-info") and file.name in _DIST_INFO:
                archive.add(Path(str(own.locate_file(file))), arcname=str(file), filter=_plain)
        source = Path(symphony.__file__).parent
        for path in sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.add(path, arcname=f"symphony/{path.relative_to(source)}", filter=_plain)
        release = commit()
        if release is not None and not (source / FILE_NAME).exists():
            data = release.encode()
            entry = tarfile.TarInfo(f"symphony/{FILE_NAME}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


async def install(host: RemoteHost) -> str:
    """Install this release on a host; returns the version that it has then.

    Raises:
        SymphonyError: `host_unavailable`: it has no such Python, or no room.
    """
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    platform = sysconfig.get_platform()
    wanted = (sys.version_info[:2], platform)
    same = f"import sys, sysconfig; sys.exit((sys.version_info[:2], sysconfig.get_platform()) != {wanted!r})"
    choose = f'if "$one" -c {shlex.quote(same)} 2>/dev/null; then python="$one"; break; fi'
    site = "import sysconfig; print(sysconfig.get_path('purelib'))"
    root = host.remote_root
    script = "; ".join(
        (
            'set -e; umask 077; cd "$HOME"',
            f"mkdir -p {root}; cd {root}; python=",
            f"for one in python{version} python3 python; do {choose}; done",
            f'[ -n "$python" ] || exit {_NO_PYTHON}',
            'rm -rf venv.new; "$python" -m venv --without-pip venv.new',
            f'site="$(venv.new/bin/python -c {shlex.quote(site)})"',
            'tar -xzf - -C "$site"',
            "rm -rf venv.old; if [ -d venv ]; then mv venv venv.old; fi; mv venv.new venv",
            "venv/bin/python -m symphony --version",
        )
    )
    done = await host.run(f"exec sh -c {shlex.quote(script)}", stdin=pack(), timeout_ms=_TIMEOUT_MS)
    if done.exit_code == _NO_PYTHON:
        hint = f"install Python {version} there, or name one with this release in the settings of the carrier"
        raise SymphonyError(host_failure(host.name, f"it has no Python {version} for {platform}", hint=hint))
    if done.exit_code != 0:
        reason = stderr_line(done) or f"exit code {done.exit_code}"
        raise SymphonyError(host_failure(host.name, f"the installation failed: {reason}"))
    return done.stdout.decode("utf-8", "replace").strip().splitlines()[-1]
