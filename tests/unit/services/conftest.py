import pytest

from contract.forges import KINDS, ForgeDesk, forge_desk


@pytest.fixture(params=KINDS)
def desk(request: pytest.FixtureRequest) -> ForgeDesk:
    return forge_desk(request.param)
