"""Tasks of an Asana project, with its sections as states (kind `asana`; docs/trackers/asana.md)."""

from symphony.trackers import issue_tools
from symphony.trackers.asana.config import PROVIDER_KEYS, SECRET_NAMES, AsanaConfig, read_config
from symphony.trackers.asana.flows import AsanaFlows
from symphony.trackers.remote import RemoteKind
from symphony.trackers.webhooks import ASANA

__all__ = ["KIND", "AsanaConfig"]

KIND = RemoteKind(
    provider_keys=PROVIDER_KEYS,
    secret_names=SECRET_NAMES,
    tools=(*issue_tools.NAMES, "asana_api"),
    configure=read_config,
    flows=AsanaFlows,
    webhooks=ASANA,
)
"""What `tracker` means for Asana; the keys of the reference, and `scope` (TR10)."""
