"""Who answers to `initialize`: the name and version in the user agent that it tells. Pure."""

import re

from symphony.agents.codex import params
from symphony.agents.redaction import redact

__all__ = ["who"]

_AGENT = re.compile(r"^([^/\s]+)/(\d+\.\d+\S*)")
_OUR_NAME = str(params.initialize()["clientInfo"]["name"])


def who(user_agent: str) -> tuple[str | None, str | None]:
    """Name and version, null where they are not told.

    Codex calls itself by the name of its client, which is ours; other speakers have their own.
    """
    found = _AGENT.match(user_agent)
    if found is None:
        return None, None
    return "codex" if found[1] == _OUR_NAME else redact(found[1], 100), redact(found[2], 100)
