"""Loads what serves a workflow without what its libraries load along and the daemon never uses.

structlog loads rich for tracebacks that we do not let it draw. pydantic's engine loads the types of all that
it reads, for whoever checks types. python-liquid loads its own set of extras, with the calendars of the world
for four filters, what reads templates out of packages, and a catalog of messages: no environment of ours
takes those. What reads any date and what takes tags out of HTML come with the first use of their filters.
The collector of cycles finds nothing in modules: it is at rest meanwhile, and does not look at them again.
Dataclasses compile late (`late_methods`), and so do costly patterns (`late_patterns`).
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from typing_extensions import override

from symphony.cli.late_methods import late_methods
from symphony.cli.late_patterns import late_patterns

__all__ = ["lean_imports"]


@contextmanager
def lean_imports() -> Iterator[None]:
    """While it lasts rich looks as if it were not installed, and so do parts of other libraries.

    Afterwards everything is as it was, but for what a library took along as null where it is loaded here for
    the first time: python-liquid stays without its set of extras and its catalogs of messages, and pydantic's
    engine without its names for types, which are null in it and can be loaded from their module.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # null: not to be found
    spared = "rich" not in modules
    if spared:
        modules["rich"] = None
    absent = [(kind, names) for user, kind, names in _SPARED if not {user, *names} & modules.keys()]
    stand_ins = {name: kind(name) for kind, names in absent for name in names}
    modules.update(stand_ins)
    late = _Late("dateutil.parser")
    modules.setdefault(late.__name__, late)
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
        late.leave()
        if spared:
            del modules["rich"]


class _StandIn(ModuleType):
    """A module of which anything can be imported, and is null."""

    @override
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system asks of every module
            raise AttributeError(name)
        return self._given(name)

    def _given(self, _: str) -> Any:
        return None


class _LateFunctions(_StandIn):
    """A module of which functions can be imported, which load it when they are called."""

    @override
    def _given(self, name: str) -> Any:
        def late(*arguments: Any) -> Any:
            return getattr(import_module(self.__name__), name)(*arguments)

        return late


class _Late(_StandIn):
    """Stands for a module until something of it is used, also later for whoever took it along."""

    @override
    def _given(self, name: str) -> Any:
        self.leave()
        return getattr(import_module(self.__name__), name)

    def leave(self) -> None:
        """From now on others find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


_SPARED: Final[tuple[tuple[str, type[_StandIn], frozenset[str]], ...]] = (
    (
        "liquid",
        _StandIn,
        frozenset({"liquid.extra", "liquid.messages", "liquid.builtin.loaders.package_loader"}),
    ),
    ("liquid", _LateFunctions, frozenset({"liquid.utils.html"})),
    ("pydantic_core", _StandIn, frozenset({"pydantic_core.core_schema"})),
)
"""Who loads, and what is spared how; nothing is where the one or the other is there already."""
