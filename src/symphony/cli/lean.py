"""Loads what serves a workflow without what its libraries load along and the daemon never uses.

structlog loads rich for tracebacks that we do not let it draw. pydantic looks through every installed package
for plugins, and loads for that what reads the descriptions of packages, the parser of mails and all.
python-liquid loads babel, with the calendars of the world, for filters that only its own set of extras has:
no environment of ours takes those. It also loads what reads any date, for a filter: that comes with the first
date. The collector of cycles finds nothing in modules: it is at rest meanwhile, and does not look at them
again. Dataclasses compile late (`late_methods`), and so do two costly patterns (`late_patterns`).
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from typing_extensions import override

from symphony.cli.late_methods import late_methods
from symphony.cli.late_patterns import late_patterns

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
    late = (_Metadata("importlib.metadata"), _Late("dateutil.parser"))
    for module in late:
        modules.setdefault(module.__name__, module)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with late_methods(), late_patterns():
            yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
        for name in stand_ins:
            del modules[name]
        for module in late:
            module.leave()
        if spared:
            del modules["rich"]
        if asked is None:
            del os.environ[_PLUGINS]


def _stand_in(name: str) -> ModuleType:
    """A module whose names can be imported, and are null."""
    module = ModuleType(name)
    vars(module).update(dict.fromkeys(_STAND_INS[name]))
    return module


class _Late(ModuleType):
    """Stands for a module until something of it is used, also later for whoever took it along."""

    @override
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system asks of every module
            raise AttributeError(name)
        return getattr(self._module(), name)

    def leave(self) -> None:
        """From now on others find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def _module(self) -> ModuleType:
        self.leave()
        return import_module(self.__name__)


class _Metadata(_Late):
    """As pydantic takes one function along by its name, and calls it later or never."""

    def entry_points(self, **chosen: Any) -> Any:
        """The function of this name."""
        return self._module().entry_points(**chosen)
