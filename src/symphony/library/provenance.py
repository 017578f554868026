"""Where a learned skill comes from, in the `metadata` of its front matter. Pure.

A new skill of an agent is marked. Nothing that an agent writes changes or forges a mark.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from symphony.library.model import Origin, SkillText

ORIGIN: Final = "symphony-origin"
RUN: Final = "symphony-run"
AGENT: Final = "symphony-agent"
MODEL: Final = "symphony-model"
_KEYS: Final = frozenset({ORIGIN, RUN, AGENT, MODEL})


def provenance(*, run_id: str, agent: str, model: str | None) -> Mapping[str, str]:
    """The mark of a skill that an agent wrote in a run; `model` is `None` if it is not known."""
    known = {} if model is None else {MODEL: model}
    return {ORIGIN: Origin.LEARNED.value, RUN: run_id, AGENT: agent, **known}


def marked(text: SkillText, before: SkillText | None, mark: Mapping[str, str]) -> SkillText:
    """What an agent wrote, with the mark that belongs to it.

    Args:
        text: with whatever the agent claims.
        before: the skill that it changes, whose mark stays as it is; `None` for a new skill.
        mark: of a new skill.
    """
    own = {key: value for key, value in _metadata(text).items() if key not in _KEYS}
    kept = mark if before is None else _metadata(before)
    metadata = own | {key: value for key, value in kept.items() if key in _KEYS}
    extra = {key: value for key, value in text.extra.items() if key != "metadata"}
    return structs.replace(text, extra=extra | ({"metadata": metadata} if metadata else {}))


def unmarked(text: SkillText) -> SkillText:
    """The text without its mark."""
    return marked(text, None, {})


def is_learned(text: SkillText) -> bool:
    """Whether the text is marked as that of an agent, such as one that another library exported."""
    return _metadata(text).get(ORIGIN) == Origin.LEARNED.value


def _metadata(text: SkillText) -> Mapping[str, object]:
    found = text.extra.get("metadata")
    return found if isinstance(found, Mapping) else {}
