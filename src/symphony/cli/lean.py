"""Loads what serves a workflow without what its libraries load along and the daemon never uses.

structlog loads rich for tracebacks that we do not let it draw, and pydantic looks through every installed
package for plugins. python-liquid loads babel, with the calendars of the world, for filters that only its own
set of extras has: no environment of ours takes those. The collector of cycles finds nothing in modules: it is
at rest meanwhile, and does not look at them again. Dataclasses compile late (`late_methods`).
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from symphony.cli.late_methods import late_methods

__all__ = ["lean_imports"]

_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
_STAND_INS = {
    "babel": (),
    "babel.messages": ("Catalog",),
    "liquid.extra.filters.babel": ("Currency", "DateTime", "Number", "Unit"),
}


@contextmanager
def lean_imports() -> Iterator[None]:
    """While it lasts rich looks as if it were not installed, and pydantic is told to have no plugins.

    Both are ways that these libraries document; afterwards everything is as it was, but for python-liquid's
    four filters by locale and its catalogs of messages: where it is loaded here for the first time, it stays
    without them.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # null: not to be found
    spared = "rich" not in modules
    asked = os.environ.get(_PLUGINS)
    os.environ.setdefault(_PLUGINS, "__all__")
    if spared:
        modules["rich"] = None
    stand_ins = {name: _stand_in(name) for name in _STAND_INS if not {"liquid", "babel"} & modules.keys()}
    modules.update(stand_ins)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with late_methods():
            yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
        for name in stand_ins:
            del modules[name]
        if spared:
            del modules["rich"]
        if asked is None:
            del os.environ[_PLUGINS]


def _stand_in(name: str) -> ModuleType:
    """A module whose names can be imported, and are null."""
    module = ModuleType(name)
    vars(module).update(dict.fromkeys(_STAND_INS[name]))
    return module
