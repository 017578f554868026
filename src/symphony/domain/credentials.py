"""The environment variables that hold credentials of trackers, forges and chats.

The lists contain every name that a client of the service reads, because a token is valid under each of them
(openai/symphony pull request 119). Hooks and agents do not get these variables, even if a login profile sets
them. The settings can pass one on by name: `hooks.env`, and `env` of an agent. `AGENT_KEYS` lists the keys of
models.

The names come from the documentation of each service and its clients. A comment beside a name says from which
client.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_GITHUB: Final = frozenset(
    {
        *("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_ENTERPRISE_TOKEN"),  # gh environment
        *("COPILOT_GITHUB_TOKEN", "GITHUB_COPILOT_TOKEN"),  # Copilot CLI
        *(
            "GITHUB_PERSONAL_ACCESS_TOKEN",
            "GITHUB_PAT",
            "GITHUB_OAUTH_TOKEN",
        ),  # its MCP server, gitcreds, Composer
        *("GITHUB_API_TOKEN", "HOMEBREW_GITHUB_API_TOKEN", "GITHUB_PASSWORD"),  # octokit clients, brew, hub
        *("ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"),  # Actions
    }
)
_GITLAB: Final = frozenset(
    {
        *("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "OAUTH_TOKEN"),  # glab
        *("GITLAB_PAT", "GITLAB_PERSONAL_ACCESS_TOKEN", "GITLAB_API_TOKEN"),  # the profile, its MCP server
        *(
            "GITLAB_PRIVATE_TOKEN",
            "GITLAB_API_PRIVATE_TOKEN",
            "GITLAB_OAUTH_TOKEN",
            "GITLAB_JOB_TOKEN",
        ),  # libraries
        # predefined in CI/CD; the address of the repository holds the job's token
        *("CI_JOB_TOKEN", "CI_JOB_JWT", "CI_JOB_JWT_V1", "CI_JOB_JWT_V2", "CI_REPOSITORY_URL"),
        *("CI_DEPLOY_PASSWORD", "CI_REGISTRY_PASSWORD", "CI_DEPENDENCY_PROXY_PASSWORD"),
    }
)
_FORGEJO: Final = frozenset(
    {
        *(
            "FORGEJO_TOKEN",
            "FORGEJO_ACCESS_TOKEN",
            "FORGEJO_API_TOKEN",
            "CODEBERG_TOKEN",
        ),  # Forgejo's clients
        *("GITEA_TOKEN", "GITEA_ACCESS_TOKEN", "GITEA_API_TOKEN"),  # Gitea's clients and MCP server
        *("GITEA_SERVER_TOKEN", "GITEA_SERVER_PASSWORD"),  # tea
    }
)
_LINEAR: Final = frozenset(
    {
        *("LINEAR_API_KEY", "LINEAR_API_TOKEN", "LINEAR_TOKEN", "LINEAR_PERSONAL_API_KEY"),
        *("LINEAR_ACCESS_TOKEN", "LINEAR_OAUTH_TOKEN", "LINEAR_CLIENT_SECRET", "LINEAR_WEBHOOK_SECRET"),
    }
)
_JIRA: Final = frozenset(
    {
        *("JIRA_API_TOKEN", "JIRA_TOKEN", "JIRA_API_KEY", "JIRA_AUTH_TOKEN", "JIRA_ACCESS_TOKEN"),
        *("JIRA_PAT", "JIRA_PERSONAL_TOKEN", "JIRA_PASSWORD"),  # Data Center, the MCP server, jira
        *("ATLASSIAN_API_TOKEN", "ATLASSIAN_TOKEN", "ATLASSIAN_API_KEY", "ATLASSIAN_ACCESS_TOKEN"),
        *("ATLASSIAN_OAUTH_ACCESS_TOKEN", "ATLASSIAN_OAUTH_CLIENT_SECRET"),
        *("CONFLUENCE_API_TOKEN", "CONFLUENCE_PERSONAL_TOKEN"),  # the same account
    }
)
_ASANA: Final = frozenset(
    {
        *("ASANA_PAT", "ASANA_ACCESS_TOKEN", "ASANA_PERSONAL_ACCESS_TOKEN"),
        *("ASANA_TOKEN", "ASANA_API_KEY", "ASANA_API_TOKEN", "ASANA_CLIENT_SECRET"),
    }
)
_REDMINE: Final = frozenset({"REDMINE_API_KEY", "REDMINE_KEY", "REDMINE_API_TOKEN", "REDMINE_PASSWORD"})
_NOTIFICATIONS: Final = frozenset(
    {
        *("SLACK_WEBHOOK", "SLACK_WEBHOOK_URL", "SLACK_TOKEN", "SLACK_API_TOKEN", "SLACK_CLI_TOKEN"),
        *(
            "SLACK_BOT_TOKEN",
            "SLACK_APP_TOKEN",
            "SLACK_USER_TOKEN",
            "SLACK_SIGNING_SECRET",
            "SLACK_CLIENT_SECRET",
        ),
        *("DISCORD_WEBHOOK", "DISCORD_WEBHOOK_URL", "DISCORD_TOKEN", "DISCORD_BOT_TOKEN"),
        *("TEAMS_WEBHOOK_URL", "MSTEAMS_WEBHOOK_URL", "MATTERMOST_WEBHOOK_URL", "MATTERMOST_TOKEN"),
        *(
            "TELEGRAM_BOT_TOKEN",
            "TELEGRAM_TOKEN",
            "PAGERDUTY_TOKEN",
            "PAGERDUTY_ROUTING_KEY",
            "OPSGENIE_API_KEY",
        ),
    }
)

CREDENTIALS_BY_SERVICE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "github": _GITHUB,
        "gitlab": _GITLAB,
        "forgejo": _FORGEJO,
        "gitea": _FORGEJO,
        "linear": _LINEAR,
        "jira": _JIRA,
        "asana": _ASANA,
        "redmine": _REDMINE,
        "notifications": _NOTIFICATIONS,
    }
)
"""The variables by kind of tracker or forge; the key `notifications` has the variables of chats."""

CREDENTIALS: Final = frozenset[str]().union(*CREDENTIALS_BY_SERVICE.values())
"""The variables of all services."""
