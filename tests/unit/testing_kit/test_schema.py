from typing import Any

import pytest

from kit.app_server_schema import violations

DEFINITIONS: dict[str, Any] = {"Id": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}


@pytest.mark.parametrize(
    ("value", "schema", "found"),
    [
        (1, True, []),
        (1, {"$ref": "#/definitions/Id"}, []),
        (None, {"$ref": "#/definitions/Id"}, ["$: NoneType instead of string"]),
        (True, {"type": "integer"}, ["$: bool instead of integer"]),
        (True, {"type": ["boolean", "null"]}, []),
        ("c", {"enum": ["a", "b"]}, ["$: 'c' is none of ['a', 'b']"]),
        ({}, {"required": ["a"]}, ["$: no 'a'"]),
        ({"a": 1}, {"additionalProperties": False}, ["$: unknown 'a'"]),
        ({"a": 1}, {"additionalProperties": {"type": "string"}}, ["$.a: int instead of string"]),
        ([1, "x"], {"items": {"type": "integer"}}, ["$[1]: str instead of integer"]),
        (1, {"allOf": [{"type": "string"}]}, ["$: int instead of string"]),
    ],
)
def test_a_difference_is_named_with_its_place(value: object, schema: Any, found: list[str]) -> None:
    assert list(violations(value, schema, DEFINITIONS)) == found


def test_of_several_shapes_the_one_is_compared_that_is_meant() -> None:
    shapes = [
        {"properties": {"type": {"enum": ["a"]}}, "required": ["type"]},
        {"properties": {"type": {"enum": ["b"]}, "x": {"type": "string"}}, "required": ["type", "x", "y"]},
        True,
    ]
    assert list(violations({"type": "b", "x": 1}, {"oneOf": shapes[:2]}, {})) == [
        "$: no 'y'",
        "$.x: int instead of string",
    ]
    assert list(violations({"type": "b", "x": 1}, {"oneOf": shapes}, {})) == []
