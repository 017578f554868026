"""A real Ray cluster: a head without slots for the daemon, and two nodes, each as if it were a machine.

    with ray_cluster(Path("/opt/rayenv/bin/python")) as cluster:
        subprocess.run([*cluster.inside, cluster.python, "driver.py"], env=cluster.environment)

The head is in a network namespace of its own, and each node in namespaces of networks, processes and mounts,
on a bridge of the head's. So nothing listens outside, a killed node is gone at once with all that ran on it,
and nodes can be frozen and cut off. It takes root and iproute2, starts within 20 s, and leaves nothing
behind, even when the tests are killed: everything ends with the pipe to it.
"""

import os
import secrets
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

__all__ = ["ADDRESS", "Machine", "RayCluster", "ray_cluster"]

SOURCES = Path(__file__).parents[2] / "src"
NET = "10.9.0"
ADDRESS = f"{NET}.1:6379"
SMALL = "--num-cpus=0 --object-store-memory=80000000 --disable-usage-stats --include-log-monitor=false"
HEAD = f"""
folder=$1 ray=$2 name=$3
ip link set lo up
ip link add bridge type bridge
ip address add {NET}.1/24 dev bridge
ip link set bridge up
start() {{
  rm -f $folder/ray_current_cluster $folder/$name/ray_current_cluster
  $ray start --head --node-ip-address={NET}.1 --port=6379 --node-name=$name --temp-dir=$folder/$name \\
    --include-dashboard=false {SMALL} >&2
}}
start || start && echo up # it gives up after 30 s, which are too few on a busy machine
while read -r once_more; do start || start && echo up; done
for process in /proc/[0-9]*; do
  number=${{process#/proc/}}
  [ $number != $$ ] && [ $process/ns/net -ef /proc/$$/ns/net ] && kill -KILL $number
done
rm -rf $folder 2>/dev/null || {{ sleep 1; rm -rf $folder; }}
"""
NODE = f"""
folder=$1 ray=$2 name=$3 address=$4 slots=$5
export HOME=$folder/$name/home
mkdir -p $HOME
echo here
read -r cable_is_there || exit
ip link set lo up
ip address add $address/24 dev eth0
ip link set eth0 up
$ray start --address={ADDRESS} --node-ip-address=$address --node-name=$name --temp-dir=$folder/$name \\
  --resources="{{\\"agent_slot\\": $slots}}" --labels=machine=$name {SMALL} >&2 && echo up
cat >/dev/null
"""
NODE_APART = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")


@dataclass(eq=False)
class Machine:
    """A node, or the head. `first` is the init of a node, and `mark` its namespace of processes."""

    name: str
    process: "subprocess.Popen[str]"
    log: Path
    first: int = 0
    mark: Path = Path()

    def begin(self) -> None:
        """Wait until the init of a node runs."""
        self.expect("here")
        self.first = int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text())
        self.mark = Path(f"/proc/{self.first}/ns/pid").readlink()

    def processes(self) -> list[int]:
        """Everything that runs on a node, agents too."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended meanwhile
                if (entry / "ns/pid").readlink() == self.mark:
                    found.append(int(entry.name))
        return found

    def freeze(self) -> None:
        """Nothing on a node goes on, until `thaw`; connections stay."""
        frozen: set[int] = set()
        while left := set(self.processes()) - frozen:
            self._send(left, signal.SIGSTOP)
            frozen |= left

    def thaw(self) -> None:
        self._send(self.processes(), signal.SIGCONT)

    def says(self, word: str) -> bool:
        """Whether the script there gets so far, within two minutes."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 120)
        return bool(ready) and self.process.stdout.readline() == f"{word}\n"

    def expect(self, word: str) -> None:
        """Raises AssertionError with the log where the script does not get so far."""
        assert self.says(word), self.log.read_text()

    def go_on(self) -> None:
        """Let the script there go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Kill what runs on a node, or let the script of the head end; wait for that."""
        with self.process:
            if self.first and self.process.poll() is None:
                self._send([self.first], signal.SIGKILL)
            assert self.process.stdin is not None
            self.process.stdin.close()

    def _send(self, processes: Iterable[int], number: signal.Signals) -> None:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)


