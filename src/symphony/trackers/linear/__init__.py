"""Linear, by its GraphQL API (kind `linear`; docs/trackers/linear.md)."""

from symphony.trackers import issue_tools
from symphony.trackers.linear.config import PROVIDER_KEYS, SECRET_NAMES, LinearConfig, read_config
from symphony.trackers.linear.flows import LinearFlows
from symphony.trackers.remote import RemoteKind
from symphony.trackers.webhooks import LINEAR

__all__ = ["KIND", "LinearConfig"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*issue_tools.NAMES, "linear_graphql"),
    configure=read_config,
    flows=LinearFlows,
    webhooks=LINEAR,
)
