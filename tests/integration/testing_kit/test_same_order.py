"""The scripted agent tells the same story as the real one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.codex_home import codex_home
from kit.model_server import ModelServer, patch, say, shell
from kit.raw_client import RawClient
from symphony.testing.scripted_agent.script import block

pytestmark = pytest.mark.real_codex

TOLD = (
    "thread/status/changed",
    "turn/started",
    "item/started",
    "item/completed",
    "thread/tokenUsage/updated",
    "account/rateLimits/updated",
    "turn/completed",
)


def story(client: RawClient) -> list[str]:
    told = [frame for frame in client.frames if frame.get("method") in TOLD]
    return [
        " ".join(
            (
                frame["method"],
                *(frame["params"][key]["type"] for key in ("item", "status") if key in frame["params"]),
            )
        )
        for frame in told
    ]


def test_both_agents_send_the_same_notifications_in_the_same_order(
    codex: Path, workspace: Path, scripted: Callable[..., RawClient]
) -> None:
    real = (shell("sleep 0.1; true"), patch("*** Add File: a.txt\n+one"), say("Done."))
    with ModelServer({"it": real}) as server, codex_home(server.base_url) as home:
        log = workspace.parent / "codex.log"
        with RawClient([str(codex), "app-server"], cwd=workspace, env=home.env, stderr=log) as client:
            client.run_turn(client.open_thread(workspace), "[[it]]")
    other = scripted()
    script = block([{"run": "true"}, {"write": "b.txt", "text": "one\n"}, {"say": "Done."}])
    other.run_turn(other.open_thread(workspace), script)

    expected, told = story(client), story(other)
    notice = told.index("item/started agentMessage")
    assert told[:notice] + told[notice + 4 :] == expected
