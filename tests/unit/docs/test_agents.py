"""The table of capabilities in docs/agents.md is what the backends say of themselves."""

import os
from dataclasses import fields
from pathlib import Path

from symphony.agents.acp.profiles import PROFILES
from symphony.agents.base import BackendContext, Capabilities
from symphony.agents.registry import AGENTS, create_backend
from symphony.config import (
    AGENT_SECTIONS,
    AcpSettings,
    AgentSection,
    ClaudeSettings,
    CodexSettings,
    CommandSettings,
    NamedAgent,
)
from symphony.processes.local import LocalHost

PAGE = Path(__file__).parents[3] / "docs" / "agents.md"
BEGIN, END = "<!-- capabilities:begin -->\n", "<!-- capabilities:end -->\n"
AROUND = BackendContext(host=LocalHost(), environ={}, secret_names=frozenset(), homes=Path("/nowhere"))
SETTINGS: tuple[AgentSection, ...] = (
    CodexSettings(),
    ClaudeSettings(),
    AcpSettings(command="an-agent"),
    CommandSettings(command="an-agent {prompt_file}"),
)
SAMPLES = {
    kind: NamedAgent(name=kind, kind=kind, settings=settings)
    for kind, settings in zip(AGENT_SECTIONS, SETTINGS, strict=True)
}
WORDS = {
    "system_block_at_start": "system-level text at the start",
    "system_block_on_resume": "the same when a conversation goes on",
    "client_tools": "tools of ours",
    "resume": "goes on with a conversation",
    "usage": "counts tokens",
    "absolute_usage": "as totals of the conversation",
    "rate_limits": "tells of its allowance",
    "sandbox": "a sandbox of its own",
    "approvals": "asks, and is answered",
    "interrupt": "a turn ends without the process",
}


PROFILED = {
    f"acp {profile}": NamedAgent(name="acp", kind="acp", settings=AcpSettings(profile=profile))
    for profile in sorted(PROFILES)
    if profile != "generic"
}


def _table() -> str:
    samples = {**SAMPLES, **PROFILED}
    kinds = [name for name in sorted(samples) if name.split()[0] in AGENTS.names]
    able = {kind: create_backend(samples[kind], AROUND).capabilities for kind in kinds}
    head = "| | " + " | ".join(f"`{kind}`" for kind in kinds) + " |\n"
    rule = "|---|" + "---|" * len(kinds) + "\n"
    rows = [
        f"| {words} | " + " | ".join("yes" if getattr(able[kind], name) else "no" for kind in kinds) + " |\n"
        for name, words in WORDS.items()
    ]
    return head + rule + "".join(rows)


def test_the_table_tells_what_every_backend_can_do() -> None:
    """`SYMPHONY_WRITE_DOCS=1` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    shown, after = rest.split(END)
    if os.environ.get("SYMPHONY_WRITE_DOCS"):
        PAGE.write_text(f"{before}{BEGIN}{_table()}{END}{after}", encoding="utf-8")
        return
    assert shown == _table(), "write it anew with SYMPHONY_WRITE_DOCS=1"


def test_every_capability_has_its_line() -> None:
    assert WORDS.keys() == {field.name for field in fields(Capabilities)}
