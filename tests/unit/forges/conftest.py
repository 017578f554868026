import pytest

from kit.forge.desk import KINDS, Desk, make_desk


@pytest.fixture(params=KINDS)
def desk(request: pytest.FixtureRequest) -> Desk:
    return make_desk(request.param)
