"""Issues on Forgejo and Gitea: one adapter, two kinds (`forgejo` and `gitea`; docs/trackers/forgejo.md)."""

from symphony.trackers import issue_tools, webhooks
from symphony.trackers.forgejo.config import FORGEJO, PROVIDER_KEYS, ForgejoConfig, reader_of
from symphony.trackers.forgejo.flows import ForgejoFlows
from symphony.trackers.remote import RemoteKind

__all__ = ["KIND", "ForgejoConfig"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=frozenset({FORGEJO.token_variable}),
    tools=(*issue_tools.NAMES, "forgejo_api"),
    configure=reader_of(FORGEJO),
    flows=ForgejoFlows,
    webhooks=webhooks.FORGEJO,
)
"""What `tracker` means for Forgejo (TR10)."""
