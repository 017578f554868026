import json
import os
import socket
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from symphony.daemon import http_server
from symphony.daemon.http_server import CONTROL_FILE, open_listeners
from symphony.daemon.state_dir import StateDirectory
from symphony.domain import Blame, Category, SymphonyError

HERE = "127.0.0.1"


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    """Sockets are made in it."""
    return short_path


@pytest.fixture
def state_dir(tmp_path: Path) -> StateDirectory:
    directory = StateDirectory(tmp_path / "state")
    directory.create()
    return directory


def note(state_dir: StateDirectory) -> dict[str, object]:
    return dict(json.loads((state_dir.path / CONTROL_FILE).read_text()))


def socket_of(state_dir: StateDirectory) -> Path:
    return Path(str(note(state_dir)["socket"]))


def private(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True)
    return path


# --- the control socket ---


def test_only_its_owner_may_use_the_control_socket_and_a_note_tells_where_it_is(
    state_dir: StateDirectory,
) -> None:
    with open_listeners(state_dir, host=HERE, port=None, environment={}) as doors:
        path = socket_of(state_dir)
        assert path == state_dir.path / "control.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        told = {"socket": str(path), "host": None, "port": None, "pid": os.getpid(), "workflow": None}
        assert note(state_dir) == told
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert doors.port is None
    assert not path.exists()
    assert not (state_dir.path / CONTROL_FILE).exists()


def test_the_runtime_directory_is_preferred_and_two_daemons_do_not_meet_there(tmp_path: Path) -> None:
    environment = {"XDG_RUNTIME_DIR": str(private(tmp_path / "run"))}
    first, second = StateDirectory(tmp_path / "a" / "state"), StateDirectory(tmp_path / "b" / "state")
    for one in (first, second):
        one.create()
    with (
        open_listeners(first, host=HERE, port=None, environment=environment),
        open_listeners(second, host=HERE, port=None, environment=environment),
    ):
        paths = {socket_of(first), socket_of(second)}
        assert len(paths) == 2
        assert {path.parent for path in paths} == {tmp_path / "run" / "symphony"}
    assert list((tmp_path / "run" / "symphony").iterdir()) == []


def _open_to_all(path: Path) -> Mapping[str, str]:
    private(path).chmod(0o755)
    return {"XDG_RUNTIME_DIR": str(path)}


def _absent(path: Path) -> Mapping[str, str]:
    return {"XDG_RUNTIME_DIR": str(path)}


def _relative(_: Path) -> Mapping[str, str]:
    return {"XDG_RUNTIME_DIR": "run"}


def _link(path: Path) -> Mapping[str, str]:
    path.symlink_to(private(path.parent / "real"))
    return {"XDG_RUNTIME_DIR": str(path)}


def _taken(path: Path) -> Mapping[str, str]:
    private(path)
    (path / "symphony").write_text("a file")
    return {"XDG_RUNTIME_DIR": str(path)}


@pytest.mark.parametrize("make", [_open_to_all, _absent, _relative, _link, _taken])
def test_a_runtime_directory_that_is_not_private_is_not_used(
    state_dir: StateDirectory, tmp_path: Path, make: Callable[[Path], Mapping[str, str]]
) -> None:
    environment = make(tmp_path / "run")
    with open_listeners(state_dir, host=HERE, port=None, environment=environment):
        assert socket_of(state_dir) == state_dir.path / "control.sock"


def test_a_path_that_is_too_long_for_the_system_gets_a_short_one_that_goes_with_the_daemon(
    tmp_path: Path,
) -> None:
    state_dir = StateDirectory(tmp_path / ("long-" * 20) / "state")
    state_dir.create()
    with open_listeners(state_dir, host=HERE, port=None, environment={}):
        path = socket_of(state_dir)
        assert len(os.fsencode(path)) < 108
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.parent.exists()


def test_what_a_killed_daemon_left_is_replaced(tmp_path: Path) -> None:
    for name in ("state", "long-" * 20):
        state_dir = StateDirectory(tmp_path / name)
        state_dir.create()
        dead = open_listeners(state_dir, host=HERE, port=None, environment={})
        dead.__enter__()  # and never leaves
        left = socket_of(state_dir)
        with open_listeners(state_dir, host=HERE, port=None, environment={}):
            path = socket_of(state_dir)
            assert path == left or not left.exists()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
        assert not path.exists()
        dead.__exit__(None, None, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"socket": 3}', '{"socket": "/etc/passwd"}', "{}"])
