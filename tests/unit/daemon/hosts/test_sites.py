"""Which settings reach a worker on another machine: those with the mark `ForWorkers`, and no other."""

import json
from pathlib import Path
from typing import Any

from symphony.config import (
    AGENT_SECTIONS,
    Section,
    Settings,
    Workflow,
    WorkflowFile,
    live,
    parse_workflow,
    sections,
)
from symphony.config.settings import ForWorkers, marked_for_workers
from symphony.daemon.hosts.places import HostPlace
from symphony.daemon.hosts.sites import site_at, site_of

SECRETS: dict[str, Any] = {
    "tracker": {"kind": "memory", "webhook_secret": "$HOOK", "on_start": "Todo"},
    "forge": {"kind": "github", "repo": "o/r", "token": "$FORGE", "open": "never"},
    "notify": [{"name": "desk", "kind": "webhook", "url": "$CHAT"}],
    "tracing": {"endpoint": "http://127.0.0.1:1", "headers": {"authorization": "$TRACES"}},
    "worker": {"ssh_hosts": ["build-1"], "ssh": {"options": ["-i", "/key"]}},
}


class Inner(Section):
    sent: ForWorkers[int] = live(1, "a worker needs it")
    kept: int = live(1, "the daemon needs it")


class Outer(Section):
    inner: Inner = Inner()
    whole: ForWorkers[Inner] = Inner()
    other: Section = Section()


def read(text: bytes) -> Workflow:
    return parse_workflow(
        WorkflowFile(path=Path("/repo/WORKFLOW.md"), data=text),
        environment={},
        tracker_kinds=("memory",),
        agent_kinds=AGENT_SECTIONS,
    )


def front_of(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.split(b"---\n")[1])
    return found


def test_a_mark_sends_a_setting_or_a_section() -> None:
    assert marked_for_workers(Outer) == {"inner": {"sent": True}, "whole": True}


def test_what_has_no_mark_stays_with_the_daemon() -> None:
    text = b"---\n" + json.dumps(SECRETS).encode() + b"\n---\nDo it."
    workflow = read(text)
    front = front_of(site_of(workflow, lease_ms=1).text)
    assert front["tracker"] == {"kind": "memory"}
    marked = marked_for_workers(Settings).keys()
    assert front.keys() - {"tracker"} <= marked
    assert not marked & {"tracker", "forge", "notify", "tracing", "worker", "server", "observability"}
    assert marked <= {*sections(Settings), "agents", "pricing"}


def test_a_worker_reads_the_rules_and_dated_prices_of_the_file() -> None:
    prices = {"m": [{"input": 1, "output": 2}, {"from": "2026-10-01", "input": 3, "output": 4.5}]}
    agent = {
        "rules": [{"use": "codex", "label": "Ui"}],
        "phases": {"rules": [{"phase": "test", "state": "T"}]},
    }
    text = b"---\n" + json.dumps({"tracker": {"kind": "memory"}, "pricing": prices, "agent": agent}).encode()
    here = read(text + b"\n---\nDo it.")
    there = read(site_of(here, lease_ms=1).text)
    assert [price.since for price in there.settings.pricing["m"]] == [None, "2026-10-01"]
    assert (there.settings.pricing, there.settings.agent) == (here.settings.pricing, here.settings.agent)
    assert not there.warnings


def test_a_worker_on_a_host_has_the_places_of_the_host_and_pushes_nothing() -> None:
    text = (
        b"---\ntracker: {kind: memory}\nworkspace: {repo: /r, push: origin, keep_dirty: false}\n---\nDo it."
    )
    workflow = read(text)
    place = HostPlace(root="/srv/w", python="/bin/python", clock_s=None)
    site = site_at(workflow, place, lease_ms=7, base_branch="main")
    assert site.lease_ms == 7
    assert front_of(site.text)["workspace"] == {
        "repo": "/srv/w/repository.git",
        "root": "/srv/w/workspaces",
        "push": "never",
        "keep_dirty": False,
        "base_branch": "main",
    }
