"""What a person should know about `codex` settings before anything runs: open sandboxes, refused policies."""

from pathlib import Path

from symphony.agents.codex import params
from symphony.agents.posture import Remark
from symphony.workflow.settings import CodexSettings

__all__ = ["OPEN_SANDBOXES", "refused_policy", "unguarded"]

OPEN_SANDBOXES = frozenset({"dangerFullAccess", "externalSandbox"})
_OPEN = frozenset(name.lower() for name in OPEN_SANDBOXES)
_ACCEPTED_POLICIES = ("never", "on-request", "untrusted")
_BYPASSES = ("--dangerously-bypass-approvals-and-sandbox", "--yolo", "danger-full-access")


def unguarded(settings: CodexSettings) -> Remark | None:
    """Why sessions would run without a sandbox of ours; null where they are guarded (CL5).

    An agent that may ask to leave the sandbox and is always told yes has none.
    """
    hint = "leave the key out to keep the sandbox"
    for bypass in _BYPASSES:
        if bypass in settings.command.split() or f"={bypass}" in settings.command.replace('"', ""):
            return Remark(key="command", problem=f"holds {bypass}, which takes the guards away", hint=hint)
    sandbox = params.turn_sandbox(settings, Path("/"))
    kind = str((sandbox or {}).get("type", ""))
    if kind.replace("-", "").replace("_", "").lower() in _OPEN:
        key = "thread_sandbox" if settings.turn_sandbox_policy is None else "turn_sandbox_policy"
        return Remark(key=key, problem="lets sessions run without a sandbox", hint=hint)
    if settings.on_approval == "accept" and settings.approval_policy != "never":
        problem = "accept lets sessions leave the sandbox whenever they ask for it"
        return Remark(key="on_approval", problem=problem, hint="decline is the default")
    return None


def refused_policy(settings: CodexSettings) -> Remark | None:
    """An approval policy that Codex 0.169 answers with an error; it is passed on all the same (AG14)."""
    policy = settings.approval_policy
    if isinstance(policy, str):
        known, shown = policy in _ACCEPTED_POLICIES, policy[:60]
    else:
        known, shown = set(policy) == {"granular"}, "{" + ", ".join(sorted(map(str, policy)))[:60] + ": …}"
    if known:
        return None
    names = ", ".join(_ACCEPTED_POLICIES)
    return Remark(
        key="approval_policy",
        problem=f"{shown!r} is refused by Codex 0.169, and then no session starts",
        hint=f"write {names} or {{granular: …}}; `never` declines what an unattended session would ask for",
    )
