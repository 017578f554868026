"""Holds REST requests and answers against a vendor's OpenAPI 3 document."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from openapi_schema_validator import OAS30Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

from contract.schemas import schema_file
from contract.vendor import Asked, Given

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_SHOWN = 3


class OpenApi:
    """A document: finds the operation of a request and judges both directions by it."""

    def __init__(self, document: Mapping[str, Any], *, prefix: str = "") -> None:
        self._document = document
        resource = Resource.from_contents(document, default_specification=DRAFT4)
        self._registry: Registry[Any] = Registry().with_resource("urn:vendor", resource)
        self._paths = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path.removeprefix(prefix)) + "$"), path)
            for path in sorted(document["paths"], key=lambda path: path.count("{"))
        ]
        self._validators: dict[str, Validator] = {}

    def check(self, asked: Asked, given: Given) -> None:
        """Refuse what the document does not know. Raises `AssertionError`."""
        operation, common = self._operation(asked)
        self._check_query(asked, [*common, *operation.get("parameters", [])])
        body = self._resolved(operation.get("requestBody", {})).get("content", {}).get("application/json")
        if asked.body is not None:
            assert body is not None, f"{asked.method} {asked.path} takes no body"
            self._judge(body["schema"], asked.body, f"body of {asked.method} {asked.path}")
        if given.raw is None and given.body is not None:
            self._check_answer(asked, operation, given)

    def _operation(self, asked: Asked) -> tuple[Mapping[str, Any], list[Any]]:
        for pattern, path in self._paths:
            item = self._document["paths"][path]
            if pattern.match(asked.path) and asked.method.lower() in item:
                return item[asked.method.lower()], item.get("parameters", [])
        raise AssertionError(f"there is no {asked.method} {asked.path}")

    def _check_query(self, asked: Asked, parameters: list[Any]) -> None:
        known = {each["name"]: each for each in map(self._resolved, parameters) if each["in"] == "query"}
        for name, value in asked.query:
            assert name in known, f"{asked.method} {asked.path} has no parameter {name}"
            schema = self._resolved(known[name]["schema"])
            if schema.get("type") == "integer":
                assert value.isdigit(), f"{name}={value}"
            options = schema.get("items", {}).get("enum") if schema.get("type") == "array" else None
            if options is not None:
                assert set(value.split(",")) <= set(options), f"{name}={value}"
            if "enum" in schema:
                assert value in schema["enum"], f"{name}={value}"
        missing = {name for name, each in known.items() if each.get("required")} - dict(asked.query).keys()
        assert not missing, missing

    def _check_answer(self, asked: Asked, operation: Mapping[str, Any], given: Given) -> None:
        responses = operation["responses"]
        answer = responses.get(str(given.status)) or responses.get("default")
        assert answer is not None, f"{asked.method} {asked.path} never answers {given.status}"
        content = self._resolved(answer).get("content", {})
        media = content.get("application/json") or next(iter(content.values()), None)
        if media is None:
            return
        body = given.body[:_SHOWN] if isinstance(given.body, list) else given.body
        self._judge(media["schema"], body, f"answer to {asked.method} {asked.path}")

    def _resolved(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in node:
            found: Any = self._document
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            node = found
        return node

    def _judge(self, schema: Mapping[str, Any], value: Any, what: str) -> None:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            anchored = json.loads(key.replace('"$ref": "#/', '"$ref": "urn:vendor#/'))
            self._validators[key] = OAS30Validator(anchored, registry=self._registry)
        errors = [
            f"{error.json_path}: {error.message[-300:]}" for error in self._validators[key].iter_errors(value)
        ]
        assert not errors, f"{what}: {'; '.join(errors[:3])}"


@lru_cache(maxsize=8)
def openapi(name: str, *, prefix: str = "") -> OpenApi | None:
    """The document in a file of the vendors, or None; `prefix` is what its paths have before ours."""
    path = schema_file(name)
    if path is None:
        return None
    return OpenApi(json.loads(path.read_text(encoding="utf-8"), object_hook=_without_hints), prefix=prefix)


def _without_hints(node: dict[str, Any]) -> dict[str, Any]:
    """A `discriminator` is a hint by references of its own, and `oneOf` says the same.

    `nullable` in a part of `allOf` is meant for the whole, which the letter of OpenAPI does not give.
    """
    if isinstance(node.get("discriminator"), dict):
        del node["discriminator"]
    parts = node.get("allOf")
    if isinstance(parts, list) and any(part.get("nullable") is True for part in parts):
        return {"anyOf": [node, {"enum": [None]}]}
    return node
