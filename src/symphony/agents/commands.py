"""Commands of agents as a person would type them."""

import shlex
from pathlib import PurePosixPath
from typing import Final

_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash"})
_OPTIONS: Final = frozenset({"-c", "-lc", "-ic", "-lic"})
_WORDS: Final = 3  # the shell, its option and the script
_MAX_CHARS: Final = 65_536


def shown_command(command: object) -> str:
    """Return the script that a shell runs, without the shell and the quotes around it.

    Any other command stays as it is; one in words is quoted as a shell needs it. Empty for no command.
    """
    if isinstance(command, list):
        words, text = [str(word) for word in command], shlex.join(map(str, command))
    else:
        text = command if isinstance(command, str) else ""
        words = _split(text)
    if len(words) == _WORDS and PurePosixPath(words[0]).name in _SHELLS and words[1] in _OPTIONS:
        return words[2]
    return text


def _split(text: str) -> list[str]:
    """Return the words of a text that begins as a shell with a script; none for another text."""
    begin = text.split(" ", 2)[:2]
    if len(begin) < 2 or begin[1] not in _OPTIONS or len(text) > _MAX_CHARS:  # noqa: PLR2004 - see above
        return []
    try:
        return shlex.split(text)
    except ValueError:
        return []
