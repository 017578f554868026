"""Lets dataclasses compile their methods when these are looked up first, and not when they are loaded.

Up to Python 3.12 each method of a dataclass is a text of its own that is compiled while the module is loaded.
The few hundred classes that serve a workflow have six of them each: a third of all loading, for methods most
of which are never called. Later versions compile what belongs to a class in one go, in another function;
where the one replaced here is not there, nothing is replaced.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["late_methods"]

_MAKER: Final = "_create_fn"
_LATE: Final = frozenset({"__init__", "__eq__", "__hash__", "__setattr__", "__delattr__"})
_REPR: Final = "__repr__"  # wrapped by its maker, for which it has to be a function


@contextmanager
def late_methods() -> Iterator[None]:
    """While it lasts, classes get methods that are made when looked up, and are just as they were."""
    module: dict[str, Any] = vars(dataclasses)
    maker: Callable[..., Any] | None = module.get(_MAKER)
    if maker is None:
        yield
        return

    def make(name: str, *args: Any, **options: Any) -> Any:
        if name in _LATE:
            return _Late(name, lambda: maker(name, *args, **options))
        if name == _REPR:
            return _repr(lambda: maker(name, *args, **options))
        return maker(name, *args, **options)

    module[_MAKER] = make
    try:
        yield
    finally:
        module[_MAKER] = maker


class _Late:
    """Stands in a class for a method, and puts it in its place. Two threads may both make one: the same."""

    __slots__ = ("__name__", "_make")

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.__name__ = name
        self._make = make

    def __get__(self, instance: object, owner: type) -> Any:
        real = self._make()
        for one in owner.__mro__:
            if vars(one).get(self.__name__) is self:
                real.__qualname__ = f"{one.__qualname__}.{self.__name__}"
                setattr(one, self.__name__, real)
        return real.__get__(instance, owner)


def _repr(make: Callable[[], Callable[[Any], str]]) -> Callable[[Any], str]:
    real: Callable[[Any], str] | None = None

    def __repr__(self: Any) -> str:  # noqa: N807 - its name is part of what it stands for
        nonlocal real
        real = real or make()
        return real(self)

    return __repr__
