from typing import TYPE_CHECKING

import pytest

from symphony.config import (
    KEYS,
    AgentSettings,
    BudgetSettings,
    InstructionsSettings,
    LibrarySettings,
    PhasesSettings,
    Reload,
    Settings,
    SkillsSettings,
    changed_keys,
    sections,
    value_of,
)

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

RESTART = {
    "server.port",
    "agent.library.path",
    "server.host",
    "server.on_demand",
    "server.public_reads",
    "tracing.endpoint",
    "tracing.headers",
    "tracing.content",
    "observability.dashboard_enabled",
    "observability.refresh_ms",
    "observability.render_interval_ms",
}
KINDS = ("codex", "claude", "acp", "command")
SESSION = {
    *(f"agent.{name}" for name in ("kind", "fallback", "rules", "max_turns")),
    "agent.library.directory",
    "agents",
    *(f"workspace.{name}" for name in ("isolation", "network")),
    *(name for name in KEYS if name.split(".")[0] in KINDS and not name.endswith(".stall_timeout_ms")),
}


@pytest.mark.conformance("C-1")
def test_every_key_says_when_a_change_takes_effect() -> None:
    by_class = {reload: {key.name for key in KEYS.values() if key.reload is reload} for reload in Reload}
    assert by_class[Reload.RESTART] == RESTART
    assert by_class[Reload.SESSION] == SESSION
    assert by_class[Reload.LIVE] == KEYS.keys() - RESTART - SESSION


def test_only_the_tracker_kind_is_required() -> None:
    assert [key.name for key in KEYS.values() if key.required] == ["tracker.kind"]


def test_a_section_is_known_by_its_name() -> None:
    assert sections(Settings)["agent"] is AgentSettings
    assert sections(AgentSettings) == {
        "budget": BudgetSettings,
        "phases": PhasesSettings,
        "skills": SkillsSettings,
        "instructions": InstructionsSettings,
        "library": LibrarySettings,
    }


def test_what_changed_is_told_by_class(parse: "Parse") -> None:
    before = parse("---\ntracker: {kind: markdown}\n---\nx").settings
    more = "server: {port: 0, host: '::1'}\nagent: {max_turns: 1, skills: {enabled: false}}\n"
    after = parse(f"---\ntracker: {{kind: markdown}}\n{more}---\nx").settings

    assert changed_keys(before, before, Reload.RESTART) == ()
    assert changed_keys(before, after, Reload.RESTART) == ("server.port", "server.host")
    assert changed_keys(before, after, Reload.SESSION) == ("agent.max_turns",)
    assert changed_keys(before, after, Reload.LIVE) == ("agent.skills.enabled",)
    assert value_of(after, "server.port") == 0


def test_ssh_takes_options_and_places_that_are_safe(parse: "Parse") -> None:
    ssh = "{options: [-i, /k, -o, StrictHostKeyChecking=yes], python: python3.11, remote_root: /srv/a-b_c}"
    settings = parse(f"---\ntracker: {{kind: markdown}}\nworker: {{ssh: {ssh}}}\n---\nx").settings.worker.ssh
    assert settings.options == ("-i", "/k", "-o", "StrictHostKeyChecking=yes")
    assert (settings.python, settings.remote_root) == ("python3.11", "/srv/a-b_c")


def test_hosts_are_trimmed_without_blanks_and_repeats(parse: "Parse") -> None:
    text = "---\ntracker: {kind: markdown}\nworker: {ssh_hosts: [' a ', b, '', a, 'c:22']}\n---\nx"
    assert parse(text).settings.worker.ssh_hosts == ("a", "b", "c:22")


def test_runs_go_to_a_ray_cluster_or_to_hosts_by_ssh(parse: "Parse", refuse: "Refuse") -> None:
    ray, hosts = "ray: {address: 'head:6379'}", "ssh_hosts: [a]"
    kinds = {"": None, ray: "ray", hosts: "ssh", f"carrier: ssh, {hosts}": "ssh", "carrier: other": "other"}
    for worker, kind in kinds.items():
        found = parse(f"---\ntracker: {{kind: markdown}}\nworker: {{{worker}}}\n---\nx").settings.worker
        assert found.carrier_kind == kind
    for worker in ("carrier: ssh", "carrier: ray", f"carrier: other, {hosts}", f"carrier: other, {ray}"):
        (failure,) = refuse(f"---\ntracker: {{kind: markdown}}\nworker: {{{worker}}}\n---\nx")
        assert failure.message.startswith("worker.carrier")
        assert failure.hint
    (failure,) = refuse(f"---\ntracker: {{kind: markdown}}\nworker:\n  {hosts}\n  {ray}\n---\nx")
    assert failure.message.startswith("worker.ray.address")
    assert (failure.where or "").endswith(":5")
    assert failure.hint
