"""GitLab issues, on gitlab.com and on servers of one's own (kind `gitlab`; docs/trackers/gitlab.md)."""

from symphony.trackers import issue_tools
from symphony.trackers.gitlab.config import PROVIDER_KEYS, SECRET_NAMES, GitlabConfig, read_config
from symphony.trackers.gitlab.flows import GitlabFlows
from symphony.trackers.remote import RemoteKind
from symphony.trackers.webhooks import GITLAB

__all__ = ["KIND", "GitlabConfig"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*issue_tools.NAMES, "gitlab_api"),
    configure=read_config,
    flows=GitlabFlows,
    webhooks=GITLAB,
)
