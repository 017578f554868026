"""A Swagger 2 document in the words of OpenAPI 3, so that one validator reads both.

Such a document does not say which fields may be null, so all may; and it
names all that there are, so those that it does not know are refused.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from contract.openapi import OpenApi
from contract.schemas import schema_file

_OF_SCHEMA = ("type", "format", "enum", "items")


@lru_cache(maxsize=4)
def swagger(name: str) -> OpenApi | None:
    """The document in a file of the vendors, or None."""
    path = schema_file(name)
    if path is None:
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    responses = {name: _response(each) for name, each in document["responses"].items()}
    paths = {path: _item(item) for path, item in document["paths"].items()}
    definitions = {name: _definition(each) for name, each in document["definitions"].items()}
    return OpenApi({"paths": paths, "responses": responses, "definitions": definitions})


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    return {method: _operation(operation) for method, operation in item.items()}


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    parameters = operation.get("parameters", [])
    queries = [
        {**each, "schema": {key: each[key] for key in _OF_SCHEMA if key in each}}
        for each in parameters
        if each["in"] != "body"
    ]
    bodies = [_content(each["schema"]) for each in parameters if each["in"] == "body"]
    responses = {status: _response(each) for status, each in operation["responses"].items()}
    body = {"requestBody": bodies[0]} if bodies else {}
    return {"parameters": queries, "responses": responses, **body}


def _response(response: Mapping[str, Any]) -> Mapping[str, Any]:
    return _content(response["schema"]) if "schema" in response else response


def _content(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _definition(definition: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" not in definition:
        return dict(definition)
    fields = {name: {"anyOf": [field, {"enum": [None]}]} for name, field in definition["properties"].items()}
    return {**definition, "properties": fields, "additionalProperties": False}
