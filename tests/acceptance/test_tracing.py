"""Promise: every run is one trace, whose spans say what the run did and for how long."""

import json
import shlex
import signal
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from harness.project import Project
from harness.real import require_codex
from kit import model_server as models
from kit.codex_home import codex_home
from kit.otlp_receiver import Received, attributes, otlp_receiver

DONE: Mapping[str, object] = {"tool": "board_move", "arguments": {"state": "Done"}}
COMMITTED: Mapping[str, object] = {"run": "git commit -q --allow-empty -m Work"}
MARK = "a-word-that-is-nowhere-else"
SECRET = "sk-abcdefghijklmnopqrstuvwxyz0123456789"


def _traced(project: Project, receiver: Received, *, content: bool = False) -> None:
    project.environment["COLLECTOR_KEY"] = SECRET
    tracing = {"endpoint": receiver.url, "headers": {"x-key": "$COLLECTOR_KEY"}, "content": content}
    verify = {"commands": [{"name": "tests", "run": "true"}]}
    project.workflow(tracing=tracing, hooks={"before_run": "true"}, verify=verify)


def _asked(project: Project, path: str) -> dict[str, Any]:
    socket = json.loads((project.state_dir / "control.json").read_text())["socket"]
    with httpx.Client(transport=httpx.HTTPTransport(uds=socket, verify=False), timeout=30) as client:
        document: dict[str, Any] = client.get(f"http://symphony{path}").json()
    return document


def test_a_run_is_a_tree_of_spans(project: Project) -> None:
    project.skill("greeting")
    project.commit("A skill")
    turn: list[Mapping[str, object]] = [
        {"skill": "greeting"},
        {"run": f"echo {SECRET} > hello.txt"},
        {"commit": "Hello"},
        DONE,
    ]
    project.issue("SYM-1", turn)
    with otlp_receiver() as receiver:
        _traced(project, receiver)
        with project.daemon() as daemon:
            trace_id = daemon.wait_for("run_ended")["trace_id"]
            explained = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
            transcript = _asked(project, "/api/v1/SYM-1/transcript")
            daemon.signal(signal.SIGTERM)
            assert daemon.end() == 0
        assert receiver.headers[0]["x-key"] == SECRET
    assert explained["runs"][0]["trace_id"] == transcript["trace_id"] == trace_id
    (root,) = receiver.tree()[""]
    assert root == "invoke_workflow symphony.run"
    steps = receiver.tree()[root]
    expected = ["symphony.queue", "symphony.workspace", "symphony.hook", "symphony.agent_start"]
    assert [name for name in steps if name != "symphony.skills"] == [
        *expected,
        "invoke_agent codex",
        "symphony.delivery",
        "symphony.check",
    ]
    assert "symphony.skills" in steps
    spans = {span.name: span for span in receiver.spans}
    assert {span.trace_id.hex() for span in receiver.spans} == {trace_id}
    assert attributes(spans[root])["symphony.outcome"] == "succeeded"
    assert attributes(spans[root])["symphony.commits"] == 1
    assert attributes(spans["invoke_agent codex"])["gen_ai.conversation.id"]
    check = attributes(spans["symphony.check"])
    assert (check["symphony.check.name"], check["process.exit.code"]) == ("tests", 0)
    tools = [attributes(span) for span in receiver.spans if span.name.startswith("execute_tool")]
    assert [tool.get("gen_ai.skill.name") for tool in tools].count("greeting") == 1
    assert SECRET not in str(receiver.spans)


@pytest.mark.slow
def test_content_is_sent_only_when_asked_for_and_without_secrets(project: Project) -> None:
    turn: list[Mapping[str, object]] = [
        {"run": f"echo {SECRET} {MARK}"},
        {"say": f"{SECRET} {MARK}"},
        COMMITTED,
        DONE,
    ]
    sent = []
    for name, content in (("SYM-1", False), ("SYM-2", True)):
        project.issue(name, turn)
        with otlp_receiver() as receiver:
            _traced(project, receiver, content=content)
            assert project.once().returncode == 0
        sent.append([str(attributes(span)) for span in receiver.spans])
    assert not any(MARK in text for text in sent[0])
    assert sum(MARK in text for text in sent[1]) >= 2
    assert not any(SECRET in text for texts in sent for text in texts)


def test_an_attempt_links_to_the_trace_of_the_one_before(project: Project) -> None:
    project.issue("SYM-1", [{"exit": 3}])
    with otlp_receiver() as receiver:
        _traced(project, receiver)
        project.once()
    first, second, *_ = (span for span in receiver.spans if not span.parent_span_id)
    assert attributes(first)["error.type"] == "port_exit"
    assert not first.links
    assert [(link.trace_id, link.span_id) for link in second.links] == [(first.trace_id, first.span_id)]


@pytest.mark.slow
def test_a_collector_that_is_gone_costs_a_line_and_no_run(project: Project) -> None:
    project.issue("SYM-1", [COMMITTED, DONE])
    project.workflow(tracing={"endpoint": "http://127.0.0.1:9/v1/traces"})
    with project.daemon() as daemon:
        assert daemon.wait_for("run_ended")["outcome"] == "succeeded"
        daemon.wait_for("traces_not_sent")
        assert "Connection refused" in _asked(project, "/system.json")["traces_failure"]
        daemon.signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert len([event for event in daemon.events() if event["event"] == "traces_not_sent"]) == 1


@pytest.mark.parametrize(
    "tracing",
    [
        {"endpoint": "127.0.0.1:4318"},
        {"endpoint": "file:///tmp/traces"},
        {"endpoint": "http://user:word@localhost/v1/traces"},
        {"endpoint": "http://localhost/v1/traces", "headers": {"x-key": "$NOT_SET_ANYWHERE"}},
    ],
)
def test_what_cannot_work_is_reported_by_check(project: Project, tracing: dict[str, object]) -> None:
    project.workflow(tracing=tracing)
    done = project.symphony("check")
    assert done.returncode == 3
    assert "tracing." in done.stdout + done.stderr


@pytest.mark.real_codex
def test_a_real_codex_has_its_work_as_spans_below_its_turn(project: Project) -> None:
    command = f"{shlex.quote(str(require_codex()))} app-server"
    done = (models.tool("board_move", {"state": "Done"}),)
    steps = models.edit_and_commit("hello.txt", "hello\n", "Say hello", last=done)
    project.issue("SYM-1", text="[[work]] Write hello.txt and commit it.")
    with (
        otlp_receiver() as receiver,
        models.ModelServer({"work": steps}) as server,
        codex_home(server.base_url) as home,
    ):
        tracing = {"endpoint": receiver.url}
        project.workflow(command=command, codex={"read_timeout_ms": 30_000}, tracing=tracing)
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
    assert daemon.wait_for("run_ended")["outcome"] == "succeeded"
    tools = receiver.tree()["invoke_agent codex"]
    assert tools == [*["execute_tool commandExecution"] * 2, "execute_tool dynamicToolCall"]
    (turn,) = (attributes(span) for span in receiver.spans if span.name == "invoke_agent codex")
    assert turn["gen_ai.provider.name"] == "codex"
    assert int(turn["gen_ai.usage.input_tokens"]) > 0
