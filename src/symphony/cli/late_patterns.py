"""Lets patterns of libraries be compiled when they are used first, and not when they are loaded.

A class of characters beyond ASCII takes `re` milliseconds. python-liquid needs its own to write a path back
as text, PyYAML for what is read without libyaml; serving a workflow does neither.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["late_patterns"]

_MODULES: Final = frozenset(
    {"liquid.builtin.expressions.path", "liquid.context", "liquid.static_analysis", "yaml.reader"}
)
"""They use these patterns by methods alone, so that something else can stand for these."""


@contextmanager
def late_patterns() -> Iterator[None]:
    """While it lasts, modules of those libraries that are loaded get patterns that are compiled late."""
    module: dict[str, Any] = vars(re)
    compiler = re.compile

    def compile_late(pattern: Any, flags: Any = 0) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__")  # noqa: SLF001 - who asks is all there is to go by
        return _Late(pattern, flags) if caller in _MODULES else compiler(pattern, flags)

    module["compile"] = compile_late
    try:
        yield
    finally:
        module["compile"] = compiler


class _Late:
    """Stands for a pattern; every question to it compiles the pattern, or finds it in the cache of `re`."""

    def __init__(self, *asked: Any) -> None:
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(re.compile(*self._asked), name)
