"""What a bad variable of the environment makes of the export of traces."""

import time

import pytest

pytest.importorskip("opentelemetry.sdk")

from symphony.observability.tracing import Tracing


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTPS_PROXY", "socks4://user:secret-password@127.0.0.1:1"),
        ("NO_PROXY", "10.0.0.0/99"),
        ("REQUESTS_CA_BUNDLE", "/does/not/exist"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv(variable, value)
    tracing = Tracing(
        "https://collector.invalid/v1/traces", headers={}, seed="x", redact=str, now_s=time.monotonic
    )
    try:
        told = tracing.check()
    finally:
        tracing.close()
    assert told is not None
    assert variable in told
    assert "secret-password" not in told


def test_certificates_do_not_matter_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/does/not/exist")
    tracing = Tracing("http://127.0.0.1:1/v1/traces", headers={}, seed="x", redact=str, now_s=time.monotonic)
    try:
        told = tracing.check()
    finally:
        tracing.close()
    assert told is not None
    assert "REQUESTS_CA_BUNDLE" not in told
