import pytest

from contract.desk import Desk
from contract.graphql_schema import check_graphql, graphql_schema
from contract.schemas import GITHUB_GRAPHQL, NO_GITHUB_GRAPHQL, NO_SCHEMAS, SCHEMAS, schema_file
from harness.real import absent
from symphony.services.github import issues


def test_every_case_is_held_against_the_vendors_schema(desk: Desk) -> None:
    name = SCHEMAS.get(desk.kind)
    if name is None:
        return  # the vendor publishes none; the page of the tracker says so
    if schema_file(name) is None:
        pytest.skip(NO_SCHEMAS)
    assert desk.vendor.validates


def test_the_queries_about_projects_fit_githubs_schema() -> None:
    if schema_file(GITHUB_GRAPHQL) is None:
        absent(*NO_GITHUB_GRAPHQL)
    schema = graphql_schema(GITHUB_GRAPHQL)
    for query in (issues.ITEMS, issues.OPTIONS, issues.ITEM, issues.SET_OPTION):
        check_graphql(schema, query, {}, None)
