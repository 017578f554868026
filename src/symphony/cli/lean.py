"""Loads what serves a workflow without what its libraries load along and the daemon never uses.

structlog loads rich for tracebacks that we do not let it draw. pydantic's engine loads the types of all that
it reads, for whoever checks types. python-liquid loads babel, with the calendars of the world, for filters
that only its own set of extras has: no environment of ours takes those. It also loads what reads any date,
for a filter: that comes with the first date. The collector of cycles finds nothing in modules: it is at rest
meanwhile, and does not look at them again. Dataclasses compile late (`late_methods`).
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from typing_extensions import override

from symphony.cli.late_methods import late_methods

__all__ = ["lean_imports"]

_STAND_INS = (
    ("liquid", {"babel", "babel.messages", "liquid.extra.filters.babel"}),
    ("pydantic_core", {"pydantic_core.core_schema"}),
)
"""Who loads, and what is spared; nothing is where the one or the other is there already."""


@contextmanager
def lean_imports() -> Iterator[None]:
    """While it lasts rich looks as if it were not installed, and so do parts of other libraries.

    Afterwards everything is as it was, but for what a library took along as null where it is loaded here for
    the first time: python-liquid stays without its four filters by locale and its catalogs of messages, and
    pydantic's engine without its names for types, which are null in it and can be loaded from their module.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # null: not to be found
    spared = "rich" not in modules
    if spared:
        modules["rich"] = None
    absent = [names for user, names in _STAND_INS if not {user, *names} & modules.keys()]
    stand_ins = {name: _StandIn(name) for names in absent for name in names}
    modules.update(stand_ins)
    late = _Late("dateutil.parser")
    modules.setdefault(late.__name__, late)
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
        late.leave()
        if spared:
            del modules["rich"]


class _StandIn(ModuleType):
    """A module of which anything can be imported, and is null."""

    @override
    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):  # what the import system asks of every module
            raise AttributeError(name)


class _Late(_StandIn):
    """Stands for a module until something of it is used, also later for whoever took it along."""

    @override
    def __getattr__(self, name: str) -> Any:
        super().__getattr__(name)
        return getattr(self._module(), name)

    def leave(self) -> None:
        """From now on others find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def _module(self) -> ModuleType:
        self.leave()
        return import_module(self.__name__)
