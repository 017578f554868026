from typing import Any

import pytest

from symphony.agents.codex.preflight import SENT, drift
from symphony.agents.codex.protocol import TRANSLATED
from symphony.agents.codex.session import ANSWERED, REFUSED


def one_of(methods: dict[str, Any]) -> dict[str, Any]:
    """A file of schemas in the shape in which the generator writes it."""
    entries = [
        {"properties": {"method": {"enum": [method]}, "params": {"$ref": f"#/definitions/P{index}"}}}
        for index, method in enumerate(methods)
    ]
    definitions = {f"P{index}": schema for index, schema in enumerate(methods.values())}
    return {"oneOf": entries, "definitions": definitions}


def schemas(**changed: dict[str, Any] | None) -> dict[str, Any]:
    """Those of a version that fits, but for the `changed` requests; null takes one away."""
    requests: dict[str, Any] = {
        method: {"properties": {key: {} for key in asked}, "required": []} for method, asked in SENT.items()
    }
    for method, schema in changed.items():
        requests.pop(method)
        if schema is not None:
            requests[method] = schema
    return {
        "ClientRequest": one_of(requests),
        "ServerRequest": one_of({key: {} for key in ANSWERED | REFUSED}),
        "ServerNotification": one_of({key: {} for key in TRANSLATED}),
    }


def test_a_version_that_fits_has_not_drifted() -> None:
    assert drift(schemas()).findings == ()
    assert not drift(schemas()).fatal


@pytest.mark.parametrize("method", sorted(SENT))
def test_a_request_that_is_gone_is_named_and_fatal_where_no_session_runs_without(method: str) -> None:
    found = drift(schemas(**{method: None}))
    assert found.findings == (f"it does not know {method}",)
    assert found.fatal is (method in {"initialize", "thread/start", "turn/start", "turn/interrupt"})


def test_parameters_that_came_and_went_are_named() -> None:
    found = drift(schemas(**{"thread/name/set": {"properties": {"name": {}}, "required": ["title"]}}))
    assert found.findings == ("thread/name/set does not take threadId", "thread/name/set wants title")
    assert not found.fatal


def test_params_without_a_definition_are_left_alone() -> None:
    odd = schemas()
    odd["ClientRequest"]["oneOf"].append({"properties": {"method": {"enum": ["model/list"]}}})
    assert drift(odd).findings == ()


def test_new_questions_and_lost_notifications_are_named() -> None:
    odd = schemas()
    odd["ServerRequest"] = one_of({"item/askOracle": {}})
    odd["ServerNotification"] = one_of({key: {} for key in TRANSLATED - {"turn/completed"}})
    assert drift(odd).findings == (
        "it may ask item/askOracle, which is refused",
        "it does not tell turn/completed",
    )
