import pytest
import yaml


@pytest.fixture(params=["libyaml", "pure"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test over both parsers; the pure one as if libyaml were missing."""
    name = str(request.param)
    monkeypatch.setattr(yaml, "__with_libyaml__", name == "libyaml")
    return name
