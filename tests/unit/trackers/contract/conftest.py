"""One desk per adapter; a case that needs what the service cannot say is passed over there."""

import pytest

from contract.desk import Desk
from contract.desks import DESKS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each case for each adapter that can say what the case is about: `@pytest.mark.needs("blockers")`."""
    if "desk" not in metafunc.fixturenames:
        return
    needed = {name for mark in metafunc.definition.iter_markers("needs") for name in mark.args}
    kinds = [kind for kind, desk in DESKS.items() if needed <= desk.can]
    assert kinds, f"no adapter can say {needed}"
    metafunc.parametrize("desk", kinds, indirect=True)


@pytest.fixture
def desk(request: pytest.FixtureRequest) -> Desk:
    return DESKS[request.param]()
