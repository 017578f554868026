"""The same adapter under the name of Gitea, with variables of its own."""

from symphony.trackers import issue_tools, webhooks
from symphony.trackers.forgejo.config import GITEA, PROVIDER_KEYS, reader_of
from symphony.trackers.forgejo.flows import ForgejoFlows
from symphony.trackers.remote import RemoteKind

__all__ = ["KIND"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=frozenset({GITEA.token_variable}),
    tools=(*issue_tools.NAMES, "forgejo_api"),
    configure=reader_of(GITEA),
    flows=ForgejoFlows,
    webhooks=webhooks.FORGEJO,
)
"""What `tracker` means for Gitea (TR10)."""
