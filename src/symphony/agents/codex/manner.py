"""How Codex speaks and words its refusals, for the connection that all JSON-RPC agents share."""

from symphony.agents.codex.errors import INSTALL_HINT
from symphony.agents.redaction import redact
from symphony.agents.wire.connection import Manner
from symphony.agents.wire.jsonrpc import Refusal
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["MANNER"]

_INVALID = frozenset({-32600, -32602})
_POLICY_HINT = "check codex.approval_policy, codex.thread_sandbox, codex.turn_sandbox_policy and codex.model"


def _refusal(answer: Refusal) -> Failure:
    """A start refused as invalid will be refused again: the settings name something unknown."""
    ours = answer.code in _INVALID and answer.method in {"thread/start", "turn/start"}
    return Failure(
        category=Category.RESPONSE_ERROR,
        blame=Blame.CONFIG if ours else Blame.AGENT,
        message=redact(f"{answer.method} was refused: {answer.message} ({answer.code})"),
        retryable=not ours,
        hint=_POLICY_HINT if ours else None,
    )


MANNER = Manner(missing=Category.CODEX_NOT_FOUND, install_hint=INSTALL_HINT, refusal=_refusal)
