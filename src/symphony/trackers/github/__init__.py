"""GitHub Issues, on github.com and on GitHub Enterprise Server (kind `github`; docs/trackers/github.md)."""

from symphony.trackers import issue_tools
from symphony.trackers.github.config import PROVIDER_KEYS, SECRET_NAMES, GithubConfig, read_config
from symphony.trackers.github.flows import GithubFlows
from symphony.trackers.remote import RemoteKind
from symphony.trackers.webhooks import GITHUB

__all__ = ["KIND", "GithubConfig"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*issue_tools.NAMES, "github_api"),
    configure=read_config,
    flows=GithubFlows,
    webhooks=GITHUB,
)
