"""How a conversation with an agent ends early: its process is gone, or it does not answer (AG10, AG12)."""

from symphony.agents.base import AgentError
from symphony.agents.process import AgentProcess
from symphony.agents.redaction import redact
from symphony.domain.failures import Blame, Category, Failure

__all__ = ["ending", "response_timeout"]

_NOT_FOUND_EXIT = 127


async def ending(process: AgentProcess, *, missing: Category, install_hint: str, heard: bool) -> Failure:
    """Why the stream of a process has ended.

    `missing` and `install_hint` are for a program that is not there, which `heard`, that it has said
    something before, rules out.
    """
    code = await process.exit_code()
    last = await process.stderr_line()
    said = f": {last}" if last else ""
    if code == _NOT_FOUND_EXIT and not heard:
        return Failure(
            category=missing,
            blame=Blame.CONFIG,
            message=redact(f"the agent's program was not found{said}"),
            hint=install_hint,
        )
    ended = "closed its output" if code is None else f"ended with exit code {code}"
    return Failure(category=Category.PORT_EXIT, blame=Blame.AGENT, message=redact(f"the agent {ended}{said}"))


def response_timeout(message: str) -> AgentError:
    """An agent that does not answer, or does not read, in time."""
    return AgentError(Failure(category=Category.RESPONSE_TIMEOUT, blame=Blame.AGENT, message=message))
