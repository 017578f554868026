"""A worker program on a host that speaks the frames, and says what the test wrote into `script.py` beside it.

It is given in place of Python to `worker.ssh.python`; everything but a run is left to the real one.
"""

import sys
from pathlib import Path

from harness.shell import word

__all__ = ["hostile_python"]

_PROGRAM = """
import subprocess, sys
from pathlib import Path
from dataclasses import replace
import symphony
from symphony.domain import *
from symphony.scheduler import *
from symphony.daemon.frames import *
from symphony.revision import commit

decoder, encoder, out = FrameDecoder(), FrameEncoder(), sys.stdout.buffer

def send(frame):
    out.write(encoder.encode(frame))
    out.flush()

def take():
    while (frame := decoder.take()) is None:
        data = sys.stdin.buffer.raw.read(65536)
        if not data:
            sys.exit()
        decoder.feed(data)
    return frame

def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()

send(Hello(version=symphony.__version__, commit=commit()))
start = take()
command, site = start.command, start.site
repository = site.text.decode().split('"repo":"')[1].split('"')[0]
exec(Path({script!r}).read_text())
"""


def hostile_python(folder: Path, script: str) -> str:
    """The path of a program that runs `script` in place of each run's worker."""
    folder.mkdir(exist_ok=True)
    program, body, python = folder / "worker.py", folder / "script.py", folder / "python"
    body.write_text(script)
    program.write_text(_PROGRAM.format(script=str(body)))
    python.write_text(
        f'#!/bin/sh\ncase "$*" in\n*"worker --stdio") exec {word(sys.executable)} {word(program)} ;;\n'
        f'*) exec {word(sys.executable)} "$@" ;;\nesac\n'
    )
    python.chmod(0o755)
    return str(python)
