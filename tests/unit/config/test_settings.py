from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from symphony.config import KEYS, NULLABLE_KEYS
from symphony.config.settings import Settings, VerifyCommand, marked_for_workers
from symphony.domain import Blame, Category
from symphony.scheduler.messages import IssueRule
from unit.config.conftest import NUMBERS_AS_TEXT

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

MINIMAL = "---\ntracker: {kind: markdown}\n"
FILE = "/repo/WORKFLOW.md"


def _value(root: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        root = getattr(root, name)
    return root


DEFAULTS: dict[str, object] = {
    "tracker.provider": {},
    "tracker.required_labels": (),
    "tracker.active_states": None,
    "tracker.terminal_states": None,
    "tracker.on_start": None,
    "tracker.on_block": None,
    "tracker.comment_on_delivery": True,
    "tracker.webhook_secret": None,
    "polling.interval_ms": 30_000,
    "workspace.root": Path("/tmp/symphony_workspaces"),
    "workspace.repo": None,
    "workspace.base_branch": None,
    "workspace.push": "never",
    "workspace.fetch_stall_timeout_ms": 120_000,
    "workspace.push_stall_timeout_ms": 60_000,
    "workspace.keep_dirty": True,
    "workspace.isolation": "none",
    "workspace.network": "open",
    "hooks.after_create": None,
    "hooks.before_run": None,
    "hooks.after_run": None,
    "hooks.before_remove": None,
    "hooks.env": (),
    "hooks.timeout_ms": 60_000,
    "review.merge": False,
    "verify.commands": (),
    "verify.setup": None,
    "verify.setup_timeout_ms": 600_000,
    "verify.where": "workspace",
    "verify.rounds": 2,
    "verify.reviewer": None,
    "verify.protect": (),
    "verify.artifacts": (),
    "rehearse.verify": False,
    "rehearse.timeout_ms": 3_600_000,
    "agent.kind": "codex",
    "agent.fallback": None,
    "agent.rules": (),
    "agents": {},
    "agent.max_concurrent_agents": 10,
    "agent.max_turns": 20,
    "agent.max_retry_backoff_ms": 300_000,
    "agent.max_concurrent_agents_by_state": {},
    "agent.drain_timeout_ms": 30_000,
    "agent.budget.max_tokens_per_issue": None,
    "agent.budget.max_tokens_per_day": None,
    "agent.budget.max_turns_per_issue": None,
    "agent.budget.max_turns_without_progress": 2,
    "agent.budget.max_attempts_without_progress": 3,
    "agent.phases.default": None,
    "agent.phases.rules": (),
    "agent.skills.enabled": True,
    "agent.skills.for_people": "hide",
    "agent.skills.path": ".symphony/skills",
    "agent.skills.user_path": ("~/.symphony/skills",),
    "agent.skills.extra_paths": (),
    "agent.skills.max_skills_in_prompt": 50,
    "agent.skills.max_prompt_chars": 8_000,
    "agent.skills.format": "compact",
    "agent.skills.validation": "lenient",
    "agent.skills.comment_on": "error",
    "agent.skills.name_fallback": False,
    "agent.skills.reserved_words": (),
    "agent.skills.include": (),
    "agent.skills.disabled_skills": (),
    "agent.skills.native": "auto",
    "agent.skills.activation": "read",
    "agent.skills.search_above": None,
    "agent.skills.source": "workspace",
    "agent.instructions.source": None,
    "agent.instructions.path": ".symphony/instructions",
    "agent.instructions.url": None,
    "agent.instructions.sha256": None,
    "agent.instructions.fetch_timeout_ms": 5_000,
    "agent.instructions.fallback": None,
    "agent.instructions.max_chars": 16_000,
    "agent.library.path": None,
    "agent.library.directory": ".agents/skills",
    "agent.library.sync": "propose",
    "agent.library.learning": "on_feedback",
    "agent.library.learner": None,
    "agent.library.max_learning_turns": 3,
    "agent.library.max_learning_tokens": 200_000,
    "agent.library.check": None,
    "agent.library.check_timeout_ms": 600_000,
    "agent.library.max_evaluation_tokens": 1_000_000,
    "codex.command": "codex app-server",
    "codex.model": None,
    "codex.effort": None,
    "codex.home": "operator",
    "codex.ray_labels": {},
    "codex.env": (),
    "codex.approval_policy": "never",
    "codex.thread_sandbox": "workspace-write",
    "codex.turn_sandbox_policy": None,
    "codex.on_approval": "decline",
    "codex.turn_timeout_ms": 3_600_000,
    "codex.read_timeout_ms": 5_000,
    "codex.stall_timeout_ms": 300_000,
    "codex.library": None,
    "claude.command": "claude",
    "claude.model": None,
    "claude.effort": None,
    "claude.home": "operator",
    "claude.permission_mode": "acceptEdits",
    "claude.on_approval": "decline",
    "claude.ray_labels": {},
    "claude.env": (),
    "claude.turn_timeout_ms": 3_600_000,
    "claude.read_timeout_ms": 30_000,
    "claude.stall_timeout_ms": 300_000,
    "claude.library": None,
    "acp.profile": "generic",
    "acp.command": None,
    "acp.model": None,
    "acp.home": "operator",
    "acp.mode": None,
    "acp.system_text": None,
    "acp.on_approval": "decline",
    "acp.ray_labels": {},
    "acp.env": (),
    "acp.env_values": {},
    "acp.system_meta": None,
    "acp.usage": None,
    "acp.usage_path": None,
    "acp.load": None,
    "acp.start_timeout_ms": None,
    "acp.turn_timeout_ms": 3_600_000,
    "acp.read_timeout_ms": 5_000,
    "acp.stall_timeout_ms": 300_000,
    "acp.library": None,
    "command.profile": "generic",
    "command.command": None,
    "command.model": None,
    "command.home": "operator",
    "command.ray_labels": {},
    "command.env": (),
    "command.turn_timeout_ms": 3_600_000,
    "command.stall_timeout_ms": 300_000,
    "command.library": None,
    "server.port": None,
    "server.host": "127.0.0.1",
    "server.on_demand": True,
    "server.public_reads": False,
    "worker.ssh_hosts": (),
    "worker.max_concurrent_agents_per_host": None,
    "worker.ssh.command": "ssh",
    "worker.ssh.options": (),
    "worker.ssh.python": None,
    "worker.ssh.remote_root": ".local/share/symphony-worker",
    "worker.ssh.lease_ms": 30_000,
    "worker.carrier": None,
    "worker.ray.address": None,
    "worker.ray.namespace": "symphony",
    "worker.ray.slots_resource": "agent_slot",
    "worker.ray.labels": {},
    "worker.ray.autoscaler": False,
    "worker.ray.runtime_env": {},
    "worker.ray.python": None,
    "worker.ray.remote_root": ".local/share/symphony-worker",
    "worker.ray.lease_ms": 30_000,
    "worker.env": (),
    "observability.dashboard_enabled": False,
    "observability.refresh_ms": 1_000,
    "observability.render_interval_ms": 16,
    "forge.kind": None,
    "forge.repo": None,
    "forge.token": None,
    "forge.webhook_secret": None,
    "forge.url": None,
    "forge.open": "draft",
    "forge.base": None,
    "forge.title": "{{ issue.identifier }}: {{ issue.title }}",
    "forge.body": None,
    "forge.labels": (),
    "forge.reviewers": (),
    "forge.feedback.ci": True,
    "forge.feedback.review": True,
    "forge.feedback.conflict": True,
    "forge.on_feedback": None,
    "forge.merged_state": None,
    "forge.delete_branch": True,
    "forge.checks_grace_ms": 120_000,
    "forge.poll_interval_ms": 60_000,
    "forge.required_checks": (),
    "forge.land": "never",
    "forge.land_limits.labels": (),
    "forge.land_limits.max_changed_lines": None,
    "forge.land_limits.paths": (),
    "tracing.endpoint": None,
    "tracing.headers": {},
    "tracing.content": False,
    "retention.max_age_days": 30,
    "retention.max_runs": 1_000,
    "retention.max_log_bytes": 104_857_600,
    "retention.max_journal_bytes": 268_435_456,
    "pricing": {},
    "notify": (),
    "schedules": (),
}


def _yaml(dotted: str, value: str) -> str:
    """A front matter that sets one key, on line 3 at the earliest."""
    *sections, key = dotted.split(".")
    lines = [MINIMAL.rstrip("\n")]
    if sections[:1] == ["tracker"]:
        lines, sections = ["---", "tracker:", "  kind: markdown"], []
        lines.append(f"  {key}: {value}")
    else:
        lines += [f"{'  ' * depth}{name}:" for depth, name in enumerate(sections)]
        lines.append(f"{'  ' * len(sections)}{key}: {value}")
    return "\n".join([*lines, "---", "body"])


@pytest.mark.conformance("C-1")
def test_every_key_has_a_default_but_the_tracker_kind() -> None:
    assert DEFAULTS.keys() == KEYS.keys() - {"tracker.kind"}


@pytest.mark.conformance("C-1")
@pytest.mark.parametrize(("key", "default"), DEFAULTS.items())
def test_an_omitted_key_has_its_default(parse: "Parse", key: str, default: object) -> None:
    assert _value(parse(MINIMAL).settings, key) == default


@pytest.mark.conformance("C-1", "C-9")
@pytest.mark.parametrize(("key", "default"), DEFAULTS.items())
def test_a_key_without_a_value_has_its_default(parse: "Parse", key: str, default: object) -> None:
    workflow = parse(_yaml(key, ""))

    off = tuple(key.split(".")) in NULLABLE_KEYS
    assert _value(workflow.settings, key) == (None if off else default)
    assert workflow.warnings == ()


@pytest.mark.conformance("C-1", "C-9")
@pytest.mark.parametrize(
    "section",
    [
        "polling",
        "workspace",
        "hooks",
        "agent",
        "codex",
        "agent:\n  budget",
        "agent:\n  phases",
        "agent:\n  skills",
        "forge:\n  feedback",
        "forge:\n  land_limits",
    ],
)
def test_a_section_without_a_value_has_its_defaults(parse: "Parse", section: str) -> None:
    assert parse(f"{MINIMAL}{section}:\n").settings == parse(MINIMAL).settings


POSITIVE = [
    "polling.interval_ms",
    "hooks.timeout_ms",
    "agent.max_concurrent_agents",
    "agent.max_turns",
    "agent.max_retry_backoff_ms",
    "agent.budget.max_tokens_per_issue",
    "agent.budget.max_tokens_per_day",
    "agent.budget.max_turns_per_issue",
    "agent.budget.max_turns_without_progress",
    "agent.budget.max_attempts_without_progress",
    "agent.skills.max_skills_in_prompt",
    "agent.skills.max_prompt_chars",
    "agent.skills.search_above",
    "agent.library.max_learning_turns",
    "agent.library.max_learning_tokens",
    "agent.library.check_timeout_ms",
    "agent.library.max_evaluation_tokens",
    "codex.turn_timeout_ms",
    "codex.read_timeout_ms",
    "worker.max_concurrent_agents_per_host",
    "worker.ssh.lease_ms",
    "worker.ray.lease_ms",
    "observability.refresh_ms",
    "observability.render_interval_ms",
    "retention.max_age_days",
    "retention.max_runs",
    "retention.max_log_bytes",
    "retention.max_journal_bytes",
    "forge.land_limits.max_changed_lines",
]


@pytest.mark.conformance("C-7")
@pytest.mark.parametrize("value", ["0", "-1"])
@pytest.mark.parametrize("key", POSITIVE)
def test_a_number_that_must_be_positive_is_refused_otherwise(refuse: "Refuse", key: str, value: str) -> None:
    text = _yaml(key, value)
    line = 1 + text.split("\n---")[0].count("\n")

    (failure,) = refuse(text)

    assert failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert failure.blame is Blame.CONFIG
    assert not failure.retryable
    assert failure.message == f"{key} must be greater than 0"
    assert failure.where == f"{FILE}:{line}"


@pytest.mark.parametrize("key", POSITIVE)
def test_the_smallest_positive_number_is_accepted(parse: "Parse", key: str) -> None:
    assert _value(parse(_yaml(key, "1")).settings, key) == 1


@pytest.mark.parametrize(
    ("value", "called"),
    [
        ("true", "true or false"),
        ("'7'", "text"),
        ("1.5", "a decimal number"),
        ("[1]", "a list"),
        ("{}", "a map"),
    ],
)
@pytest.mark.parametrize("key", [*POSITIVE, "agent.drain_timeout_ms", "codex.stall_timeout_ms"])
def test_a_number_is_a_whole_number(refuse: "Refuse", key: str, value: str, called: str) -> None:
    if value == "'7'" and key in NUMBERS_AS_TEXT:
        value, called = "'7x'", "text"
    (failure,) = refuse(_yaml(key, value))

    assert failure.message == f"{key} must be a whole number, not {called}"
    assert failure.hint == "write digits only, without quotes"


def test_the_drain_may_take_no_time_but_not_less(parse: "Parse", refuse: "Refuse") -> None:
    assert parse(_yaml("agent.drain_timeout_ms", "0")).settings.agent.drain_timeout_ms == 0
    (failure,) = refuse(_yaml("agent.drain_timeout_ms", "-1"))
    assert failure.message == "agent.drain_timeout_ms must be 0 or more"


@pytest.mark.parametrize("value", [0, -1])
def test_the_stall_timeout_may_be_switched_off(parse: "Parse", value: int) -> None:
    assert parse(_yaml("codex.stall_timeout_ms", str(value))).settings.codex.stall_timeout_ms == value


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tracker.kind", "[]", "tracker.kind must be text, not a list"),
        ("tracker.kind", "5", "tracker.kind must be text, not a number"),
        ("tracker.provider", "[]", "tracker.provider must be a map, not a list"),
        ("tracker.active_states", "Todo", "tracker.active_states must be a list, not text"),
        ("tracker.terminal_states", "{}", "tracker.terminal_states must be a list, not a map"),
        ("tracker.required_labels", "true", "tracker.required_labels must be a list, not true or false"),
        ("workspace.root", "5", "workspace.root must be a path, not a number"),
        ("workspace.root", "' '", "workspace.root must not be blank"),
        ("workspace.root", '"a\\0b"', "workspace.root must not contain a NUL character"),
        ("workspace.root", "~nobody-has-this-name", None),
        ("workspace.repo", "[]", "workspace.repo must be text, not a list"),
        ("workspace.repo", "''", "workspace.repo must not be blank"),
        ("workspace.repo", "--upload-pack=x", "workspace.repo must not begin with a dash"),
        ("workspace.base_branch", "-x", "workspace.base_branch must not begin with a dash"),
        ("workspace.base_branch", "''", "workspace.base_branch must not be blank"),
        ("workspace.push", "always", "workspace.push must be one of 'never' or 'origin'"),
        ("workspace.keep_dirty", "'no'", "workspace.keep_dirty must be true or false, not text"),
        ("hooks.before_run", "5", "hooks.before_run must be text, not a number"),
        ("hooks.after_run", '"a\\0"', "hooks.after_run must not contain a NUL character"),
        ("agent.kind", "' '", "agent.kind must not be blank"),
        ("agent.max_concurrent_agents_by_state", "[]", None),
        ("agent.budget", "5", "agent.budget must be a map, not a number"),
        ("agent.skills", "off", "agent.skills must be a map, not text"),
        ("agent.skills.enabled", "1", "agent.skills.enabled must be true or false, not a number"),
        ("codex.command", "' '", "codex.command must not be blank"),
        ("codex.model", "''", "codex.model must not be blank"),
        ("codex.approval_policy", "5", "codex.approval_policy must be text or a map"),
        ("codex.approval_policy", "{a: .inf}", "codex.approval_policy must not contain .nan or .inf"),
        ("codex.thread_sandbox", "{}", "codex.thread_sandbox must be text, not a map"),
        ("codex.turn_sandbox_policy", "x", "codex.turn_sandbox_policy must be a map, not text"),
        ("codex.turn_sandbox_policy", "{a: .nan}", "codex.turn_sandbox_policy must not contain .nan or .inf"),
        ("codex.on_approval", "ask", "codex.on_approval must be one of 'decline', 'accept' or 'block'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(
    refuse: "Refuse", key: str, value: str, message: str | None
) -> None:
    text = "---\ntracker:\n  kind: " + value if key == "tracker.kind" else _yaml(key, value)

    (failure,) = refuse(text)

    assert failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert failure.message.startswith(f"{key} ") if message is None else failure.message == message
    assert failure.where is not None
    assert failure.where.startswith(f"{FILE}:")


@pytest.mark.parametrize("section", ["polling", "workspace", "hooks", "agent", "codex"])
def test_a_section_is_a_map(refuse: "Refuse", section: str) -> None:
    (failure,) = refuse(f"{MINIMAL}{section}: 5\n", environment={"SYMPHONY_AGENT_SKILLS_ENABLED": "true"})

    assert failure.message == f"{section} must be a map, not a number"
    assert failure.where == f"{FILE}:3"


def test_the_tracker_section_is_a_map(refuse: "Refuse") -> None:
    (failure,) = refuse("---\ntracker: [markdown]\n")
    assert failure.message == "tracker must be a map, not a list"


def test_an_item_of_a_list_is_named_by_its_number(refuse: "Refuse") -> None:
    (failure,) = refuse("---\ntracker:\n  kind: markdown\n  active_states:\n    - Todo\n    - 7\n")

    assert failure.message == "tracker.active_states[1] must be text, not a number"
    assert failure.where == f"{FILE}:6"


def test_state_lists_are_trimmed_and_blanks_are_dropped(parse: "Parse") -> None:
    tracker = parse(_yaml("tracker.active_states", "[' In Progress ', '', '  ', Todo]")).settings.tracker
    assert tracker.active_states == ("In Progress", "Todo")


def test_an_empty_state_list_is_not_the_default(parse: "Parse") -> None:
    assert parse(_yaml("tracker.terminal_states", "[]")).settings.tracker.terminal_states == ()


def test_required_labels_are_normalised_and_a_blank_one_stays(parse: "Parse") -> None:
    tracker = parse(_yaml("tracker.required_labels", "[' Bug', bug, '  ']")).settings.tracker
    assert tracker.required_labels == ("bug", "")


@pytest.mark.conformance("C-2")
def test_provider_keys_are_kept_for_the_adapter_without_nulls(parse: "Parse") -> None:
    provider = parse(_yaml("tracker.provider", "{path: a, more: {x: null, y: [null, 1]}, z: null}"))
    assert provider.settings.tracker.provider == {"path": "a", "more": {"y": [None, 1]}}


def test_maps_for_the_agent_pass_through_unchanged(parse: "Parse") -> None:
    text = "{type: workspaceWrite, writableRoots: [/a], x: null, n: {y: null}}"
    expected = {"type": "workspaceWrite", "writableRoots": ["/a"], "x": None, "n": {"y": None}}

    assert parse(_yaml("codex.turn_sandbox_policy", text)).settings.codex.turn_sandbox_policy == expected
    assert parse(_yaml("codex.approval_policy", text)).settings.codex.approval_policy == expected


@pytest.mark.conformance("C-5")
def test_the_command_of_the_agent_is_not_touched(parse: "Parse") -> None:
    command = parse(_yaml("codex.command", "'  FOO=$HOME ~/bin/codex  \"a b\" '"), environment={"HOME": "/h"})
    assert command.settings.codex.command == '  FOO=$HOME ~/bin/codex  "a b" '


def test_a_blank_hook_is_no_hook(parse: "Parse") -> None:
    assert parse(_yaml("hooks.before_run", "' '")).settings.hooks.before_run is None
    assert parse(_yaml("hooks.before_run", "make")).settings.hooks.before_run == "make"


@pytest.mark.parametrize("path", ["../x", "a/../../b", "/etc", "''", "' '", "'~/skills'", "a/.."])
def test_the_skills_stay_inside_the_workspace(refuse: "Refuse", path: str) -> None:
    (failure,) = refuse(_yaml("agent.skills.path", path))
    assert failure.message.startswith("agent.skills.path must be a path inside the workspace")


@pytest.mark.parametrize("path", [".agents/skills", "skills", "a..b/c", "."])
def test_skills_may_lie_anywhere_below_the_workspace(parse: "Parse", path: str) -> None:
    assert parse(_yaml("agent.skills.path", path)).settings.agent.skills.path == path


@pytest.mark.parametrize("path", ["/srv/skills", "~/skills", "~"])
def test_the_users_skills_lie_outside_of_every_workspace(parse: "Parse", path: str) -> None:
    assert parse(_yaml("agent.skills.user_path", f"'{path}'")).settings.agent.skills.user_path == (path,)
    both = parse(_yaml("agent.skills.user_path", f"['{path}', /srv/more]")).settings.agent.skills
    assert both.user_path == (path, "/srv/more")


@pytest.mark.parametrize("path", ["library.db", "../library.db", "$HOME/library.db", "' '"])
def test_the_library_is_a_file_of_the_machine(parse: "Parse", refuse: "Refuse", path: str) -> None:
    (failure,) = refuse(_yaml("agent.library.path", path))
    assert failure.where == "/repo/WORKFLOW.md:5"
    for good in ("/srv/library.db", "~/library.db"):
        assert parse(_yaml("agent.library.path", good)).settings.agent.library.path == good


def test_skills_of_the_base_branch_need_a_repository(parse: "Parse", refuse: "Refuse") -> None:
    text = _yaml("agent.skills.source", "base_branch")
    (failure,) = refuse(text)
    assert failure.message.startswith("agent.skills.source can be base_branch only where workspace.repo")
    assert failure.where == "/repo/WORKFLOW.md:5"
    assert failure.hint
    settings = parse(text.replace("\nagent:", "\nworkspace: {repo: .}\nagent:")).settings
    assert settings.agent.skills.source == "base_branch"


def test_remote_instructions_need_an_address(refuse: "Refuse", parse: "Parse") -> None:
    (failure,) = refuse(_yaml("agent.instructions.source", "remote"))
    assert failure.message.startswith("agent.instructions.source is remote")
    assert failure.hint
    for url in ("https://example.org/rules/manifest.yaml", "http://127.0.0.1:8000/m.yaml", "http://[::1]/m"):
        front = _yaml("agent.instructions", f"{{source: remote, url: '{url}', sha256: {'A' * 64}}}")
        section = parse(front).settings.agent.instructions
        assert (section.url, section.sha256) == (url, "a" * 64)


@pytest.mark.parametrize("nothing", ["null", "", "~"])
def test_the_users_skills_can_be_switched_off(parse: "Parse", nothing: str) -> None:
    workflow = parse(_yaml("agent.skills.user_path", nothing))
    assert workflow.settings.agent.skills.user_path is None
    assert workflow.warnings == ()


def test_traces_go_to_a_url(parse: "Parse") -> None:
    url = "https://collector.example:4318/v1/traces"
    assert parse(f"{MINIMAL}tracing: {{endpoint: {url}}}\n").settings.tracing.endpoint == url


def test_turns_without_progress_need_not_end_a_run(parse: "Parse") -> None:
    workflow = parse(_yaml("agent.budget.max_turns_without_progress", "null"))
    assert workflow.settings.agent.budget.max_turns_without_progress is None


@pytest.mark.parametrize(
    ("key", "items", "expected"),
    [
        ("extra_paths", "[.agents/skills, '']", "[1] must be a path inside the workspace"),
        ("extra_paths", "[../x]", "[0] must be a path inside the workspace"),
        ("extra_paths", "[/etc]", "[0] must be a path inside the workspace"),
        ("extra_paths", "[7]", "[0] must be text, not a number"),
        ("include", "[a, ' ']", "[1] must not be blank"),
        ("disabled_skills", "[true]", "[0] must be text, not true or false"),
        ("reserved_words", "[null]", "[0] must be text, not nothing"),
    ],
)
def test_an_item_that_does_not_fit_is_told_by_its_number(
    refuse: "Refuse", key: str, items: str, expected: str
) -> None:
    (failure,) = refuse(_yaml(f"agent.skills.{key}", items))
    assert failure.message.startswith(f"agent.skills.{key}{expected}")
    assert failure.where


@pytest.mark.conformance("C-6")
def test_state_limits_are_normalised_and_bad_entries_are_left_out(parse: "Parse") -> None:
    workflow = parse(
        f"{MINIMAL}agent:\n"
        "  max_concurrent_agents_by_state:\n"
        "    ' In Progress ': 2\n"
        "    Todo: 0\n"
        "    Review: true\n"
        "    QA: many\n"
        "    ' ': 3\n"
        "    IN PROGRESS: 4\n"
        "    done: 1\n"
    )

    assert workflow.settings.agent.max_concurrent_agents_by_state == {"in progress": 2, "done": 1}
    assert [(warning.where, warning.message.split(": ", 1)[1]) for warning in workflow.warnings] == [
        (f"{FILE}:6", '"Todo" is ignored: a limit is a whole number greater than 0'),
        (f"{FILE}:7", '"Review" is ignored: a limit is a whole number greater than 0'),
        (f"{FILE}:8", '"QA" is ignored: a limit is a whole number greater than 0'),
        (f"{FILE}:9", '" " is ignored: a state needs a name'),
        (f"{FILE}:10", '"IN PROGRESS" is ignored: the same state is listed above'),
    ]


@pytest.mark.conformance("C-2")
def test_a_tracker_kind_is_required(refuse: "Refuse") -> None:
    for text in (
        "---\n---\n",
        "---\ntracker: {}\n",
        "---\ntracker: {kind: }\n",
        "---\ntracker: {kind: ' '}\n",
    ):
        (failure,) = refuse(text)
        assert failure.category is Category.MISSING_TRACKER_KIND
        assert failure.message == "tracker.kind is required"
        assert failure.where == f"{FILE}:2"
        assert failure.hint == "supported: markdown, memory"


def test_a_file_without_front_matter_is_told_so(refuse: "Refuse") -> None:
    (failure,) = refuse("Work on {{ issue.title }}")

    assert failure.category is Category.MISSING_TRACKER_KIND
    assert failure.where == f"{FILE}:1"
    assert failure.hint == 'the file has no front matter: its first line must be "---"'


@pytest.mark.conformance("C-2")
def test_a_tracker_kind_must_be_supported(refuse: "Refuse") -> None:
    (failure,) = refuse("---\n\ntracker:\n  kind: jira\n")

    assert failure.category is Category.UNSUPPORTED_TRACKER_KIND
    assert failure.message == 'tracker.kind "jira" is not supported'
    assert failure.where == f"{FILE}:4"
    assert failure.hint == "supported: markdown, memory"


def test_a_tracker_kind_that_means_nothing_is_not_supported(refuse: "Refuse") -> None:
    (failure,) = refuse("---\ntracker: {kind: teapot}\n")

    assert failure.category is Category.UNSUPPORTED_TRACKER_KIND
    assert failure.message == 'tracker.kind "teapot" is not supported'


def test_a_misspelt_tracker_kind_gets_a_suggestion(refuse: "Refuse") -> None:
    (failure,) = refuse("---\ntracker: {kind: Markdown}\n")
    assert failure.hint == 'did you mean "markdown"?'


def test_an_agent_kind_must_be_supported(refuse: "Refuse") -> None:
    (failure,) = refuse(f"{MINIMAL}agent:\n  kind: claude\n")

    assert failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert failure.message == 'agent.kind "claude" is not supported'
    assert failure.where == f"{FILE}:4"
    assert failure.hint == "supported: codex"


def test_a_value_from_the_file_cannot_break_the_line_of_a_message(refuse: "Refuse") -> None:
    (failure,) = refuse('---\ntracker: {kind: "a\\nb' + "c" * 200 + '"}\n')
    assert failure.message == f'tracker.kind "a\\nb{"c" * 57}..." is not supported'


@pytest.mark.conformance("C-7")
def test_unknown_keys_are_warned_about_with_a_suggestion(parse: "Parse") -> None:
    workflow = parse(
        f"{MINIMAL}agent:\n  max_turn: 3\n  skills:\n    pth: x\n  rule: []\npoling: {{}}\nzzz: 1\n"
    )

    assert workflow.settings.agent.max_turns == 20
    assert [(w.where, w.message, w.hint) for w in workflow.warnings] == [
        (f"{FILE}:4", 'unknown key "agent.max_turn" is ignored', 'did you mean "max_turns"?'),
        (f"{FILE}:6", 'unknown key "agent.skills.pth" is ignored', 'did you mean "path"?'),
        (f"{FILE}:7", 'unknown key "agent.rule" is ignored', 'did you mean "rules"?'),
        (f"{FILE}:8", 'unknown section "poling" is ignored', 'did you mean "polling"?'),
        (f"{FILE}:9", 'unknown section "zzz" is ignored', None),
    ]


def test_a_section_that_stands_too_high_gets_its_place_as_a_hint(parse: "Parse") -> None:
    workflow = parse(f"{MINIMAL}skills:\n  path: x\nphases: {{}}\nray: {{}}\nagent:\n  skills: {{}}\n")
    assert [w.hint for w in workflow.warnings] == [
        "it belongs below agent: agent.skills",
        "it belongs below agent: agent.phases",
        "it belongs below worker: worker.ray",
    ]


@pytest.mark.parametrize("address", ["https://example.com/skills", "git+ssh://host/x", "file:///srv/skills"])
@pytest.mark.parametrize(
    "key", ["skills: {path: %s}", "skills: {extra_paths: [%s]}", "instructions: {path: %s}"]
)
def test_an_address_in_the_place_of_a_path_gets_a_hint(refuse: "Refuse", key: str, address: str) -> None:
    (failure,) = refuse(f"{MINIMAL}agent:\n  {key % address}\n")
    assert failure.where == f"{FILE}:4"
    assert "agent.instructions.url" in failure.message
    assert "symphony skills import" in failure.message


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("false", False), (" FALSE ", False)])
def test_one_variable_overrides_whether_skills_are_used(parse: "Parse", text: str, *, expected: bool) -> None:
    environment = {"SYMPHONY_AGENT_SKILLS_ENABLED": text}
    for front in (MINIMAL, f"{MINIMAL}agent: {{skills: {{enabled: {str(not expected).lower()}}}}}\n"):
        assert parse(front, environment=environment).settings.agent.skills.enabled is expected


