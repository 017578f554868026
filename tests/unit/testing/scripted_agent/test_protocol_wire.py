import json
import threading

import pytest

from symphony.testing.scripted_agent.protocol import ClientGoneError, Faults, Wire


def test_a_split_line_is_cut_inside_a_character() -> None:
    written: list[bytes] = []
    Wire(written.append, Faults(split_lines=True)).result(1, {"text": "abc€def" * 5})
    assert len(written) == 3
    with pytest.raises(UnicodeDecodeError):
        written[1].decode()
    assert json.loads(b"".join(written)) == {"id": 1, "result": {"text": "abc€def" * 5}}


def test_whoever_waits_is_told_when_the_client_is_gone() -> None:
    wire = Wire(lambda _: None, Faults())
    wire.wake(gone=True)
    with pytest.raises(ClientGoneError):
        wire.ask("item/tool/call", {}, threading.Event())


def test_a_fault_that_ends_the_process_strikes_after_the_line() -> None:
    written: list[bytes] = []
    left: list[int] = []
    wire = Wire(written.append, Faults(exit_on="turn/started", exit_code=4), leave=left.append)
    wire.notify("turn/completed", {})
    assert left == []
    wire.notify("turn/started", {})
    assert left == [4]
    assert len(written) == 2
