"""The system-level text that we add to an agent's own (DESIGN 9): its optional parts, in their order."""

__all__ = ["assemble", "in_front"]


def assemble(*, skills_block: str | None) -> str | None:
    """The envelope: the parts that exist, a blank line between two of them; null when there is none.

    Null means that nothing at all is sent, so that an agent without skills sees the same bytes as one whose
    skills are switched off.
    """
    parts = [part for part in (skills_block,) if part is not None and part.strip()]
    return "\n\n".join(parts) or None


def in_front(envelope: str | None, prompt: str) -> str:
    """The prompt with the envelope before it: the way that every agent takes, system-level text or not."""
    if envelope is None:
        return prompt
    return f"<system-context>\n{envelope}\n</system-context>\n\n{prompt}"
