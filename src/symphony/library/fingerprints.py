"""Which texts are the same, so that nothing returns that people have removed or rejected. Pure.

Blanks, capitals, hidden characters and the marks of agents make no difference, and neither does the name.
"""

import json
import unicodedata
from hashlib import sha256

from symphony.characters import without_ignorable
from symphony.library.model import SkillText
from symphony.library.provenance import unmarked


def change_fingerprint(text: SkillText, skill_id: int | None) -> str:
    """Of a change to the letter; `skill_id` is the skill that it changes, `None` for a new one."""
    parts = (skill_id, text.name, text.description, text.when_to_use, text.content, unmarked(text).extra)
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def body_fingerprint(text: SkillText) -> str:
    """Of the body; of the description if the body is empty."""
    return sha256((_folded(text.content) or _folded(text.description)).encode()).hexdigest()


def says_as_much(text: SkillText, other: SkillText) -> bool:
    """Whether a text is another one of the same body, perhaps with further keys in its front matter."""
    mine, others = (
        {"description": _folded(one.description), "when_to_use": _folded(one.when_to_use)}
        | {_folded(key): _folded(json.dumps(value)) for key, value in unmarked(one).extra.items()}
        for one in (text, other)
    )
    return mine.items() >= others.items()


def _folded(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", without_ignorable(text, needed=False)).casefold().split())
