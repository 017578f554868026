"""Workflow files written for the reference parse here unchanged; only what this version lacks is refused."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from symphony.config import AGENT_SECTIONS, Settings, WorkflowFile, read_workflow_file, validate_workflow
from symphony.daemon.admission import judge
from symphony.domain import Issue
from symphony.trackers.registry import TRACKERS

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

FILES = sorted((Path(__file__).parent / "elixir").glob("*.md"))
ENVIRONMENT = {
    "HOME": "/home/ann",
    "ASANA_PAT": "a-value-that-is-secret",
    "GITHUB_TOKEN": "a-value-that-is-secret",
    "GITLAB_PAT": "a-value-that-is-secret",
    "JIRA_EMAIL": "bot@example.test",
    "JIRA_API_TOKEN": "a-value-that-is-secret",
    "LINEAR_API_KEY": "a-value-that-is-secret",
    "LINEAR_ASSIGNEE": "me",
    "SYMPHONY_WORKSPACES": "/srv/workspaces",
}

pytestmark = pytest.mark.conformance("C-7")


def read(name: str) -> WorkflowFile:
    return read_workflow_file(Path(__file__).parent / "elixir" / f"{name}.md")


def settings(name: str) -> Settings:
    judgement = validate_workflow(
        read(name), environment=ENVIRONMENT, tracker_kinds=TRACKERS.names, agent_kinds=AGENT_SECTIONS
    )
    assert judgement.failures == ()
    assert judgement.warnings == ()
    assert judgement.workflow is not None
    return judgement.workflow.settings


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_the_reference_parses_without_a_word(file: Path) -> None:
    assert settings(file.stem).tracker.kind in TRACKERS.names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_the_reference_is_served(file: Path) -> None:
    judgement = judge(read_workflow_file(file), environment=ENVIRONMENT, acknowledged=False)
    assert judgement.failures == ()


def test_the_test_double_is_there() -> None:
    judgement = judge(read("memory"), environment={}, acknowledged=False)
    assert judgement.failures == ()


def test_flat_keys_become_keys_of_the_provider() -> None:
    tracker = settings("linear_flat").tracker
    assert tracker.provider == {
        "endpoint": "https://linear.example.test/graphql",
        "api_key": "$LINEAR_API_KEY",
        "project_slug": "billing-a1b2c3",
        "assignee": "me",
    }
    assert tracker.active_states == ("Todo", "In Progress", "Merging")


def test_blocks_and_commands_arrive_as_they_stand() -> None:
    found = settings("linear_flat")
    assert found.hooks.after_create == (
        "git clone --depth 1 git@code.example.test:team/billing .\n"
        "if command -v mise >/dev/null 2>&1; then\n"
        "  mise trust && mise install\n"
        "fi\n"
    )
    assert found.codex.command == (
        "codex --config shell_environment_policy.inherit=all --config 'model=\"gpt-5.5\"' app-server"
    )
    assert found.workspace.root == Path("/home/ann/work/billing-workspaces")


def test_every_section_of_the_reference_is_understood() -> None:
    found = settings("linear_every_section")
    assert found.tracker.required_labels == ("agent-ready", "backend")
    assert found.workspace.root == Path("/srv/workspaces")
    assert found.worker.max_concurrent_agents_per_host == 2
    assert found.hooks.after_run == "git status --short"
    assert found.agent.max_concurrent_agents_by_state == {"todo": 1, "in progress": 3}
    assert found.codex.approval_policy == {
        "reject": {"sandbox_approval": True, "rules": True, "mcp_elicitations": True}
    }
    assert found.codex.turn_sandbox_policy == {
        "type": "workspaceWrite",
        "writableRoots": ["/srv/cache"],
        "readOnlyAccess": {"type": "fullAccess"},
        "networkAccess": True,
        "excludeTmpdirEnvVar": False,
        "excludeSlashTmp": False,
    }
    assert found.codex.stall_timeout_ms == 0
    assert (found.server.port, found.server.host) == (4000, "192.0.2.7")
    assert not found.observability.dashboard_enabled


def test_their_prompts_render() -> None:
    issue = Issue(
        id="1", identifier="PAY-1", title="Refunds", state="To Do", dispatchable=True, labels=("a",)
    )
    judgement = validate_workflow(
        read("linear_flat"), environment=ENVIRONMENT, tracker_kinds=TRACKERS.names, agent_kinds=AGENT_SECTIONS
    )
    assert judgement.workflow is not None
    text = judgement.workflow.template.render(issue, attempt=2)
    assert "The ticket is `PAY-1`." in text
    assert "This is attempt 2" in text
    assert "There is no description." in text


def linear(tracker: str) -> str:
    return f"---\ntracker:\n  kind: linear\n{tracker}---\nx"


def provider(parse: "Parse", tracker: str, kind: str = "linear") -> tuple[dict[str, Any], list[str]]:
    text = linear(tracker).replace("kind: linear", f"kind: {kind}")
    workflow = parse(text, tracker_kinds=("linear", "github"))
    return workflow.settings.tracker.provider, [warning.message for warning in workflow.warnings]


def test_flat_keys_fill_only_what_is_absent(parse: "Parse") -> None:
    found = provider(parse, "  project_slug: old\n  assignee: me\n  provider: {project_slug: new}\n")
    assert found == ({"project_slug": "new", "assignee": "me"}, [])


def test_a_flat_key_without_a_value_fills_nothing(parse: "Parse") -> None:
    assert provider(parse, "  project_slug:\n  provider:\n") == ({}, [])


def test_flat_keys_mean_nothing_to_other_trackers(parse: "Parse") -> None:
    found, warnings = provider(parse, "  assignee: me\n", kind="github")
    assert found == {}
    assert warnings == ['unknown key "tracker.assignee" is ignored']


def test_flat_keys_do_not_hide_a_provider_that_is_no_map(refuse: "Refuse") -> None:
    (failure,) = refuse(linear("  assignee: me\n  provider: 5\n"), tracker_kinds=("linear",))
    assert failure.message == "tracker.provider must be a map, not a number"


def test_a_flat_secret_is_masked_and_told_at_its_own_line(parse: "Parse") -> None:
    workflow = parse(linear("  api_key: correct-horse-battery\n"), tracker_kinds=("linear",))
    (warning,) = workflow.warnings
    assert warning.where == "/repo/WORKFLOW.md:4"
    assert "correct-horse" not in f"{warning} {workflow!r} {workflow.settings}"


def test_a_reference_of_another_spelling_is_text(parse: "Parse") -> None:
    assert provider(parse, "  project_slug: env:SLUG\n")[0] == {"project_slug": "env:SLUG"}