@dataclass(eq=False)
class RayCluster:
    """What a client needs: `inside` begins commands on the machine of the head, `python` has Ray."""

    python: Path
    folder: Path
    auth_mode: str = "token"
    head: Machine = field(init=False)
    nodes: dict[str, Machine] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    address: str = ADDRESS

    @property
    def inside(self) -> Sequence[str]:
        return ("nsenter", f"--net=/proc/{self.head.process.pid}/ns/net", "--")

    @property
    def environment(self) -> dict[str, str]:
        """Of nodes and clients: the token, how long they wait, and the source of this very checkout."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "PYTHONPATH": str(SOURCES),
            "RAY_AUTH_MODE": self.auth_mode,
            "RAY_AUTH_TOKEN_PATH": str(self.folder / "token"),
            "RAY_TMPDIR": str(self.folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "3000",
            "RAY_health_check_failure_threshold": "3",
        }

    def run(self, *command: str | Path, environment: Mapping[str, str] = {}) -> str:
        """What a command prints that runs on the machine of the head.

        Raises:
            CalledProcessError: it failed; `stderr` says why.
        """
        changed = {**self.environment, **environment}
        done = subprocess.run(
            [*self.inside, *command], env=changed, check=True, capture_output=True, text=True, timeout=120
        )
        return done.stdout

    def start(self, *names: str, slots: int = 2) -> None:
        """Start nodes at once, with their names as label `machine`; one that was there is killed first."""
        for name in names:
            self._start(name, slots)
        for name in names:
            if not self.nodes[name].says("up"):  # seen once, on a busy machine
                self._start(name, slots)
                self.nodes[name].expect("up")

    def _start(self, name: str, slots: int) -> None:
        if name in self.nodes and self.nodes[name].process.returncode is None:
            self.kill(name)
        address = f"{NET}.{11 + list({**self.nodes, name: None}).index(name)}"
        machine = self.nodes[name] = self._begin(name, NODE_APART, NODE, address, str(slots))
        machine.begin()
        self.run(*f"ip link add {name} type veth peer name eth0 netns {machine.first}".split())
        self.run(*f"ip link set {name} master bridge up".split())
        machine.go_on()
        self.lost.discard(name)

    def kill(self, name: str) -> None:
        """The power of a node fails: silence at once. All its processes are gone and reaped then."""
        self.lost.add(name)
        self.run("ip", "link", "delete", name)
        self.nodes[name].end()

    def cut(self, name: str) -> None:
        """Pull the cable of a node; everything there goes on."""
        self.lost.add(name)
        self.run("ip", "link", "set", name, "down")

    def freeze(self, name: str) -> None:
        """Stop everything on a node. Connections stay; the cluster takes it for dead after some seconds."""
        self.lost.add(name)
        self.nodes[name].freeze()

    def vanish(self) -> None:
        """Kill Ray on the head, which keeps the state of the cluster. What calls Ray there lives on."""
        self.lost.update(self.nodes, {self.head.name})
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended meanwhile
                if f"{self.folder}/{self.head.name}/" in (entry / "cmdline").read_text():
                    os.kill(int(entry.name), signal.SIGKILL)

    def appear(self) -> None:
        """Start Ray on the head and on the nodes anew: another cluster at the same address."""
        self.head.go_on()
        self.head.expect("up")
        self.lost.discard(self.head.name)
        self.start(*self.nodes)

    def restore(self) -> None:
        """Start what was taken away."""
        if self.head.name in self.lost:
            self.appear()
        self.start(*self.lost)

    def __enter__(self) -> Self:
        self.head = self._begin("daemon", ("unshare", "--net"), HEAD)
        return self

    def __exit__(self, *error: object) -> None:
        for machine in (*self.nodes.values(), self.head):
            machine.end()

    def _begin(self, name: str, apart: Sequence[str], script: str, *arguments: str) -> Machine:
        """Start a machine in namespaces of its own. Its script ends when its standard input does."""
        told = [str(self.folder), str(self.python.with_name("ray")), name, *arguments]
        log = self.folder / f"{name}.log"
        with log.open("a") as written:
            process = subprocess.Popen(
                [*apart, "bash", "-c", script, "bash", *told],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=written,
                start_new_session=True,  # Ctrl-C is for the tests, which then close the pipe
                text=True,
            )
        return Machine(name, process, log)


@contextmanager
def ray_cluster(
    python: Path, names: Sequence[str] = ("one", "two"), *, slots: int = 2, auth_mode: str = "token"
) -> Iterator[RayCluster]:
    """A head and nodes with these names, of the Ray that this Python has; a skip where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("no Ray cluster: its network namespaces take root")
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets have to be short
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    with RayCluster(python, folder, auth_mode) as cluster:
        cluster.head.expect("up")
        cluster.start(*names, slots=slots)
        yield cluster
