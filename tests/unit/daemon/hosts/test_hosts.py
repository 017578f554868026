"""Carriers by former settings, and the runs whose end is not known."""

import os
from contextlib import aclosing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import pytest
from anyio import to_thread
from structlog.testing import capture_logs

from symphony.config import SshSettings, WorkerSettings
from symphony.daemon.carriers import ChosenCarrier, RemoteRun, choose_carrier
from symphony.daemon.context import RuntimeContext
from symphony.daemon.hosts.hosts import Hosts, RemoteRuns
from symphony.processes.local import LocalHost


@pytest.mark.asyncio
async def test_a_connection_by_former_settings_ends_with_its_last_use(tmp_path: Path) -> None:
    """In place of ssh: the master connection is a file that has its process id."""
    client = tmp_path / "ssh"
    client.write_text(
        '#!/bin/sh\nfor word do [ "$before" = -S ] && socket=$word; before=$word; done\n'
        'echo $$ > "$socket.new"; mv "$socket.new" "$socket"; exec sleep 600\n'
    )
    client.chmod(0o755)
    former, present = await to_thread.run_sync(
        lambda: [
            choose_carrier(
                WorkerSettings(ssh_hosts=("h",), ssh=SshSettings(command=str(client), lease_ms=lease_ms))
            )
            for lease_ms in (1, 2)
        ]
    )

    async def connected(hosts: Hosts, chosen: ChosenCarrier | None) -> int:
        """The process of the master connection."""
        async with hosts.carrier(chosen) as carrier, carrier.visit("h") as host:
            await host.connect()
            socket = host.client[host.client.index("-S") + 1]
            return int(await anyio.Path(socket).read_text())

    def by(chosen: ChosenCarrier | None) -> RuntimeContext:
        return cast("RuntimeContext", SimpleNamespace(carrier=chosen))

    async with aclosing(Hosts(LocalHost(), {"PATH": os.defpath}, tmp_path)) as hosts:
        hosts.reconfigure(by(former))
        first = await connected(hosts, former)
        os.kill(first, 0)
        async with hosts.carrier(former):
            hosts.reconfigure(by(present))
            assert await connected(hosts, former) == first, "it is in use"
            os.kill(first, 0)
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        second = await connected(hosts, present)
        third = await connected(hosts, former)
        with pytest.raises(ProcessLookupError):
            os.kill(third, 0)
        os.kill(second, 0)
        hosts.reconfigure(by(None))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hosts.run)
            with anyio.fail_after(30), suppress(ProcessLookupError):
                while True:
                    os.kill(second, 0)
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


def test_runs_without_a_known_end_survive_the_daemon(tmp_path: Path) -> None:
    run = RemoteRun(run_id="d1-4", issue_id="1", host="h", lease_ms=30_000)
    runs = RemoteRuns(tmp_path)
    assert runs.all() == ()
    runs.add(run)
    (tmp_path / "remote-runs" / "d1-5.json").write_text("{")
    (tmp_path / "remote-runs" / "d1-6.tmp").write_text("{}")
    with capture_logs() as logs:
        assert RemoteRuns(tmp_path).all() == (run,)
    assert [(log["event"], Path(log["path"]).name) for log in logs] == [
        ("remote_run_unreadable", "d1-5.json")
    ]
    runs.remove("d1-4")
    runs.remove("d1-4")
    assert RemoteRuns(tmp_path).all() == ()
