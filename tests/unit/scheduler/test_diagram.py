"""The picture of claims in the docs is drawn from the table, so it cannot be wrong.

To redraw it after a change of the table, paste the output of
`PYTHONPATH=src:tests python tests/unit/scheduler/test_diagram.py` between the two marks.
"""

import sys
from pathlib import Path

from symphony.scheduler import TRANSITIONS, Claim

_PAGE = Path(__file__).parents[3] / "docs" / "ARCHITECTURE.md"
_BEGIN, _END = "<!-- claims:begin -->", "<!-- claims:end -->"


def draw() -> str:
    """The table of claims as a fenced state diagram."""
    arrows = [
        f"    {before.value} --> {after.value}: {trigger.value}"
        for (before, trigger), after in TRANSITIONS.items()
    ]
    return "\n".join(
        ["```mermaid", "stateDiagram-v2", f"    [*] --> {Claim.UNCLAIMED.value}", *arrows, "```"]
    )


def test_the_docs_show_the_claims_as_they_are() -> None:
    page = _PAGE.read_text(encoding="utf-8")
    assert page.count(_BEGIN) == page.count(_END) == 1
    shown = page.split(_BEGIN)[1].split(_END)[0]
    assert shown.strip() == draw()


if __name__ == "__main__":
    sys.stdout.write(draw() + "\n")
