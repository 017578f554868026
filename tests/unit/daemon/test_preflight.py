"""The check before the first dispatch: every agent by its name, at its line, and only those that changed."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

from harness.binding import FakeTracker, make_context
from symphony.agents.base import Preflight
from symphony.config import AGENT_SECTIONS, AgentRuleSettings, WorkflowFile, parse_workflow
from symphony.daemon.context import RuntimeContext, scheduler_settings
from symphony.daemon.preflight import changed_agents, preflight_agents
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.scheduler import AgentInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from symphony.agents.base import AgentBackend

pytestmark = pytest.mark.asyncio

FRONT = """\
tracker: {kind: markdown}
codex:
  command: codex app-server
agents:
  quick:
    kind: codex
    model: small
    stall_timeout_ms: 7
agent:
  fallback: quick
  rules: [{label: UI, use: quick, fallback: codex}]
"""


@dataclass
class Backend:
    """Passes, or fails with `failure`; `asked` counts."""

    failure: Failure | None = None
    notices: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    async def preflight(self, workspace_root: Path, *, run_id: str) -> Preflight:
        del workspace_root
        self.asked.append(run_id)
        if self.failure is not None:
            raise SymphonyError(self.failure)
        return Preflight(agent="prog", version="1", notices=self.notices)


def _context(tmp_path: Path, front: str = FRONT, **backends: Backend) -> RuntimeContext:
    data = f"---\n{front}---\nDo it.\n".encode()
    file = WorkflowFile(path=tmp_path / "WORKFLOW.md", data=data)
    workflow = parse_workflow(file, environment={}, tracker_kinds=("markdown",), agent_kinds=AGENT_SECTIONS)
    named = workflow.agents
    agents: Mapping[str, Any] = {name: backends.get(name, Backend()) for name in named}
    made = make_context(tmp_path, FakeTracker())
    return replace(made, workflow=workflow, agents=cast("Mapping[str, AgentBackend]", agents))


def _missing() -> Failure:
    return Failure(
        category=Category.CODEX_NOT_FOUND, blame=Blame.CONFIG, message="not there", retryable=False
    )


async def test_each_is_asked_and_told_by_its_name(tmp_path: Path) -> None:
    quick = Backend(notices=("mind the gap",))
    context = _context(tmp_path, quick=quick)
    with capture_logs() as logs:
        await preflight_agents(context, context.agents)
    assert [line["agent"] for line in logs if line["event"] == "agent_ready"] == ["codex", "quick"]
    assert [(line["agent"], line["reason"]) for line in logs if line["event"] == "agent_notice"] == [
        ("quick", "mind the gap")
    ]
    assert quick.asked[0].endswith("-preflight")


async def test_one_that_fails_is_told_by_name_and_line_after_all_were_asked(tmp_path: Path) -> None:
    codex = Backend()
    context = _context(tmp_path, codex=codex, quick=Backend(failure=_missing()))
    with pytest.raises(SymphonyError) as caught:
        await preflight_agents(context, ["quick", "codex"])
    failure = caught.value.failure
    assert failure.message == "agent quick: not there"
    assert failure.where == f"{tmp_path / 'WORKFLOW.md'}:4", "its command stands in the section of its kind"
    assert codex.asked, "what is wrong with one does not hide the others from the log"


async def test_where_there_is_one_its_name_goes_without_saying(tmp_path: Path) -> None:
    context = _context(tmp_path, "tracker: {kind: markdown}\n", codex=Backend(failure=_missing()))
    with pytest.raises(SymphonyError) as caught:
        await preflight_agents(context, context.agents)
    assert (caught.value.failure.message, caught.value.failure.where) == ("not there", None)


async def test_a_reload_asks_only_those_that_it_changed(tmp_path: Path) -> None:
    context = _context(tmp_path)
    assert changed_agents(context, context) == ()
    assert changed_agents(context, _context(tmp_path, FRONT.replace("small", "big"))) == ("quick",)
    assert changed_agents(context, _context(tmp_path, FRONT.replace("codex app", "x app"))) == (
        "codex",
        "quick",
    )
    enclosed = f"workspace: {{isolation: bwrap}}\n{FRONT}"
    assert changed_agents(context, _context(tmp_path, enclosed)) == ("codex", "quick")


async def test_one_that_the_workflow_names_no_more_is_an_outage_of_ours(tmp_path: Path) -> None:
    with pytest.raises(SymphonyError) as caught:
        _context(tmp_path).agent("gone")
    assert caught.value.failure.retryable
    assert caught.value.failure.blame is Blame.HOST
    assert caught.value.failure.message.endswith("the agent gone")
    assert "WORKFLOW.md" in caught.value.failure.message


async def test_the_scheduler_is_told_what_choosing_needs(tmp_path: Path) -> None:
    settings = scheduler_settings(_context(tmp_path))
    assert (settings.agent, settings.fallback) == ("codex", "quick")
    assert settings.rules == (AgentRuleSettings(use="quick", label="ui", fallback="codex"),)
    assert settings.agents["quick"] == AgentInfo(
        kind="codex", section="agents.quick", stall_timeout_ms=7, model="small"
    )
    assert settings.agent_info("codex").section == "codex"
    assert settings.agent_info("gone") == AgentInfo(kind="gone", section="gone", stall_timeout_ms=300_000)
