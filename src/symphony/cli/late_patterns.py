"""Lets patterns be compiled when they are used first, and not when their module is loaded.

Serving a workflow loads more than a hundred, most of which nothing matches before the first agent. The worst
are classes of characters beyond ASCII, which take milliseconds: python-liquid has one to write a path back as
text, PyYAML for what is read without libyaml.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["late_patterns"]

_COMPILE: Final = re.compile
_OURS: Final = "symphony."
_LIBRARIES: Final = frozenset(
    {"liquid.builtin.expressions.path", "liquid.context", "liquid.static_analysis", "yaml.reader"}
)
"""Modules that, as ours, use their patterns by methods alone, so that something else can stand for these."""


@contextmanager
def late_patterns() -> Iterator[None]:
    """While it lasts, modules of ours and of those libraries get patterns that are compiled late."""
    module: dict[str, Any] = vars(re)

    def compile_late(pattern: Any, flags: Any = 0) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - who asks is all there is to go by
        late = caller.startswith(_OURS) or caller in _LIBRARIES
        return _Late(pattern, flags) if late else _COMPILE(pattern, flags)

    module["compile"] = compile_late
    try:
        yield
    finally:
        module["compile"] = _COMPILE


class _Late:
    """Stands for a pattern; what is asked of it once is the pattern's own from then on."""

    def __init__(self, *asked: Any) -> None:
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(_COMPILE(*self._asked), name)
        setattr(self, name, found)
        return found
