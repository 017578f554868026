"""The directory for the sockets of ssh: private, locked while it is used, and removed after a kill."""

import os
import subprocess
import sys
from pathlib import Path

from symphony.daemon.hosts.socket_directory import SocketDirectory

KILLED = """
import os, sys
from pathlib import Path
from symphony.daemon.hosts.socket_directory import SocketDirectory
made = SocketDirectory(Path(sys.argv[1]))
made.create()
os.kill(os.getpid(), 9)
"""


def age(path: Path) -> None:
    """Let a directory look as if it was made long ago."""
    os.utime(path, (1, 1))


def test_the_directory_is_private_and_goes_with_its_user(tmp_path: Path) -> None:
    made = SocketDirectory(tmp_path)
    made.create()
    made.create()
    assert made.path.stat().st_mode & 0o777 == 0o700
    (made.path / "0").touch()
    made.remove()
    assert not list(tmp_path.iterdir())
    made.create()
    made.path.rmdir()
    made.create()
    assert made.path.is_dir(), "made anew if something removed it"


def test_what_a_killed_daemon_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    used = SocketDirectory(tmp_path)
    used.create()
    age(used.path)
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    (killed,) = set(tmp_path.iterdir()) - {used.path}
    link = tmp_path / "symphony-ssh-link"
    link.symlink_to(killed)
    young = SocketDirectory(tmp_path)
    young.create()
    assert killed.is_dir(), "it may be about to be locked"
    age(killed)
    last = SocketDirectory(tmp_path)
    last.create()
    assert set(tmp_path.iterdir()) == {used.path, young.path, last.path, link}


def test_a_socket_in_it_has_a_short_path() -> None:
    assert len(os.fsencode(SocketDirectory().path / "1000.ZZZZZZZZZZZZZZZZ")) < 108
