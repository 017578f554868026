"""Records where the text of a skill comes from, and compares texts. Pure.

A new skill of an agent has a mark in the `metadata` of its front matter. Agents cannot change or forge a
mark. Fingerprints recognise texts that people have removed or rejected. The fingerprint of a body ignores
blanks, case, hidden characters, marks and the name.
"""

import json
import unicodedata
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from msgspec import structs

from symphony.characters import without_ignorable
from symphony.library.model import Origin, SkillText

ORIGIN: Final = "symphony-origin"
RUN: Final = "symphony-run"
AGENT: Final = "symphony-agent"
MODEL: Final = "symphony-model"
_KEYS: Final = frozenset({ORIGIN, RUN, AGENT, MODEL})


def provenance(*, run_id: str, agent: str, model: str | None) -> Mapping[str, str]:
    """The mark of a skill that an agent wrote in a run; `model` is `None` if it is unknown."""
    known = {} if model is None else {MODEL: model}
    return {ORIGIN: Origin.LEARNED.value, RUN: run_id, AGENT: agent, **known}


def marked(text: SkillText, before: SkillText | None, mark: Mapping[str, str]) -> SkillText:
    """The text of an agent, with the right mark.

    Args:
        text: the text with the agent's claims.
        before: the skill that it changes, whose mark stays unchanged; `None` for a new skill.
        mark: the mark of a new skill.
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
    """Whether the text has the mark of an agent, for example after an export from another library."""
    return _metadata(text).get(ORIGIN) == Origin.LEARNED.value


def _metadata(text: SkillText) -> Mapping[str, object]:
    found = text.extra.get("metadata")
    return found if isinstance(found, Mapping) else {}


def change_fingerprint(text: SkillText, skill_id: int | None) -> str:
    """The fingerprint of a change, by its exact text; `skill_id` is `None` for a new skill."""
    parts = (skill_id, text.name, text.description, text.when_to_use, text.content, unmarked(text).extra)
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def body_fingerprint(text: SkillText) -> str:
    """The fingerprint of the body, or of the description if the body is empty."""
    return sha256((_folded(text.content) or _folded(text.description)).encode()).hexdigest()


def says_as_much(text: SkillText, other: SkillText) -> bool:
    """Whether `text` has the body and all front matter of `other`, perhaps with further keys."""
    mine, others = (
        {"description": _folded(one.description), "when_to_use": _folded(one.when_to_use)}
        | {_folded(key): _folded(json.dumps(value)) for key, value in unmarked(one).extra.items()}
        for one in (text, other)
    )
    return mine.items() >= others.items()


def _folded(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", without_ignorable(text, needed=False)).casefold().split())
