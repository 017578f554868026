"""Every name under which a credential is known is one of the list, and no name is that of something else."""

import pytest

from symphony.agents.environment import AGENT_KEYS, ALL_CREDENTIALS
from symphony.cli.scaffolding import TRACKERS as SCAFFOLDS
from symphony.domain import CREDENTIALS, CREDENTIALS_BY_SERVICE
from symphony.trackers.registry import TRACKERS, tracker_kind

ALIASES = {
    "github": {"GITHUB_TOKEN", "GH_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"},
    "gitlab": {"GITLAB_PAT", "GITLAB_ACCESS_TOKEN", "GITLAB_TOKEN", "GITLAB_PRIVATE_TOKEN", "CI_JOB_TOKEN"},
    "jira": {"JIRA_API_TOKEN", "JIRA_PERSONAL_TOKEN", "ATLASSIAN_API_TOKEN"},
    "linear": {"LINEAR_API_KEY", "LINEAR_ACCESS_TOKEN"},
    "asana": {"ASANA_PAT", "ASANA_ACCESS_TOKEN"},
    "redmine": {"REDMINE_API_KEY"},
    "forgejo": {"FORGEJO_TOKEN", "GITEA_TOKEN", "GITEA_SERVER_TOKEN"},
    "gitea": {"GITEA_TOKEN", "FORGEJO_TOKEN", "GITEA_SERVER_TOKEN"},
}


@pytest.mark.conformance("A-14")
@pytest.mark.parametrize("kind", TRACKERS.names)
def test_a_tracker_declares_every_name_of_its_credential(kind: str) -> None:
    assert tracker_kind(kind).secret_names == CREDENTIALS_BY_SERVICE.get(kind, frozenset())
    assert tracker_kind(kind).secret_names >= ALIASES.get(kind, set())


def test_what_init_asks_for_is_in_the_list() -> None:
    asked = {variable.name for each in SCAFFOLDS.values() for variable in each.variables}
    assert asked - CREDENTIALS == {"JIRA_EMAIL"}


@pytest.mark.parametrize(
    "name", ["GITHUB_REPO", "GITHUB_ACTIONS", "CI", "CI_COMMIT_SHA", "JIRA_EMAIL", "OPENAI_BASE_URL", "PATH"]
)
def test_what_does_not_authenticate_is_not_in_the_list(name: str) -> None:
    assert name not in ALL_CREDENTIALS


def test_keys_of_models_are_no_names_of_trackers() -> None:
    assert not CREDENTIALS & AGENT_KEYS
