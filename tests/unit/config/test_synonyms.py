"""The table of other programs' names: every entry leads to something that exists, and none to an opposite."""

import pytest

from symphony.agents.acp.profiles import PROFILES as ACP
from symphony.agents.command.profiles import PROFILES as COMMANDS
from symphony.agents.registry import SECTIONS as KINDS
from symphony.config import KEYS, OTHER_HOOK_VARIABLES, did_you_mean, nearest_variable
from symphony.config.corrections import plain_name
from symphony.config.synonyms import (
    AGENTS,
    GITHUB_STATES,
    ISSUE_FIELDS,
    NONE,
    PROJECT_TRACKERS,
    PROVIDER,
    SANDBOXES,
    SECTIONS,
    SETTINGS,
    THINGS,
    TRACKERS,
)
from symphony.domain import Issue, template_view
from symphony.services.github.issues import GithubStates
from symphony.trackers.registry import TRACKERS as TRACKER_KINDS
from symphony.trackers.registry import tracker_kind
from symphony.workspaces import HOOK_VARIABLES


@pytest.mark.parametrize(("other", "ours"), SETTINGS.items())
def test_a_setting_by_another_name_is_one_of_ours(other: str, ours: str) -> None:
    assert ours in KEYS
    assert other not in KEYS
    assert other == ".".join(map(plain_name, other.split(".")))
    assert other not in NONE


def test_what_has_no_counterpart_is_no_setting_and_is_not_led_to_one_of_the_opposite_meaning() -> None:
    assert not NONE.keys() & KEYS.keys()
    assert "active_states" not in NONE["tracker.inactive_states"]
    assert "required_labels" not in NONE["tracker.exclude_labels"]
    assert "polling" not in NONE["policy"]


def test_sections_kinds_and_profiles_exist() -> None:
    roots = {key.partition(".")[0] for key in KEYS}
    assert set(SECTIONS.values()) <= roots
    assert not SECTIONS.keys() & roots
    assert set(TRACKERS.values()) | set(PROVIDER) <= set(TRACKER_KINDS.names)
    assert not TRACKERS.keys() & set(TRACKER_KINDS.names)
    assert set(TRACKERS) >= PROJECT_TRACKERS
    profiles = {"acp": ACP, "command": COMMANDS}
    for name, (kind, profile) in AGENTS.items():
        assert name not in KINDS
        assert kind in KINDS
        assert profile is None or profile in profiles[kind]


@pytest.mark.parametrize("kind", PROVIDER)
def test_what_a_tracker_calls_its_settings_is_what_it_reads(kind: str) -> None:
    keys = tracker_kind(kind).provider_keys
    for thing, key in PROVIDER[kind].items():
        assert key in keys
        assert key in THINGS[thing]


def test_fields_sandboxes_and_variables_exist() -> None:
    shape = template_view(Issue(id="", identifier="", title="", state="", dispatchable=False))
    assert set(ISSUE_FIELDS.values()) <= shape.keys()
    assert not ISSUE_FIELDS.keys() & shape.keys()
    assert set(GITHUB_STATES.values()) <= GithubStates.model_fields.keys()
    assert set(OTHER_HOOK_VARIABLES.values()) <= set(HOOK_VARIABLES)
    assert len(SANDBOXES) == 3


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("inactive_states", "active_states"),
        ("unrequired_labels", "required_labels"),
        ("exclude_labels", "required_labels"),
        ("policy", "polling"),
        ("opencode", "codex"),
        ("disable", "enabled"),
        ("exclude", "include"),
        ("min_turns", "max_turns"),
        ("after_remove", "before_remove"),
        ("on_stop", "on_start"),
        ("max_tokens", "max_turns"),
        ("nonactive_states", "active_states"),
    ],
)
def test_what_means_something_else_is_never_suggested(name: str, ours: str) -> None:
    assert did_you_mean(name, {ours}) is None


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("kidn", "kind"),
        ("polling_", "polling"),
        ("poling", "polling"),
        ("active_state", "active_states"),
        ("requierd_labels", "required_labels"),
        ("maxturns", "max_turns"),
        ("max-turns", "max_turns"),
        ("n_block", "on_block"),
        ("Codex", "codex"),
    ],
)
def test_a_slip_of_the_pen_is(name: str, ours: str) -> None:
    assert did_you_mean(name, {ours, "zzz"}) == f'did you mean "{ours}"?'


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("GITHUB_TOKEN", "GITLAB_TOKEN"),
        ("GITEA_TOKEN", "GITHUB_TOKEN"),
        ("MY_GITHUB_TOKEN", "MY_GITLAB_TOKEN"),
        ("JIRA_API_TOKEN", "API_TOKEN"),
        ("API_TOKEN", "JIRA_API_TOKEN"),
        ("LINEAR_API_KEY", "REDMINE_API_KEY"),
        ("OPENAI_API_KEY", "LINEAR_API_KEY"),
    ],
)
def test_the_variable_of_another_service_is_never_suggested(wanted: str, given: str) -> None:
    assert nearest_variable(wanted, {given: "x"}) is None


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("GITHUB_TOKNE", "GITHUB_TOKEN"),
        ("LINAER_API_KEY", "LINEAR_API_KEY"),
        ("GITHUB_TOKEN", "MY_GITHUB_TOKEN"),
        ("WORKSPACES", "WORKSPACE"),
    ],
)
def test_that_of_the_same_service_is(wanted: str, given: str) -> None:
    assert nearest_variable(wanted, {given: "x", "OTHER": "y"}) == given
