"""Keeps text from being obeyed: GitLab carries out lines of a comment such as `/close` (quick actions)."""

import re

__all__ = ["disarmed"]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def disarmed(body: str) -> str:
    """The text with no line that begins with a slash, and looking the same.

    Outside of code a backslash is put before the slash, which Markdown does not show; inside, a blank,
    because servers do not agree with Markdown on where a block of code ends.
    """
    fence = ""
    lines = []
    for line in body.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        lines.append(_disarmed(line, in_code=bool(fence)))
        found = _FENCE.match(line)
        if found is None:
            continue
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not line[found.end() :].strip():
            fence = ""
    return "\n".join(lines)


def _disarmed(line: str, *, in_code: bool) -> str:
    bare = line.lstrip()
    if not bare.startswith("/"):
        return line
    return f" {line}" if in_code else f"{line[: len(line) - len(bare)]}\\{bare}"
