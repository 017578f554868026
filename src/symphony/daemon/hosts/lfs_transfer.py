"""Carries Git LFS objects to a host and back, as tar files over the connection of the host.

Only the objects of the run's first commit are sent, and only those of the delivered commit are fetched.
"""

import shlex
import tarfile
from pathlib import Path
from typing import Final

from symphony import to_thread, workspaces
from symphony.daemon.carriers import RemoteHost, host_failure, stderr_line
from symphony.domain import SymphonyError, is_disk_full
from symphony.processes.base import Completed

_TIMEOUT_MS: Final = 600_000
_PIPE: Final = 'exec < "$1" > "$2"; shift 2; exec "$@"'
"""A shell program that runs its arguments from the third on, with the first two as input and output."""


async def send_objects(host: RemoteHost, repository: str, courier: workspaces.Courier, commit: str) -> None:
    """Send a bare repository on a host the LFS objects of a commit that are here but not there.

    Raises:
        SymphonyError: `host_unavailable`, with a hint.
        OSError: the tar file could not be written here.
    """
    wanted = await courier.lfs_objects(commit)
    if not wanted:
        return
    stores = await to_thread.run_sync(courier.lfs_stores)
    here = await to_thread.run_sync(workspaces.present_lfs_objects, stores, wanted)
    if not here:
        return
    where = shlex.quote(repository)
    found = await host.run(
        f"cd {where} && mkdir -p {workspaces.LFS_OBJECTS} && cd {workspaces.LFS_OBJECTS} && find . -type f"
    )
    there = {line.rpartition("/")[2] for line in found.stdout.decode("ascii", "replace").splitlines()}
    missing = here - there
    if not missing:
        return
    incoming = "lfs/incoming.$$"
    command = (
        f"cd {where} && mkdir {incoming} && trap 'rm -rf {incoming}' EXIT && tar -xf - -C {incoming}"
        f" && cp -Rlf {incoming}/. {workspaces.LFS_OBJECTS}/"
    )
    async with workspaces.temporary_directory(courier.staging, "lfs-") as directory:
        file = directory / "objects.tar"
        await to_thread.run_sync(workspaces.pack_lfs_objects, stores, missing, file)
        done = await _transfer(host, command, source=file)
    if done.exit_code != 0:
        reason = stderr_line(done)
        hint = "free space there" if is_disk_full(reason) else "see `symphony hosts check`"
        text = f"Git LFS objects cannot be sent: {reason or 'no reason given'}"
        raise SymphonyError(host_failure(host.name, text, hint=hint))


async def fetch_objects(
    host: RemoteHost, repository: str, courier: workspaces.Courier, commit: str
) -> str | None:
    """Fetch the LFS objects of a commit from a host; never raises.

    Returns:
        a warning if some could not be fetched.
    """
    try:
        wanted = await courier.lfs_objects(commit)
        if not wanted:
            return None
        stores = await to_thread.run_sync(courier.lfs_stores)
        missing = wanted - await to_thread.run_sync(workspaces.present_lfs_objects, stores, wanted)
        if not missing:
            return None
        async with workspaces.temporary_directory(courier.staging, "lfs-") as directory:
            names, file = directory / "names", directory / "objects.tar"
            lines = "".join(f"{workspaces.lfs_object_name(oid)}\n" for oid in sorted(missing))
            await to_thread.run_sync(names.write_text, lines)
            objects = f"{shlex.quote(repository)}/{workspaces.LFS_OBJECTS}"
            command = f"cd {objects} && tar -cf - --ignore-failed-read -T -"
            await _transfer(host, command, source=names, target=file)
            await to_thread.run_sync(workspaces.unpack_lfs_objects, file, directory, stores[0])
        missing -= await to_thread.run_sync(workspaces.present_lfs_objects, stores, missing)
    except (SymphonyError, OSError, tarfile.TarError) as error:
        return f"Git LFS objects cannot be fetched from {host.name}: {error}"
    return f"{len(missing)} Git LFS objects are not on {host.name}" if missing else None


async def _transfer(
    host: RemoteHost, command: str, *, source: Path, target: Path = Path("/dev/null")
) -> Completed:
    """Run a shell command on a host, with files of this machine as its input and output."""
    argv = ("sh", "-c", _PIPE, "sh", str(source), str(target), *host.argv(command))
    done = await host.local.run(argv, env=host.env, timeout_ms=_TIMEOUT_MS)
    if done.timed_out:
        raise SymphonyError(host_failure(host.name, f"no answer within {_TIMEOUT_MS / 1_000:g} s"))
    return done
