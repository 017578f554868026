"""Holds GraphQL requests and answers against a vendor's schema."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from graphql import GraphQLSchema, build_schema, execute_sync, parse, validate
from graphql.language import DocumentNode

from contract.schemas import schema_file


@lru_cache(maxsize=2)
def graphql_schema(name: str) -> GraphQLSchema | None:
    """The schema in a file of the vendors, or None. It takes seconds, so once per process."""
    path = schema_file(name)
    if path is None:
        return None
    return build_schema(path.read_text(encoding="utf-8"), assume_valid=True, no_location=True)


@lru_cache(maxsize=256)
def _document(schema: GraphQLSchema, query: str) -> DocumentNode:
    document = parse(query)
    errors = validate(schema, document)
    assert not errors, "; ".join(error.message for error in errors)
    return document


def check_graphql(
    schema: GraphQLSchema | None, query: str, variables: Mapping[str, Any], data: Mapping[str, Any] | None
) -> None:
    """Refuse a query, variables or an answer that the schema does not know. Nothing without a schema."""
    if schema is None:
        return
    document = _document(schema, query)
    if data is None:
        return
    result = execute_sync(
        schema,
        document,
        root_value=data,
        variable_values=dict(variables),
        field_resolver=lambda source, info, **_: source[info.path.key],  # by the alias
    )
    assert not result.errors, "; ".join(error.message for error in result.errors or ())
    assert result.data == data, "the answer has fields that were not asked for"
