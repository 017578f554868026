"""Jira Cloud, and not Jira Server or Data Center (kind `jira`; docs/trackers/jira.md)."""

from symphony.trackers import issue_tools
from symphony.trackers.jira.config import PROVIDER_KEYS, SECRET_NAMES, JiraConfig, read_config
from symphony.trackers.jira.flows import JiraFlows
from symphony.trackers.remote import RemoteKind
from symphony.trackers.webhooks import JIRA

__all__ = ["KIND", "JiraConfig"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*issue_tools.NAMES, "jira_rest"),
    configure=read_config,
    flows=JiraFlows,
    webhooks=JIRA,
)
