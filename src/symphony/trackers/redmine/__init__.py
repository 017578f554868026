"""Redmine, version 5.0 and later (kind `redmine`; docs/trackers/redmine.md)."""

from symphony.trackers import issue_tools
from symphony.trackers.redmine.config import PROVIDER_KEYS, SECRET_NAMES, RedmineConfig, read_config
from symphony.trackers.redmine.flows import RedmineFlows
from symphony.trackers.remote import RemoteKind

__all__ = ["KIND", "RedmineConfig"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*issue_tools.NAMES, "redmine_api"),
    configure=read_config,
    flows=RedmineFlows,
)
