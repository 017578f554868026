"""GitHub Issues, on github.com and on GitHub Enterprise Server (kind `github`; docs/trackers/github.md)."""

from symphony.trackers.github.config import PROVIDER_KEYS, SECRET_NAMES, GithubConfig, read_config
from symphony.trackers.github.flows import GithubFlows
from symphony.trackers.remote import RemoteKind

__all__ = ["KIND", "GithubConfig"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS, secret_names=SECRET_NAMES, configure=read_config, flows=GithubFlows
)
