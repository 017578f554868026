"""What commands print with `--json` keeps what it promised."""

import json
from pathlib import Path

from published.schemas import COMMANDS, FOLDER, fields

FROZEN = Path(__file__).parent / "json_fields.json"


def test_no_field_that_a_command_prints_is_removed_or_retyped() -> None:
    promised = json.loads(FROZEN.read_text(encoding="utf-8"))
    now: dict[str, str] = {}
    for name in COMMANDS:
        schema = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
        now |= dict(fields(schema, name, schema["$defs"]))
    assert {place: now.get(place) for place in promised} == promised
    assert set(now) <= set(promised), f"a new field is promised from now on: add it to {FROZEN.name}"
