"""Which proxy is on the way to an address."""

import pytest

from symphony.http import EnvironmentVariableError, proxy_for

PROXY = "http://proxy.invalid:3128"


@pytest.mark.parametrize(
    ("exempt", "direct", "through"),
    [
        ("*", "https://a.invalid", None),
        ("localhost,[::1]", "https://localhost", "https://a.invalid"),
        ("a.invalid", "https://x.a.invalid", "https://xa.invalid"),
        (".a.invalid", "https://x.a.invalid", "https://a.invalid"),
        ("*.a.invalid", "https://x.a.invalid", "https://a.invalid"),
        ("a.invalid:8443", "https://a.invalid:8443", "https://a.invalid"),
        ("a.invalid:443", "https://A.invalid", "https://a.invalid:8443"),
        ("10.0.0.5/8", "https://10.200.0.1", "https://11.0.0.1"),
        ("10.0.0.1", "https://10.0.0.1:8443", "https://10.0.0.10"),
        ("[fd00::1]", "https://[fd00:0::1]", "https://[fd00::2]"),
        ("fd00::1", "https://[fd00::1]", "https://a.invalid"),
        ("[fd00::]/8", "https://[fd12::1]", "https://[fe80::1]"),
        ("fd00::/8 , b.invalid", "https://b.invalid", "https://10.0.0.1"),
        ("", "http://127.0.0.1:1", "https://10.0.0.1"),
    ],
)
def test_no_proxy_exempts_names_addresses_and_networks(exempt: str, direct: str, through: str | None) -> None:
    environment = {"ALL_PROXY": PROXY, "NO_PROXY": exempt}
    assert proxy_for(direct, environment) is None
    if through:
        found = proxy_for(through, environment)
        assert found is not None
        assert found.url == PROXY


@pytest.mark.parametrize("exempt", ["10.0.0.0/99", "a.invalid:port"])
def test_an_exemption_that_is_not_valid_is_named(exempt: str) -> None:
    with pytest.raises(EnvironmentVariableError, match="NO_PROXY"):
        proxy_for("https://a.invalid", {"HTTPS_PROXY": PROXY, "NO_PROXY": exempt})
    assert proxy_for("https://a.invalid", {"NO_PROXY": exempt}) is None


def test_a_name_in_lower_case_precedes_and_an_empty_one_switches_off() -> None:
    found = proxy_for("https://a.invalid", {"HTTPS_PROXY": "http://x.invalid", "https_proxy": "y.invalid:1"})
    assert found is not None
    assert (found.variable, found.url) == ("https_proxy", "http://y.invalid:1")
    assert proxy_for("https://a.invalid", {"HTTPS_PROXY": PROXY, "https_proxy": ""}) is None
