"""Lets dataclasses compile most of their methods when these are called first, and not when they are loaded.

Up to Python 3.12 each method of a dataclass is a text of its own that is compiled while the module is loaded.
The few hundred classes that serve a workflow have six of them each: a quarter of all loading, for methods
most of which are never called. Later versions compile what belongs to a class in one go, in another function;
where the one replaced here is not there, nothing is replaced.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["late_methods"]

_MAKER: Final = "_create_fn"
_LATE: Final = frozenset({"__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"})


@contextmanager
def late_methods() -> Iterator[None]:
    """While it lasts, classes get methods that are made when they are called, and are just as they were."""
    module: dict[str, Any] = vars(dataclasses)
    maker: Callable[..., Any] | None = module.get(_MAKER)
    if maker is None:
        yield
        return

    def make(name: str, *args: Any, **options: Any) -> Any:
        if name in _LATE:
            return _later(name, lambda: maker(name, *args, **options))
        return maker(name, *args, **options)

    module[_MAKER] = make
    try:
        yield
    finally:
        module[_MAKER] = maker


def _later(name: str, make: Callable[[], Any]) -> Any:
    """A method that makes the real one, once, which takes its place where a class has it directly."""
    real: Any = None  # two threads may both make one: they are the same

    def method(self: Any, *values: Any) -> Any:
        nonlocal real
        if real is None:
            real = make()
            real.__qualname__ = method.__qualname__
            for owner in type(self).__mro__:
                if vars(owner).get(name) is method:
                    setattr(owner, name, real)
        return real(self, *values)

    method.__name__ = name
    return method
