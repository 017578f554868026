import atexit
import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import Case

from harness.asking import FakeOperator, make_app
from harness.nightly import NIGHTLY
from published.schemas import fields
from symphony.api.openapi import API as KINDS
from symphony.api.openapi import description, schemas
from symphony.scheduler import ReasonCode

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "api.md"
FROZEN = Path(__file__).parent / "v1_fields.json"
FIXED = {"state", "events", "runs", "refresh", "openapi.json"}
PLACE = TemporaryDirectory()
atexit.register(PLACE.cleanup)
APP = make_app(FakeOperator(library_file=Path(PLACE.name) / "library.db"))
PHASES = {} if NIGHTLY else {"phases": {"coverage": {"enabled": False}}}  # it takes as long as all examples
API = schemathesis.openapi.from_asgi(
    "/api/v1/openapi.json", APP, config=schemathesis.Config.from_dict(PHASES)
)
ENDING = API.exclude(path="/api/v1/events")  # has no end


def test_the_description_is_openapi() -> None:
    OpenAPIV31SpecValidator(json.loads(json.dumps(description()))).validate()


@pytest.mark.conformance("H-2", "H-3")
@ENDING.parametrize()
@settings(max_examples=50 if NIGHTLY else 8, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_application_does_what_the_description_says(case: "Case[Any]") -> None:
    assume(case.path_parameters.get("identifier") not in FIXED)  # these paths are other operations
    if isinstance(case.body, dict):  # to JSON Schema 1.0 is an integer, to the decoder it is none
        assume(not any(isinstance(value, float) for value in case.body.values()))
    case.call_and_validate()


@pytest.mark.conformance("H-2")
@pytest.mark.parametrize("identifier", ["SYM-1", "SYM-2", "SYM-3", "SYM-4"])
@pytest.mark.parametrize("path", ["/api/v1/{identifier}", "/api/v1/{identifier}/prompt"])
def test_what_it_says_of_issues_that_are_known(path: str, identifier: str) -> None:
    case = API[path]["GET"].Case(path_parameters={"identifier": identifier})
    response = case.call()
    assert response.status_code == 200
    case.validate_response(response)


def test_every_route_is_described_and_every_shape_is_used() -> None:
    text = json.dumps(description())
    assert {name for name in schemas(*KINDS) if f'#/components/schemas/{name}"' not in text} == set()
    assert "#/$defs/" not in text


# --- what v1 promises (AP9) ---


def api_fields(defs: Mapping[str, Any]) -> Mapping[str, str]:
    """Every field of what is asked and answered."""
    return {
        name: what for kind in KINDS for name, what in fields({"$ref": kind.__name__}, kind.__name__, defs)
    }


def test_no_field_of_v1_is_ever_removed_or_retyped() -> None:
    promised = json.loads(FROZEN.read_text(encoding="utf-8"))
    now = api_fields(schemas(*KINDS))
    assert {place: now.get(place) for place in promised} == promised
    assert set(now) <= set(promised), f"a new field is promised from now on: add it to {FROZEN.name}"


def test_the_guard_sees_a_field_that_is_removed_and_one_that_is_retyped() -> None:
    promised, found = api_fields(schemas(*KINDS)), schemas(*KINDS)
    place = "State.running[].title"
    del found["RunningRow"]["properties"]["title"]
    assert place not in api_fields(found)
    found["RunningRow"]["properties"]["title"] = {"type": "integer"}
    assert api_fields(found)[place] != promised[place]


# --- docs ---


def test_the_page_about_the_api_names_every_route_field_and_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    words = set(re.findall(r"`([^`\n]+)`", page)) | set(re.findall(r"[\w/{}.]+", page))
    for path in description()["paths"]:
        assert path in page, path
    told = {place.rpartition(".")[2].removesuffix("[]") for place in api_fields(schemas(*KINDS))} - {"*"}
    assert told <= words, sorted(told - words)
    code = "|".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/symphony/api").glob("*.py"))
    )
    codes = set(re.findall(r"RefusedError\(\s*\d+, \"(\w+)\"", code)) | {"internal"}
    assert codes <= words, sorted(codes - words)
    assert {reason.value for reason in ReasonCode} - {"running", "retrying", "blocked"} <= words