@pytest.mark.parametrize("text", ["", "1", "yes"])
def test_that_variable_says_true_or_false(refuse: "Refuse", text: str) -> None:
    (failure,) = refuse(MINIMAL, environment={"SYMPHONY_AGENT_SKILLS_ENABLED": text})

    assert failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert failure.message == "SYMPHONY_AGENT_SKILLS_ENABLED must be true or false"
    assert failure.where is None


@pytest.mark.conformance("C-9")
def test_no_other_variable_overrides_anything(parse: "Parse") -> None:
    environment = {"SYMPHONY_POLLING_INTERVAL_MS": "5", "SYMPHONY_AGENT_MAX_TURNS": "1", "HOME": "/h"}
    assert parse(MINIMAL, environment=environment).settings == parse(MINIMAL).settings


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file(refuse: "Refuse") -> None:
    failures = refuse(
        "---\n"
        "codex: {read_timeout_ms: 0}\n"
        "tracker: {kind: jira}\n"
        "workspace: {repo: $REPO}\n"
        "agent:\n"
        "  max_turns: 0\n"
        "---\n"
        "{{ issue.titel }}\n"
        "{{ other }}\n"
    )

    assert [failure.where for failure in failures] == [f"{FILE}:{line}" for line in (2, 3, 4, 6, 8, 9)]


