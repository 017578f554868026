"""What annotations mean to the engine, and what it makes of the values of a file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic_core import ValidationError

from symphony.workflow.engine import (
    AfterCheck,
    BeforeCheck,
    Bounds,
    Section,
    marks_of,
    names_of,
    schema_of,
    section_in,
    typed,
)


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


def _seconds(value: object) -> object:
    return int(value.removesuffix("s")) if isinstance(value, str) else value


Even = Annotated[int, Bounds(ge=0, le=100), AfterCheck(_even), AfterCheck(lambda number: number + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner(Section):
    """A part."""

    number: Even = 4
    wait: Annotated[int, Bounds(gt=0), BeforeCheck(_seconds)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer(Section):
    """The whole."""

    path: Path
    inner: Inner = field(default_factory=Inner)
    other: Inner = field(default_factory=lambda: Inner(number=8))
    parts: tuple[Inner, ...] = ()
    names: tuple[str, ...] = ("a",)
    limits: dict[str, Even] = field(default_factory=dict)
    flag: bool | None = None
    form: Literal["one", "two"] = "one"
    either: str | dict[str, Any] = "x"
    anything: Any = None
    hidden: str = field(default="", repr=False)


HERE = Path("here")


def _wrong(values: object, model: type[Section] = Outer) -> list[tuple[str, tuple[str | int, ...]]]:
    with pytest.raises(ValidationError) as caught:
        typed(model, values)
    return [(problem["type"], problem["loc"]) for problem in caught.value.errors()]


def test_what_is_left_out_has_its_default() -> None:
    made = typed(Outer, {"path": HERE})
    assert made == Outer(path=HERE)
    assert made.other.number == 8
    assert made.limits is not typed(Outer, {"path": HERE}).limits


def test_every_kind_of_value_is_taken() -> None:
    made = typed(
        Outer,
        {
            "path": HERE,
            "inner": {"number": 6, "wait": "7s"},
            "other": {},
            "parts": [{"wait": 2}, Inner(number=3)],
            "names": ["b", "c"],
            "limits": {"x": 2},
            "flag": True,
            "form": "two",
            "either": {"a": None},
            "anything": [1.5],
            "hidden": "h",
        },
    )
    assert made == Outer(
        path=HERE,
        inner=Inner(number=7, wait=7),
        other=Inner(number=4),
        parts=(Inner(wait=2), Inner(number=3)),
        names=("b", "c"),
        limits={"x": 3},
        flag=True,
        form="two",
        either={"a": None},
        anything=[1.5],
        hidden="h",
    )
    assert "hidden" not in repr(made)


def test_a_section_that_is_one_already_is_taken_as_it_is() -> None:
    inner = Inner(number=3)
    assert typed(Outer, {"path": HERE, "inner": inner}).inner is inner


def test_all_mistakes_are_told_at_once_with_their_places() -> None:
    values = {
        "path": "here",
        "inner": {"number": 3, "wait": 0},
        "other": [],
        "parts": [{"number": 102}, "x"],
        "names": ["a", 1],
        "limits": {"x": -2, 5: 2},
        "flag": 1,
        "form": "three",
        "either": 7,
        "hidden": None,
    }
    assert _wrong(values) == [
        ("is_instance_of", ("path",)),
        ("value_error", ("inner", "number")),
        ("greater_than", ("inner", "wait")),
        ("dataclass_type", ("other",)),
        ("less_than_equal", ("parts", 0, "number")),
        ("dataclass_type", ("parts", 1)),
        ("string_type", ("names", 1)),
        ("greater_than_equal", ("limits", "x")),
        ("string_type", ("limits", 5, "[key]")),
        ("bool_type", ("flag",)),
        ("literal_error", ("form",)),
        ("string_type", ("either", "str")),
        ("dict_type", ("either", "dict[str,any]")),
        ("string_type", ("hidden",)),
    ]


@pytest.mark.parametrize("number", ["4", 4.0, True, None, [4]])
def test_types_are_strict(number: object) -> None:
    assert _wrong({"number": number}, Inner) == [("int_type", ("number",))]


@pytest.mark.parametrize("value", [5, "x", None, [], Inner()])
def test_a_section_is_a_map(value: object) -> None:
    assert _wrong(value) == [("dataclass_type", ())]


def test_unknown_keys_do_not_count() -> None:
    assert typed(Inner, {"nmber": 6}) == Inner()


def test_what_has_no_default_is_required() -> None:
    assert _wrong({}) == [("missing", ("path",))]


def test_the_text_of_an_error_holds_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        typed(Outer, {"path": "s3cr3t", "inner": {"wait": ["s3cr3t"]}, "form": "s3cr3t"})
    assert "s3cr3t" not in f"{caught.value} {caught.value!r}"


def test_marks_are_told_the_innermost_first() -> None:
    assert marks_of(Annotated[Annotated[int, "a", "b"], "c"]) == (int, ("a", "b", "c"))
    assert marks_of(int | None) == (int | None, ())


def test_a_section_is_found_in_an_annotation() -> None:
    assert section_in(Annotated[Inner, "mark"]) is Inner
    assert section_in(int) is None
    assert section_in(tuple[Inner, ...]) is None
    assert names_of(Inner) == ("number", "wait")


def test_null_may_be_one_of_several() -> None:
    schema = schema_of(str | dict[str, Any] | None)
    assert (schema["type"], schema["schema"]["type"]) == ("nullable", "union")


@pytest.mark.parametrize("annotation", [float, list[int], tuple[int, int], tuple[int], set[int], "int"])
def test_a_type_that_settings_do_not_have_is_refused(annotation: object) -> None:
    with pytest.raises(TypeError, match="settings are not made of"):
        schema_of(annotation)
