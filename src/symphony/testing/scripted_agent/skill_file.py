"""Find a skill in the system-level block and a value in its body, as a model would read them (pure)."""

import re
from collections.abc import Sequence

__all__ = ["candidate_paths", "value_in"]

_HEADING = re.compile(r"^## Available skills[ \t]*$", re.MULTILINE)
_ROOT = re.compile(r"(/[^`<>\n]*)/<[^<>\n]+>/SKILL\.md")
_USUAL_KEYS = ("commit-prefix", "signed-off-by", "signed-off")


def candidate_paths(instructions: str, name: str) -> Sequence[str]:
    """Where the `## Available skills` block says that SKILL.md of `name` is; empty when it lists none.

    More than one where the entry has a remark in parentheses, which names a directory that differs from the
    skill; the first that exists counts.
    """
    heading = _HEADING.search(instructions)
    if heading is None:
        return ()
    body = re.split(r"^#{1,2} ", instructions[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    root = _ROOT.search(body)
    entry = re.search(rf"^- `?{re.escape(name)}`?(?=$|[ \t(]|:)(.*)$", body, re.MULTILINE)
    if root is None or entry is None:
        return ()
    remark = re.match(r"\s*\(([^)]*)\)", entry[1])
    directories = [*re.findall(r"[A-Za-z0-9._-]+", remark[1] if remark else ""), name]
    return [f"{root[1]}/{directory}/SKILL.md" for directory in directories]


def value_in(text: str, key: str | None) -> str | None:
    """The value of the first line `key: value` of a SKILL.md's body; null when there is none.

    A line may be a list entry or stand in backticks. Without a key the usual ones are tried in order.
    """
    body = re.sub(r"\A---\r?\n.*?^---[ \t]*\r?$", "", text, count=1, flags=re.MULTILINE | re.DOTALL)
    for wanted in (key,) if key is not None else _USUAL_KEYS:
        found = re.search(
            rf"^[\s>*`-]*{re.escape(wanted)}[*`]*:[ \t]*(.+?)[\s`]*$", body, re.MULTILINE | re.IGNORECASE
        )
        if found is not None:
            return found[1].strip("`* \t")
    return None
