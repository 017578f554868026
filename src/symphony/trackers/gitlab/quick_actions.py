"""Keeps text from being obeyed: GitLab carries out lines of a comment such as `/close` (quick actions)."""

from symphony.trackers.comments import lines_and_code

__all__ = ["disarmed"]


def disarmed(body: str) -> str:
    """The text with no line that begins with a slash, and looking the same.

    Outside of code a backslash is put before the slash, which Markdown does not show; inside, a blank,
    because servers do not agree with Markdown on where a block of code ends.
    """
    return "\n".join(_disarmed(line, in_code=in_code) for line, in_code in lines_and_code(body))


def _disarmed(line: str, *, in_code: bool) -> str:
    bare = line.lstrip()
    if not bare.startswith("/"):
        return line
    return f" {line}" if in_code else f"{line[: len(line) - len(bare)]}\\{bare}"
