"""Loads what serves a workflow without what its libraries load along and the daemon never uses.

structlog loads rich for tracebacks that we do not let it draw, and pydantic looks through every installed
package for plugins. The collector of cycles finds nothing in modules: it is at rest meanwhile, and does not
look at them again.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["lean_imports"]

_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def lean_imports() -> Iterator[None]:
    """While it lasts rich looks as if it were not installed, and pydantic is told to have no plugins.

    Both are ways that these libraries document; afterwards everything is as it was.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # null: not to be found
    spared = "rich" not in modules
    asked = os.environ.get(_PLUGINS)
    os.environ.setdefault(_PLUGINS, "__all__")
    if spared:
        modules["rich"] = None
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
        if spared:
            del modules["rich"]
        if asked is None:
            del os.environ[_PLUGINS]
