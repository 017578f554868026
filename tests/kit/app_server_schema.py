"""Compare frames with the JSON Schema that the installed Codex generates, so that drift is seen in a test.

Reads the part of JSON Schema that this generator uses; unknown keywords are ignored, so the comparison may
miss a difference and never invents one.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

__all__ = ["AppServerSchema", "violations"]

_GENERATE_S = 60
_ANSWERS = {
    "initialize": "v1/InitializeResponse",
    "account/read": "v2/GetAccountResponse",
    "command/exec": "v2/CommandExecResponse",
    "thread/start": "v2/ThreadStartResponse",
    "turn/start": "v2/TurnStartResponse",
    "turn/interrupt": "v2/TurnInterruptResponse",
    "item/tool/call": "DynamicToolCallResponse",
    "item/commandExecution/requestApproval": "CommandExecutionRequestApprovalResponse",
    "item/fileChange/requestApproval": "FileChangeRequestApprovalResponse",
    "item/permissions/requestApproval": "PermissionsRequestApprovalResponse",
    "item/tool/requestUserInput": "ToolRequestUserInputResponse",
}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
_Schema = Mapping[str, Any] | bool


class AppServerSchema:
    """The schemas of one Codex version, experimental parts included."""

    def __init__(self, folder: Path) -> None:
        self._load = cache(lambda name: json.loads((folder / f"{name}.json").read_text("utf-8")))

    @classmethod
    def generate(cls, codex: Path, folder: Path) -> Self:
        """Have the binary write its schemas to `folder`, and read them.

        Raises:
            subprocess.CalledProcessError: it refused.
        """
        argv = [str(codex), "app-server", "generate-json-schema", "--out", str(folder), "--experimental"]
        env = {"HOME": str(folder), "CODEX_HOME": str(folder)}
        subprocess.run(argv, check=True, capture_output=True, timeout=_GENERATE_S, env=env)
        return cls(folder)

    def of_server(self, frame: Mapping[str, Any], *, answers: str | None = None) -> Sequence[str]:
        """How a frame of the agent differs; `answers` is the method to which it is the answer."""
        return self._differences("Server", frame, answers)

    def of_client(self, frame: Mapping[str, Any], *, answers: str | None = None) -> Sequence[str]:
        """How a frame of the client differs; `answers` as for `of_server`."""
        return self._differences("Client", frame, answers)

    def _differences(self, side: str, frame: Mapping[str, Any], answers: str | None) -> Sequence[str]:
        if "method" in frame:
            return self._against(f"{side}{'Request' if 'id' in frame else 'Notification'}", frame)
        if "error" in frame or answers is None:
            return self._against("JSONRPCError" if "error" in frame else "JSONRPCResponse", frame)
        return self._against(_ANSWERS[answers], frame["result"])

    def _against(self, name: str, value: object) -> Sequence[str]:
        schema = self._load(name)
        return tuple(violations(value, schema, schema.get("definitions", {})))


def violations(
    value: object, schema: _Schema, definitions: Mapping[str, _Schema], where: str = "$"
) -> Iterator[str]:
    """Each place where `value` is not as `schema` says, as `path: what is wrong`."""
    if isinstance(schema, bool):
        return
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/definitions/")
        yield from violations(value, definitions[name], definitions, where)
    for part in schema.get("allOf", ()):
        yield from violations(value, part, definitions, where)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            yield from _best(value, schema[choice], definitions, where)
    yield from _scalar(value, schema, where)
    if isinstance(value, dict):
        yield from _object(value, schema, definitions, where)
    if isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            yield from violations(item, schema["items"], definitions, f"{where}[{place}]")


def _best(
    value: object, choices: Sequence[_Schema], definitions: Mapping[str, _Schema], where: str
) -> Sequence[str]:
    """Nothing when a choice fits; else what is wrong with the one that is meant by `method` or `type`."""
    tried = [
        (tuple(violations(value, choice, definitions, where)), _meant(value, choice)) for choice in choices
    ]
    return min(tried, key=lambda found: (bool(found[0]), not found[1], len(found[0])))[0]


def _meant(value: object, choice: _Schema) -> bool:
    if not isinstance(value, dict) or isinstance(choice, bool):
        return False
    fields: Mapping[str, Any] = choice.get("properties", {})
    return any(value.get(key) in fields.get(key, {}).get("enum", ()) for key in ("method", "type"))


def _scalar(value: object, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    wanted = schema.get("type")
    if wanted is not None:
        names = [wanted] if isinstance(wanted, str) else wanted
        if not any(_is_a(value, name) for name in names):
            yield f"{where}: {type(value).__name__} instead of {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"


def _is_a(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _object(
    value: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, _Schema], where: str
) -> Iterator[str]:
    fields: Mapping[str, _Schema] = schema.get("properties", {})
    yield from (f"{where}: no {name!r}" for name in schema.get("required", ()) if name not in value)
    others = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in fields:
            yield from violations(inner, fields[name], definitions, f"{where}.{name}")
        elif others is False:
            yield f"{where}: unknown {name!r}"
        else:
            yield from violations(inner, others, definitions, f"{where}.{name}")
