"""Words of others in a prompt or a comment, kept apart from our own: a fence that they cannot close.

Whoever may write an issue writes to the agent. A fence does not make a model deaf to what stands in it, but
the prompt can say what stands there, and nothing in there can pretend to be the prompt. In a comment nothing
in there is a mention, a picture, a link or markup.
"""

import re
from typing import Final

__all__ = ["fence"]

_BACKTICKS: Final = re.compile("`+")


def fence(text: object) -> str:
    """The text in a block of Markdown whose fence is longer than every run of backticks in it.

    Line breaks are made uniform; null and blank text give nothing. The Liquid filter `fence` is this.
    """
    lines = [] if text is None else str(text).strip().splitlines()
    if not lines:
        return ""
    inside = "\n".join(lines)
    longest = max((len(run) for run in _BACKTICKS.findall(inside)), default=0)
    border = "`" * max(3, longest + 1)
    return f"{border}text\n{inside}\n{border}"
