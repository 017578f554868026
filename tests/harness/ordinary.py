"""Who may not do everything: root reads and writes whatever its mode, so a mode takes nothing from it."""

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["ordinary_user"]

_GET_SECUREBITS, _SET_SECUREBITS, _NO_ROOT = 27, 28, 1
_VERSION_3: Final = 0x20080522
_ANY_MODE: Final = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Rights(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """A directory in which modes mean something to this thread, and to threads and programs it starts.

    Root stays root, as its Python may be nobody else's, and has no capability to pass over modes meanwhile.
    """
    place = Path(tempfile.mkdtemp(prefix="ordinary-"))
    try:
        with _without_rights():
            yield place
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", place], check=False)
        subprocess.run(["rm", "-rf", place], check=False)


@contextmanager
def _without_rights() -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: str, *arguments: object) -> int:
        answer = int(libc[function](*arguments))
        if answer < 0:
            raise OSError(ctypes.get_errno(), function)
        return answer

    header, rights = _Header(_VERSION_3, 0), (_Rights * 2)()
    call("capget", ctypes.byref(header), rights)
    before = rights[0].effective
    if os.geteuid() != 0 or not before & _ANY_MODE:
        yield
        return
    secured = call("prctl", _GET_SECUREBITS)
    call(
        "prctl", _SET_SECUREBITS, secured | _NO_ROOT
    )  # else a program that root starts has every right again
    rights[0].effective = before & ~_ANY_MODE
    call("capset", ctypes.byref(header), rights)
    try:
        yield
    finally:
        rights[0].effective = before
        call("capset", ctypes.byref(header), rights)
        call("prctl", _SET_SECUREBITS, secured)
