"""A Debian of its own, booted with systemd as its first process, in a container without a network.

The tree comes from `.ci/boot-tree`. What a boot writes goes into memory and is gone afterwards; this project
and its libraries are mounted into it, for Debian's Python.
"""

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Final

__all__ = ["boot", "missing"]

ROOT: Final = Path(__file__).parents[2]
_SCRIPT: Final = """
set -eu
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs "$PLACE"
mkdir "$PLACE/upper" "$PLACE/work" "$PLACE/root"
mount -t overlay overlay -o "lowerdir=$TREE,upperdir=$PLACE/upper,workdir=$PLACE/work" "$PLACE/root"
cp -a "$SKELETON/." "$PLACE/root/"
systemd-nspawn --quiet --register=no --keep-unit --private-network --machine="symphony-$$" \\
  --directory="$PLACE/root" --bind-ro="$LIBRARIES:/opt/symphony/deps" --bind-ro="$SOURCE:/opt/symphony/src" \\
  --bind-ro="$TESTS:/opt/symphony/tests" --boot --console=pipe </dev/null
cp "$PLACE/root/observed.jsonl" "$OBSERVED"
"""
_UNIT: Final = """
[Unit]
Description=What the test does inside
[Service]
Type=oneshot
TimeoutStartSec=infinity
StandardOutput=file:/driver.log
StandardError=file:/driver.log
ExecStart=/usr/bin/python3 /opt/symphony/tests/harness/boot_inside.py /observed.jsonl
[Install]
WantedBy=multi-user.target
"""


def missing(tree: Path) -> str | None:
    """Why this tree cannot be booted here; None where it can."""
    if os.geteuid() != 0:
        return "nothing can be booted: that takes root"
    if not (tree / "usr/bin" / f"python{sysconfig.get_python_version()}").exists():
        return "the tree to boot has another Python than these tests, which could not load their libraries"
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        return "nothing can be booted: no mount namespace of its own"
    return None


def boot(place: Path, *, timeout_s: float) -> dict[str, Any]:
    """Boot once, and return what was observed inside, by name; `console` is what the boot itself said."""
    skeleton, memory = place / "skeleton", place / "memory"
    memory.mkdir()
    _lay_out(skeleton)
    environment = {
        "PATH": os.environ["PATH"],
        "PLACE": str(memory),
        "TREE": os.environ["SYMPHONY_BOOT_TREE"],
        "SKELETON": str(skeleton),
        "LIBRARIES": sysconfig.get_path("purelib"),
        "SOURCE": str(ROOT / "src"),
        "TESTS": str(ROOT / "tests"),
        "OBSERVED": str(place / "observed.jsonl"),
        "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "yes",
    }
    argv = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", _SCRIPT]
    done = subprocess.run(
        argv,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_s,
    )
    observed = place / "observed.jsonl"
    lines = observed.read_text(encoding="utf-8").splitlines() if observed.exists() else []
    found: dict[str, Any] = dict(json.loads(line) for line in lines)
    return {**found, "console": done.stdout + done.stderr}


def _lay_out(root: Path) -> None:
    """What is laid over the tree: a virtual environment of Debian's Python, and the unit that does it all."""
    home = root / "opt/symphony"
    packages = home / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "mounted.pth").write_text("/opt/symphony/src\n/opt/symphony/deps\n", encoding="utf-8")
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to("/usr/bin/python3")
    (home / "pyvenv.cfg").write_text(
        "home = /usr/bin\ninclude-system-site-packages = false\n", encoding="utf-8"
    )
    for name in ("deps", "src", "tests"):
        (home / name).mkdir()
    units = root / "etc/systemd/system"
    (units / "multi-user.target.wants").mkdir(parents=True)
    (units / "driver.service").write_text(_UNIT, encoding="utf-8")
    (units / "multi-user.target.wants/driver.service").symlink_to("../driver.service")
