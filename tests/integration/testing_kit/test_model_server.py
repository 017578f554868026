import gzip
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from kit.model_server import (
    Answer,
    Cut,
    Hang,
    ModelServer,
    Scenario,
    Text,
    rate_limit_headers,
    rate_limited,
    say,
    shell,
)

SCENARIOS: dict[str, Scenario] = {
    "work": (shell("true"), say("Done.")),
    "slow": (Answer(blocks=(Text(text="x" * 40),), delta_ms=1, headers={"x-own": "1"}),),
    "limited": (rate_limited(),),
    "hang": (Hang(),),
    "hang-later": (Hang(after_start=True),),
    "cut": (Cut(),),
}
Reply = tuple[int, dict[str, str], bytes]


def body(text: str, results: int = 0) -> dict[str, Any]:
    outputs = [{"type": "function_call_output"}] * results
    return {"input": [{"type": "message", "role": "user", "content": [{"text": text}]}, *outputs]}


def ask(
    server: ModelServer,
    content: object,
    *,
    method: str = "POST",
    path: str = "/responses",
    raw: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    split = urlsplit(server.base_url)
    connection = http.client.HTTPConnection(split.netloc, timeout=20)
    try:
        data = json.dumps(content).encode() if raw is None else raw
        connection.request(method, split.path + path, data, headers or {})
        reply = connection.getresponse()
        found = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, found, reply.read()
    finally:
        connection.close()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(SCENARIOS, headers=rate_limit_headers(primary_used_percent=5)) as running:
        yield running


def test_a_marker_chooses_the_scenario_and_the_tool_results_the_step(server: ModelServer) -> None:
    first = ask(server, body("do [[work]]"), headers={"X-Mine": "1"})
    assert b'"exec_command"' in first[2]
    assert b"Done." in ask(server, body("do [[work]]", 1))[2]
    assert b"nothing to do" in ask(server, body("do [[work]]", 2))[2]
    recorded = server.requests
    assert [(each.scenario, each.step) for each in recorded] == [("work", 0), ("work", 1), ("work", 2)]
    assert recorded[0].headers["x-mine"] == "1"
    assert recorded[0].body == body("do [[work]]")
    assert recorded[0].path == "/v1/responses"


@pytest.mark.parametrize("text", ["", "no marker", "[[unknown]]"])
def test_without_a_known_marker_the_answer_is_harmless(server: ModelServer, text: str) -> None:
    status, headers, data = ask(server, body(text))
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert headers["x-codex-primary-used-percent"] == "5"
    assert b"nothing to do" in data
    assert server.requests[-1].scenario is None


def test_the_last_known_marker_counts(server: ModelServer) -> None:
    ask(server, body("[[work]] [[cut]] [[unknown]]"))
    assert server.requests[-1].scenario == "cut"


def test_an_error_has_status_headers_and_a_body(server: ModelServer) -> None:
    status, headers, data = ask(server, body("[[limited]]"))
    assert (status, headers["content-type"]) == (429, "application/json")
    assert "x-codex-primary-used-percent" in headers
    assert json.loads(data)["error"]["code"] == "rate_limit_exceeded"


def test_a_slow_answer_arrives_whole_with_its_own_headers(server: ModelServer) -> None:
    _, headers, data = ask(server, body("[[slow]]"))
    assert headers["x-own"] == "1"
    assert data.count(b"response.output_text.delta") == 6
    assert b"response.completed" in data


def test_a_cut_stream_ends_after_its_beginning(server: ModelServer) -> None:
    data = ask(server, body("[[cut]]"))[2]
    assert data.startswith(b"event: response.created")
    assert b"response.completed" not in data


def test_closing_the_server_releases_who_waits_for_an_answer() -> None:
    outcomes: list[object] = []

    def hang(server: ModelServer) -> None:
        with pytest.raises((http.client.HTTPException, ConnectionError)) as cut:
            ask(server, body("[[hang]]"))
        outcomes.append(cut.value)

    with ModelServer(SCENARIOS) as server:
        caller = threading.Thread(target=hang, args=(server,))
        caller.start()
        server.wait_for(1)
    caller.join(20)
    assert len(outcomes) == 1


def test_closing_the_server_releases_who_waits_for_the_rest_of_an_answer() -> None:
    with ModelServer(SCENARIOS) as server:
        split = urlsplit(server.base_url)
        connection = http.client.HTTPConnection(split.netloc, timeout=20)
        connection.request("POST", f"{split.path}/responses", json.dumps(body("[[hang-later]]")))
        reply = connection.getresponse()
        assert reply.readline() == b"event: response.created\n"
    assert b"response.completed" not in reply.read()
    connection.close()


def test_chunked_and_compressed_bodies_are_understood(server: ModelServer) -> None:
    packed = gzip.compress(json.dumps(body("[[work]]")).encode())
    raw = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    headers = {"transfer-encoding": "chunked", "content-encoding": "gzip"}
    assert ask(server, None, raw=raw, headers=headers)[0] == 200
    assert server.requests[-1].scenario == "work"


def test_other_requests_get_what_they_should(server: ModelServer) -> None:
    assert json.loads(ask(server, None, method="GET", path="/models?x=1")[2])["data"][0]["id"] == "gpt-5.5"
    assert ask(server, None, method="HEAD", path="/")[0::2] == (200, b"")
    assert ask(server, None, method="GET", path="/other")[0] == 404
    assert ask(server, {}, path="/other")[0] == 404
    assert ask(server, None, raw=b"{")[0] == 400
    assert server.requests == ()


def test_several_clients_are_served_at_once(server: ModelServer) -> None:
    callers = [threading.Thread(target=ask, args=(server, body("[[work]]"))) for _ in range(8)]
    for caller in callers:
        caller.start()
    assert len(server.wait_for(8)) == 8
    for caller in callers:
        caller.join(20)


def test_waiting_for_more_than_comes_ends(server: ModelServer) -> None:
    with pytest.raises(TimeoutError, match="0 of 1 requests"):
        server.wait_for(1, timeout_s=0.01)


def test_what_broke_in_the_server_is_raised_where_it_was_opened() -> None:
    def use() -> None:
        with ModelServer() as server, pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(server, {"no input": 1})

    with pytest.raises(KeyError, match="input"):
        use()


def test_an_open_connection_does_not_keep_the_server() -> None:
    with ModelServer() as server:
        idle = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=20)
        idle.request("GET", "/v1/models")
        idle.getresponse().read()
    idle.close()


def test_who_asks_for_no_stream_gets_one_object(server: ModelServer) -> None:
    content = {"messages": [{"role": "user", "content": "do [[work]]"}]}
    status, headers, data = ask(server, content, path="/messages")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(data)["content"][0]["name"] == "exec_command"
    streamed = ask(server, {**content, "stream": True}, path="/messages")
    assert streamed[1]["content-type"] == "text/event-stream"
