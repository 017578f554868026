import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from harness.scheduling import make_failure, make_settings
from harness.service_manager import Manager, managing
from symphony.daemon.sd_notify import Notifier, status_line, without_service_manager
from symphony.scheduler import Drain, initial_state

IDLE = initial_state(make_settings(), epoch="e")
PAUSED = IDLE.changed(paused=True)


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, short_path: Path) -> Iterator[Manager]:
    address = str(short_path / "notify") if request.param == "path" else f"@symphony-{secrets.token_hex(8)}"
    with managing(address) as listening:
        yield listening


def test_the_first_turn_makes_it_ready_and_each_start_asks_for_time(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    notifier.starting("checking")
    notifier.looped(IDLE)
    assert manager.waiting() == [
        {"EXTEND_TIMEOUT_USEC": "180000000", "STATUS": "starting: checking"},
        {"READY": "1", "WATCHDOG": "1", "STATUS": "0 running, 0 retrying, 0 blocked"},
    ]


def test_the_watchdog_is_fed_at_most_at_a_quarter_of_its_time_unless_there_is_news(manager: Manager) -> None:
    clock = Clock()
    notifier = Notifier(manager.address, watchdog_ms=8_000, now_ms=clock)
    notifier.looped(IDLE)
    for clock.now in (1, 1_999):
        notifier.looped(IDLE)
    assert len(manager.waiting()) == 1
    notifier.looped(PAUSED)
    assert [said["STATUS"] for said in manager.waiting()] == ["0 running, 0 retrying, 0 blocked; paused"]
    clock.now = 4_000
    notifier.looped(PAUSED)
    assert manager.waiting() == [{"WATCHDOG": "1", "STATUS": "0 running, 0 retrying, 0 blocked; paused"}]


def test_a_reload_is_told_with_its_moment_and_its_end(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    notifier.reloading()  # it is not ready yet, so there is nothing to reload
    notifier.reloaded()
    assert manager.waiting() == []
    notifier.looped(IDLE)
    notifier.reloading()
    notifier.reloaded()
    _, began, ended = manager.waiting()
    assert began["RELOADING"] == "1"
    assert int(began["MONOTONIC_USEC"]) > 0
    assert ended == {"READY": "1"}


def test_an_end_is_told_once_and_each_turn_of_a_drain_asks_for_more_time(manager: Manager) -> None:
    clock = Clock()
    notifier = Notifier(manager.address, now_ms=clock)
    notifier.looped(IDLE)
    notifier.stopping()
    notifier.stopping()
    notifier.reloading()
    notifier.reloaded()
    notifier.looped(IDLE.changed(drain=Drain.DRAINING))
    assert manager.waiting()[1:] == [
        {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "60000000"},
        {
            "WATCHDOG": "1",
            "EXTEND_TIMEOUT_USEC": "60000000",
            "STATUS": "0 running, 0 retrying, 0 blocked; draining",
        },
    ]


def test_what_is_odd_is_in_the_status_but_not_the_text_of_a_failure() -> None:
    held = IDLE.changed(config_error=make_failure(message="the token is s3cret"))
    assert (
        status_line(held)
        == "0 running, 0 retrying, 0 blocked; the workflow is not valid, and nothing new starts"
    )


@pytest.mark.parametrize(
    "address", ["/nowhere/at/all", "relative", "vsock:2:1234", "/" + "x" * 300, "@a\0b", "/a\0b"]
)
def test_a_socket_that_cannot_be_used_costs_one_line(address: str) -> None:
    clock = Clock()
    notifier = Notifier(address, now_ms=clock)
    with capture_logs() as logs:
        notifier.starting("checking")
        for clock.now in range(0, 100_000, 20_000):
            notifier.looped(IDLE)
        notifier.reloading()
        notifier.reloaded()
        notifier.stopping()
    assert [line["event"] for line in logs] == ["service_manager_not_told"]


def test_what_did_not_arrive_is_said_again_when_somebody_listens(tmp_path: Path) -> None:
    clock = Clock()
    notifier = Notifier(str(tmp_path / "late"), now_ms=clock)
    notifier.looped(IDLE)
    notifier.reloading()
    with managing(tmp_path / "late") as manager:
        clock.now = 20_000
        notifier.looped(IDLE)
        assert list(manager.read()) == ["RELOADING", "MONOTONIC_USEC", "WATCHDOG", "STATUS"]
        notifier.reloaded()
        assert manager.read() == {"READY": "1"}


def test_a_manager_that_does_not_read_is_not_waited_for_and_not_complained_about(tmp_path: Path) -> None:
    clock = Clock()
    with managing(tmp_path / "busy") as manager, capture_logs() as logs:
        notifier = Notifier(manager.address, now_ms=clock)
        for clock.now in range(0, 100_000_000, 20_000):
            notifier.looped(IDLE)
        notifier.stopping()
        assert len(manager.waiting()) < 4_000
        clock.now += 20_000
        notifier.looped(IDLE)
        assert manager.read()["STOPPING"] == "1"
    assert logs == []


def test_nothing_is_said_without_a_manager() -> None:
    notifier = Notifier.from_environment({})
    notifier.starting("checking")
    notifier.looped(IDLE)
    notifier.reloading()
    notifier.stopping()
    assert notifier.watchdog_ms is None


@pytest.mark.parametrize(
    ("usec", "pid", "expected"),
    [
        ("30000000", None, 30_000),
        ("30000000", "7", 30_000),
        ("30000000", "8", None),
        ("0", None, None),
        ("soon", None, None),
        ("٣", None, None),
        ("-5", None, None),
    ],
)
def test_the_environment_says_how_long_the_watchdog_waits_and_for_whom(
    usec: str, pid: str | None, expected: int | None
) -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": usec, **({"WATCHDOG_PID": pid} if pid else {})}
    assert Notifier.from_environment(environment, pid=7).watchdog_ms == expected


def test_of_a_process_it_means_this_one() -> None:
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}
    assert Notifier.from_environment(environment).watchdog_ms == 2_000
    assert Notifier.from_environment({"WATCHDOG_USEC": "2000000"}).watchdog_ms is None


def test_children_get_nothing_by_which_to_speak_to_the_manager() -> None:
    handed = {
        "NOTIFY_SOCKET": "/x",
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_PID": "1",
    }
    assert without_service_manager({**handed, "LISTEN_FDNAMES": "a", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.asyncio
async def test_the_loop_is_nudged_until_nobody_wants_it_any_more() -> None:
    nudged = anyio.Event()
    turns: list[None] = []

    def post(turn: None) -> None:
        turns.append(turn)
        if len(turns) == 3:
            nudged.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Notifier("/x", watchdog_ms=4).keep_alive, post)
        with anyio.fail_after(60):
            await nudged.wait()
        tasks.cancel_scope.cancel()
    await Notifier().keep_alive(post)  # nobody to speak to: it ends at once


def test_the_socket_of_each_word_is_closed(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    class Kept(socket.socket):
        def __init__(self, family: int, kind: int) -> None:
            super().__init__(family, kind)
            made.append(self)

    monkeypatch.setattr(socket, "socket", Kept)
    Notifier(manager.address).looped(IDLE)
    assert [one.fileno() for one in made] == [-1]