LABELS = {
    "tracker: {kind: markdown, required_labels: [Symphony, ' ']}": {"symphony"},
    "agent: {rules: [{use: codex, label: Use-Codex}, {use: codex, state: Review}]}": {"use-codex"},
    "agent: {phases: {rules: [{phase: test, label: ' Tests  now '}]}}": {"tests now"},
    "forge: {land_limits: {labels: [Ship-It]}}": {"ship-it"},
    "forge: {labels: [agent]}\nworker: {ray: {labels: {a: b}}}": set(),
}
NO_LABELS_OF_ISSUES = {"forge.labels", "worker.ray.labels"}
"""They are put on pull requests and decide nothing, or are those of machines."""


@pytest.mark.parametrize(("given", "deciding"), LABELS.items())
def test_the_labels_that_decide_are_known(parse: "Parse", given: str, deciding: set[str]) -> None:
    text = f"---\n{given}\n" if given.startswith("tracker") else f"{MINIMAL}{given}\n"
    assert parse(f"{text}---\nbody").settings.deciding_labels == deciding


def test_every_setting_that_names_a_label_is_looked_at() -> None:
    named = {key for key in KEYS if "label" in key and not key.endswith(".ray_labels")}
    assert named - NO_LABELS_OF_ISSUES == {"tracker.required_labels", "forge.land_limits.labels"}
    assert {rule.__name__ for rule in IssueRule.__subclasses__()} == {"AgentRule", "PhaseRule"}


def test_a_command_of_verify_is_called_by_its_first_line_unless_it_has_a_name() -> None:
    assert VerifyCommand(run="make lint\nmake test").title == "make lint"
    assert VerifyCommand(run="make lint", name="style").title == "style"


def test_workers_get_the_marked_settings_that_the_file_has() -> None:
    marked = marked_for_workers(Settings)
    assert {"workspace", "hooks", "verify", "agent", "codex"} <= marked.keys()
    assert not {"tracker", "forge", "notify", "server"} & marked.keys()
