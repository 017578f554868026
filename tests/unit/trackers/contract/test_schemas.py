import pytest

from contract.desk import Desk
from contract.schemas import NO_SCHEMAS, SCHEMAS, schema_file


def test_every_case_is_held_against_the_vendors_schema(desk: Desk) -> None:
    name = SCHEMAS.get(desk.kind)
    if name is None:
        return  # the vendor publishes none; the page of the tracker says so
    if schema_file(name) is None:
        pytest.skip(NO_SCHEMAS)
    assert desk.vendor.validates
