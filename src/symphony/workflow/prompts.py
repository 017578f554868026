"""Prompt texts of our own: what is said when the file has no body, and at every turn after the first."""

__all__ = ["DEFAULT_PROMPT", "continuation_prompt"]

DEFAULT_PROMPT = """\
You have been given one issue of the tracker this project is run with. Work on it in the current directory.

{{ issue.identifier }}: {{ issue.title }}

{% if issue.description %}{{ issue.description }}{% else %}The issue has no description.{% endif %}
"""
"""The template that stands in for an empty body (PR5); rendered like any other."""


def continuation_prompt(turn: int, max_turns: int) -> str:
    """What a turn after the first one says (PR6): guidance only, never the task again.

    Args:
        turn: number of the turn about to start, 2 for the first continuation.
        max_turns: how many turns this session may have.
    """
    return (
        f"Your previous turn came to a normal end, yet the tracker still shows this issue as active. "
        f"This is turn {turn} of {max_turns}.\n\n"
        "- Carry on from the workspace as it is now; your earlier work is in it.\n"
        "- The task is already above in this conversation, so do not restate it.\n"
        "- Do what is left. While the issue is active, end the turn only if something outside your reach "
        "stops you, and then say exactly what."
    )
