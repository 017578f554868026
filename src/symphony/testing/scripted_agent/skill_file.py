"""Find a skill in the system-level block and a value in its body, as a model would read them (pure)."""

import re

__all__ = ["path_of", "value_in"]

_HEADING = re.compile(r"^## Available skills[ \t]*$", re.MULTILINE)
_ROOT = re.compile(r"(/[^`\n]*)/(?:<\w+>|\{\w+\})/SKILL\.md")
_DIRECTORY = re.compile(r"[ \t]*\(directory:? `?([^`\n]*?)`?\)(?=[ \t]|$)")
_FILE = re.compile(r"[ \t]*\(file: (/[^\n]*?/SKILL\.md)\)(?=[ \t]|$)")
_USUAL_KEYS = ("commit-prefix", "signed-off-by", "signed-off")


def path_of(instructions: str, name: str) -> str | None:
    """Where the `## Available skills` block says that SKILL.md of `name` is; null when it lists none such.

    The line on use names the root, as in `/skills-root/{directory}/SKILL.md`; an entry names its directory in
    parentheses where that differs from the skill, or the whole path of a file below another root.
    """
    heading = _HEADING.search(instructions)
    if heading is None:
        return None
    body = re.split(r"^#{1,2} ", instructions[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    root = _ROOT.search(body)
    entry = re.search(rf"^- `?{re.escape(name)}`?(?=$|[ \t(]|:)(.*)$", body, re.MULTILINE)
    if root is None or entry is None:
        return None
    file = _FILE.match(entry[1])
    if file is not None:
        return file[1]
    said = _DIRECTORY.match(entry[1])
    return f"{root[1]}/{said[1] if said else name}/SKILL.md"


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
