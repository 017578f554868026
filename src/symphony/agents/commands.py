"""Commands of agents as a person would type them."""

import re
import shlex
from pathlib import PurePosixPath
from typing import Final

_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_OPTIONS: Final = frozenset({"-c", "-lc", "-ic", "-lic"})
_WORDS: Final = 3  # the shell, its option and the script
_PIECE: Final = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|((?:[^\s'"\\]|\\.)+)""", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\([$`"\\\n])')  # `shlex.split` knows two of the five


def shown_command(command: object) -> str:
    """Return the script that a shell runs, without the shell and the quotes around it.

    Any other command stays as it is; one in words is quoted as a shell needs it. Empty for no command.
    """
    if isinstance(command, list):
        words: list[str] = [str(word) for word in command]
        return words[2] if len(words) == _WORDS and _is_shell(words) else shlex.join(words)
    text = command if isinstance(command, str) else ""
    words = text.split(" ", _WORDS - 1)
    script = _unquoted(words[2]) if len(words) == _WORDS and _is_shell(words) else None
    return text if script is None else script


def _is_shell(words: list[str]) -> bool:
    return PurePosixPath(words[0]).name in _SHELLS and words[1] in _OPTIONS


def _unquoted(text: str) -> str | None:
    """Return the shell's value of one word; `None` for several words and for an unclosed quote."""
    pieces, end = [], 0
    while end < len(text):
        found = _PIECE.match(text, end)
        if found is None:
            return None
        single, double, bare = found.groups()
        if double is not None:
            pieces.append(_ESCAPED_IN_QUOTES.sub(r"\1", double))
        else:
            pieces.append(_ESCAPED.sub(r"\1", bare) if single is None else single)
        end = found.end()
    return "".join(pieces)
