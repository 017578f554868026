"""Where the protocol of an installed Codex has drifted from what we speak, by its own schemas. Pure.

What we send is taken from the functions that make it, with every setting set, so that no second list can lag
behind. Compared are names and what must be there: a change of meaning is not seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from symphony.agents.codex import params
from symphony.agents.codex.mapping import HEARD
from symphony.agents.codex.policy import ANSWERED, REFUSED
from symphony.config.settings import CodexSettings
from symphony.domain.tools import ToolSpec

__all__ = ["ESSENTIAL", "SCHEMAS", "SENT", "TRIED", "Drift", "drift"]

TRIED: Final = "0.169.0"
"""The version that all of this was tried with."""

SCHEMAS: Final = ("ClientRequest", "ServerRequest", "ServerNotification")
"""The files of `codex app-server generate-json-schema` that are compared."""

ESSENTIAL: Final = frozenset({"initialize", "thread/start", "turn/start", "turn/interrupt"})
"""Requests without which there is no session."""

# No longer in the schemas of the version tried, and heard of others.
_OLDER: Final = frozenset({"turn/failed", "turn/cancelled"})
_SETTINGS: Final = CodexSettings(model="m", effort="high")
_PLACE: Final = Path("/workspace")
_TOOL: Final = ToolSpec(name="t", description="d", input_schema={"type": "object"})

SENT: Final[Mapping[str, params.Params]] = {
    "initialize": params.initialize(),
    "thread/start": params.thread_start(
        _SETTINGS, cwd=_PLACE, envelope="e", tools=[_TOOL], credentials=["K"], own_skill_listing=False
    ),
    "thread/resume": params.thread_resume(
        _SETTINGS, thread_id="t", cwd=_PLACE, credentials=["K"], own_skill_listing=False
    ),
    "turn/start": params.turn_start(_SETTINGS, thread_id="t", cwd=_PLACE, prompt="p", envelope="e"),
    "turn/interrupt": {"threadId": "t", "turnId": "u"},
    "thread/name/set": {"threadId": "t", "name": "n"},
    "account/read": {"refreshToken": False},
    "model/list": {},
    "command/exec": {"command": ["true"], "cwd": "/", "timeoutMs": 1, "sandboxPolicy": {}},
}
"""Every request that we may send, with every parameter that it may carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What no longer fits, a phrase each; `fatal` where no session could be run."""

    fatal: bool
    findings: tuple[str, ...]


def drift(schemas: Mapping[str, Mapping[str, Any]]) -> Drift:
    """Compare the schemas (by the names of `SCHEMAS`) with what we send, answer and hear."""
    known = _methods(schemas["ClientRequest"])
    missing = [method for method in SENT if method not in known]
    findings = [f"it does not know {method}" for method in missing]
    for method, asked in SENT.items():
        if method in known:
            findings += _differences(method, asked, known[method])
    asks = _methods(schemas["ServerRequest"]).keys() - ANSWERED - REFUSED
    findings += [f"it may ask {method}, which is refused" for method in sorted(asks)]
    silent = HEARD - _OLDER - _methods(schemas["ServerNotification"]).keys()
    findings += [f"it does not tell {method}" for method in sorted(silent)]
    return Drift(fatal=not ESSENTIAL.isdisjoint(missing), findings=tuple(findings))


def _differences(method: str, asked: params.Params, schema: Mapping[str, Any]) -> Iterator[str]:
    takes, wants = schema.get("properties"), schema.get("required", ())
    if isinstance(takes, dict):
        yield from (f"{method} does not take {name}" for name in sorted(asked.keys() - takes.keys()))
    yield from (f"{method} wants {name}" for name in wants if name not in asked)


def _methods(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The schema of the params of each method that a file tells of."""
    definitions = schema.get("definitions", {})
    found: dict[str, Mapping[str, Any]] = {}
    for entry in schema.get("oneOf", ()):
        properties = entry.get("properties", {})
        asked = properties.get("params", {})
        name = str(asked.get("$ref", "")).removeprefix("#/definitions/")
        for method in properties.get("method", {}).get("enum", ()):
            found[method] = definitions.get(name, asked)
    return found