def test_a_damaged_note_is_no_reason_to_remove_anything(state_dir: StateDirectory, text: str) -> None:
    (state_dir.path / CONTROL_FILE).write_text(text)
    with open_listeners(state_dir, host=HERE, port=None, environment={}):
        assert socket_of(state_dir).is_socket()
    assert Path("/etc/passwd").exists()


def test_without_any_place_for_a_socket_the_daemon_works_and_says_so(
    state_dir: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_MAX_PATH_BYTES", 3)
    with capture_logs() as logs, open_listeners(state_dir, host=HERE, port=None, environment={}) as doors:
        assert doors.control is None
        assert note(state_dir)["socket"] is None
    assert [line["event"] for line in logs] == ["control_socket_failed"]


def test_a_file_system_without_sockets_is_passed_over(
    state_dir: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = socket.socket.bind

    def picky(self: socket.socket, address: object) -> None:
        if str(address).startswith(str(state_dir.path)):
            raise PermissionError(1, "Operation not permitted")
        bind(self, address)  # type: ignore[arg-type] # passed on as it came

    monkeypatch.setattr(socket, "socket", type("Picky", (socket.socket,), {"bind": picky}))
    with open_listeners(state_dir, host=HERE, port=None, environment={}):
        path = socket_of(state_dir)
        assert path.parent.name.startswith("symphony-")
    assert not path.parent.exists()


def test_a_directory_that_others_may_enter_holds_no_socket(tmp_path: Path) -> None:
    state_dir = StateDirectory(tmp_path / "state")
    state_dir.create()
    state_dir.path.chmod(0o755)
    with open_listeners(state_dir, host=HERE, port=None, environment={}):
        assert socket_of(state_dir).parent != state_dir.path


def test_a_note_that_cannot_be_written_costs_the_note(state_dir: StateDirectory) -> None:
    (state_dir.path / CONTROL_FILE).mkdir()
    with capture_logs() as logs, open_listeners(state_dir, host=HERE, port=None, environment={}) as doors:
        assert doors.control is not None
    assert [line["event"] for line in logs] == ["control_socket_failed"]


# --- the port ---


@pytest.mark.conformance("H-1")
def test_a_free_port_is_found_and_told(state_dir: StateDirectory) -> None:
    with open_listeners(state_dir, host=HERE, port=0, environment={}) as doors:
        assert doors.port
        assert (note(state_dir)["host"], note(state_dir)["port"]) == (HERE, doors.port)


@pytest.mark.parametrize("host", ["a..b", "x" * 300])
def test_a_name_that_no_machine_can_have_is_one_clear_failure(state_dir: StateDirectory, host: str) -> None:
    with (
        pytest.raises(SymphonyError) as refused,
        open_listeners(state_dir, host=host, port=0, environment={}),
    ):
        pass
    failure = refused.value.failure
    assert failure.category is Category.HTTP_SERVER
    assert failure.message == f"cannot listen on {host} port 0: no machine can have this name"


@pytest.mark.conformance("H-1")
def test_a_port_that_is_taken_is_one_clear_failure_and_leaves_nothing(state_dir: StateDirectory) -> None:
    with socket.socket() as other:
        other.bind((HERE, 0))
        other.listen()
        port = other.getsockname()[1]
        with (
            pytest.raises(SymphonyError) as refused,
            open_listeners(state_dir, host=HERE, port=port, environment={}),
        ):
            pass
    failure = refused.value.failure
    assert (failure.category, failure.blame) == (Category.HTTP_SERVER, Blame.HOST)
    assert failure.message == f"cannot listen on {HERE} port {port}: Address already in use"
    assert "--port" in str(failure.hint)
    assert not (state_dir.path / CONTROL_FILE).exists()


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid", "::zz"])
def test_an_address_that_is_not_of_this_machine(state_dir: StateDirectory, host: str) -> None:
    with pytest.raises(SymphonyError), open_listeners(state_dir, host=host, port=0, environment={}):
        pass


def test_both_families_of_addresses(state_dir: StateDirectory) -> None:
    with open_listeners(state_dir, host="::1", port=0, environment={}) as doors:
        assert doors.tcp is not None
        assert doors.tcp.family is socket.AF_INET6
