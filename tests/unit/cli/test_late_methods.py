"""Dataclasses whose methods are made when they are called: nobody can tell them from others."""

import copy
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from typing_extensions import override

from symphony.cli.late_methods import late_methods


def _classes() -> tuple[type[Any], type[Any]]:
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Point:
        """A point."""

        x: int
        y: int = 0

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Named(Point):
        name: str = "?"

        @override
        def __repr__(self) -> str:
            return f"<{self.name}>"

    return Point, Named


@pytest.fixture(params=["early", "late"])
def classes(request: pytest.FixtureRequest) -> Iterator[tuple[type[Any], type[Any]]]:
    if request.param == "early":
        yield _classes()
        return
    with late_methods():
        found = _classes()
    yield found


def test_they_compare_hash_and_show_themselves(classes: tuple[type[Any], type[Any]]) -> None:
    point, named = classes
    for _ in range(2):  # the first call makes the method, the second one finds it
        assert point(x=1) == point(x=1, y=0)
        assert point(x=1) != point(x=2)
        assert point(x=1) != named(x=1)
        assert named(x=1, name="a") == named(x=1, name="a")
        assert len({point(x=1), point(x=1), named(x=1)}) == 2
        assert repr(point(x=1)).endswith("Point(x=1, y=0)")
        assert repr(named(x=1, name="a")) == "<a>"


def test_they_stay_frozen(classes: tuple[type[Any], type[Any]]) -> None:
    point, named = classes
    for one in (point(x=1), named(x=1)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
            one.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
            del one.x
        assert one.x == 1


def test_a_base_that_was_never_used_answers_for_its_heirs(classes: tuple[type[Any], type[Any]]) -> None:
    point, _ = classes
    heir = type("Heir", (point,), {})
    assert heir(x=1) == heir(x=1)
    assert repr(heir(x=1)) == "Heir(x=1, y=0)"
    assert heir(x=1) != point(x=1)


def test_they_tell_what_they_take(classes: tuple[type[Any], type[Any]]) -> None:
    point, _ = classes
    assert str(inspect.signature(point)) == "(*, x: int, y: int = 0) -> None"
    assert point.__eq__.__qualname__ == f"{point.__qualname__}.__eq__"
    assert point.__repr__.__qualname__ == f"{point.__qualname__}.__repr__"
    assert dataclasses.replace(point(x=1), y=5) == point(x=1, y=5)


def test_an_heir_may_say_more(classes: tuple[type[Any], type[Any]]) -> None:
    point: Any = classes[0]

    class Louder(point):  # type: ignore[misc]  # a class made in the test
        def __init__(self, **values: int) -> None:
            super().__init__(**{name: value + 1 for name, value in values.items()})

    assert Louder(x=3).x == 4
    assert point(x=3).x == 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        point(z=3)


def test_they_can_be_copied(classes: tuple[type[Any], type[Any]]) -> None:
    point, _ = classes
    assert copy.deepcopy(point(x=1)) == point(x=1)


def test_most_of_their_methods_are_made_when_they_are_called_where_this_python_has_it() -> None:
    with late_methods():
        point, _ = _classes()
    before = vars(point)["__eq__"]
    assert point(x=1) == point(x=1)
    assert (vars(point)["__eq__"] is not before) == hasattr(dataclasses, "_create_fn")
    assert inspect.isfunction(vars(point)["__eq__"])


def test_afterwards_classes_are_made_as_ever() -> None:
    maker = vars(dataclasses).get("_create_fn")
    with pytest.raises(RuntimeError, match="whatever"), late_methods():
        raise RuntimeError("whatever")
    assert vars(dataclasses).get("_create_fn") is maker


def test_where_there_is_nothing_to_replace_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dataclasses, "_create_fn", raising=False)
    with late_methods():
        assert not hasattr(dataclasses, "_create_fn")
    assert not hasattr(dataclasses, "_create_fn")
