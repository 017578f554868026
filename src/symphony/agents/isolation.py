"""What holds an agent's processes inside its workspace where the agent has no sandbox of its own (DESIGN 9).

`workspace.isolation: bwrap` puts bubblewrap before the agent's command. Pure: only the command is made here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Isolation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How closed: the workspace and `writable` can be written to, all else is read-only.

    Attributes:
        program: bubblewrap, by name or path.
        network: whether the agent reaches the network, the loopback interface included.
        writable: further directories that the agent writes to, such as its home.
    """

    program: str = "bwrap"
    network: bool = True
    writable: tuple[Path, ...] = ()

    def enclose(self, argv: Sequence[str], *, cwd: Path) -> tuple[str, ...]:
        """The command that runs `argv` inside."""
        writable = [word for path in (cwd, *self.writable) for word in ("--bind", str(path), str(path))]
        net = [] if self.network else ["--unshare-net"]
        base = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
        return (
            *(self.program, *base, *writable, *net, "--unshare-pid", "--die-with-parent"),
            *("--chdir", str(cwd), "--", *argv),
        )
