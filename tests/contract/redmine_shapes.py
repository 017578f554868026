"""What Redmine answers, written down by hand from version 5.0.4: it publishes no schema.

The service in memory is held against these shapes, and so is a real Redmine where one runs
(`tests/integration/trackers/test_live_redmine.py`): what the one answers, the other does.
"""

import re
from collections.abc import Mapping
from typing import Any

from openapi_schema_validator import OAS30Validator

_TEXT: Mapping[str, Any] = {"type": "string"}
_MAYBE_TEXT: Mapping[str, Any] = {"type": "string", "nullable": True}
_WHOLE: Mapping[str, Any] = {"type": "integer"}
_NUMBER: Mapping[str, Any] = {"type": "number", "nullable": True}
_YES: Mapping[str, Any] = {"type": "boolean"}
_MOMENT: Mapping[str, Any] = {
    "type": "string",
    "nullable": True,
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$",
}


def _map(needed: Mapping[str, Any], /, **others: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(needed),
        "properties": {**needed, **others},
        "additionalProperties": False,
    }


def _list(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": entry}


_NAMED = _map({"id": _WHOLE, "name": _TEXT})
_STATUS = _map({"id": _WHOLE, "name": _TEXT, "is_closed": _YES})
_RELATION = _map(
    {
        "id": _WHOLE,
        "issue_id": _WHOLE,
        "issue_to_id": _WHOLE,
        "relation_type": _TEXT,
        "delay": {"type": "integer", "nullable": True},
    }
)
_JOURNAL = _map(
    {
        "id": _WHOLE,
        "user": _NAMED,
        "notes": _MAYBE_TEXT,
        "created_on": _MOMENT,
        "private_notes": _YES,
        "details": {"type": "array"},
    }
)
_ISSUE = _map(
    {
        "id": _WHOLE,
        "project": _NAMED,
        "tracker": _NAMED,
        "status": _STATUS,
        "priority": _NAMED,
        "author": _NAMED,
        "subject": _TEXT,
        "description": _MAYBE_TEXT,
        "start_date": _MAYBE_TEXT,
        "due_date": _MAYBE_TEXT,
        "done_ratio": _WHOLE,
        "is_private": _YES,
        "estimated_hours": _NUMBER,
        "total_estimated_hours": _NUMBER,
        "created_on": _MOMENT,
        "updated_on": _MOMENT,
        "closed_on": _MOMENT,
    },
    assigned_to=_NAMED,
    category=_NAMED,
    fixed_version=_NAMED,
    parent=_map({"id": _WHOLE}),
    spent_hours=_NUMBER,
    total_spent_hours=_NUMBER,
    custom_fields={"type": "array"},
    relations=_list(_RELATION),
    journals=_list(_JOURNAL),
    allowed_statuses=_list(_STATUS),
)
_USER = _map(
    {
        "id": _WHOLE,
        "login": _TEXT,
        "admin": _YES,
        "firstname": _TEXT,
        "lastname": _TEXT,
        "created_on": _MOMENT,
        "updated_on": _MOMENT,
        "last_login_on": _MOMENT,
        "passwd_changed_on": _MOMENT,
        "twofa_scheme": _MAYBE_TEXT,
        "api_key": _TEXT,
    },
    mail=_TEXT,  # unless its owner hides it
    status=_WHOLE,
)
_PROJECT = _map(
    {"id": _WHOLE, "name": _TEXT, "identifier": _TEXT, "description": _MAYBE_TEXT, "status": _WHOLE},
    homepage=_MAYBE_TEXT,
    is_public=_YES,
    inherit_members=_YES,
    created_on=_MOMENT,
    updated_on=_MOMENT,
    trackers=_list(_NAMED),
    issue_categories=_list(_NAMED),
)
_PRIORITY = _map({"id": _WHOLE, "name": _TEXT, "is_default": _YES, "active": _YES})
_PAGE = {"total_count": _WHOLE, "offset": _WHOLE, "limit": _WHOLE}
_ANSWERS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (r"/users/current\.json", _map({"user": _USER})),
    (r"/issue_statuses\.json", _map({"issue_statuses": _list(_STATUS)})),
    (r"/enumerations/issue_priorities\.json", _map({"issue_priorities": _list(_PRIORITY)})),
    (r"/projects/[^/]+\.json", _map({"project": _PROJECT})),
    (r"(/projects/[^/]+)?/issues\.json", _map({"issues": _list(_ISSUE), **_PAGE})),
    (r"/issues/\d+\.json", _map({"issue": _ISSUE})),
)


def check_shape(method: str, path: str, status: int, body: Any, *, strict: bool = True) -> None:
    """Hold an answer to a GET against its shape; not `strict` of a newer Redmine, which may say more.

    Raises:
        AssertionError: it is another one, or there is none for this path.
    """
    if status != 200 or method != "GET":
        assert body is None or status in {201, 422}, (method, path, status)
        return
    shape = next(shape for pattern, shape in _ANSWERS if re.fullmatch(pattern, path))
    errors = [
        f"{path} {error.json_path}: {error.message[-300:]}"
        for error in OAS30Validator(shape).iter_errors(body)
        if strict or error.validator != "additionalProperties"
    ]
    assert not errors, "; ".join(errors[:5])
