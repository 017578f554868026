"""Copies this release of symphony to a host, over the connection: the host needs no network and no index.

The files of the program and of what it needs are taken from this installation and unpacked into a virtual
environment there. So the host must have the same version of Python on the same platform.
"""

import io
import re
import shlex
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import symphony
from symphony.daemon.carriers import RemoteHost, host_failure, said
from symphony.domain import SymphonyError
from symphony.revision import FILE_NAME, commit

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
        reason = said(done) or f"exit code {done.exit_code}"
        raise SymphonyError(host_failure(host.name, f"the installation failed: {reason}"))
    return done.stdout.decode("utf-8", "replace").strip().splitlines()[-1]
