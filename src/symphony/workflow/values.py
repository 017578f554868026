"""The kinds of values that settings are made of: checked, normalised, and called by a name people know.

`Shape` is how a kind of value is named in the documentation; `Reload` is when a changed value takes effect.
Both ride in a field's metadata, so that one table can be made of the models (`workflow.keys`).
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from symphony.workflow.engine import AfterCheck, BeforeCheck, Bounds

__all__ = [
    "MAX_NUMBER",
    "DefaultText",
    "EnvNames",
    "EnvValues",
    "Flag",
    "GitName",
    "Host",
    "Hosts",
    "Labels",
    "LowerName",
    "Name",
    "NonNegative",
    "OpaqueMap",
    "OpaqueTextOrMap",
    "Port",
    "Positive",
    "Reload",
    "Script",
    "Shape",
    "SkillNames",
    "SkillsPath",
    "SkillsPaths",
    "States",
    "Text",
    "UserPath",
    "Whole",
]


_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

MAX_NUMBER: Final = 2**53 - 1
"""The largest number that every reader of JSON takes for what it is; a clock cannot wait for more either."""


class Reload(StrEnum):
    """When a changed value takes effect (CF, reload column)."""

    LIVE = "live"
    SESSION = "session"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a value must be, in the words of the documentation."""

    text: str


@dataclass(frozen=True, slots=True)
class DefaultText:
    """The default of a value that is only known when the file is read."""

    text: str


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _variable(text: str) -> str:
    if _VARIABLE.fullmatch(text) is None:
        raise ValueError("must be the name of an environment variable")
    return text


def _no_option(text: str) -> str:
    """A value that a program would take for an option must not reach its command line."""
    if text.startswith("-"):
        raise ValueError("must not begin with a dash")
    return text


def _one_word(text: str) -> str:
    if len(text.split()) != 1 or text != text.strip():
        raise ValueError("must be one word, without blanks")
    return text


def _folded(text: str) -> str:
    """As labels and states are compared (DM6, DM7)."""
    return text.strip().lower()


def _blank_to_null(text: str | None) -> str | None:
    return text if text and text.strip() else None


def _trimmed(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(name.strip() for name in names if name.strip())


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Blank and repeated hosts do not count (SW4)."""
    return tuple(dict.fromkeys(_no_option(name.strip()) for name in names if name.strip()))


def _labels(names: tuple[str, ...]) -> tuple[str, ...]:
    """As issue labels, but a blank one stays: it is a label no issue has, so it matches nothing (DM19)."""
    return tuple(dict.fromkeys(name.strip().lower() for name in names))


def _inside_workspace(text: str) -> str:
    path = PurePosixPath(text)
    if not text.strip() or path.is_absolute() or ".." in path.parts or text.startswith("~"):
        raise ValueError("must be a path inside the workspace: relative, not empty, without ..")
    return text


def _home_or_absolute(text: str) -> str:
    """Not taken from a workspace or from this file: it is the same directory for all sessions."""
    if not (text.startswith(("/", "~/")) or text == "~"):
        raise ValueError("must be an absolute path, or begin with ~/")
    return text


def _text_or_map(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("must be text or a map")  # noqa: TRY004 - the engine reports ValueError only
    return value


def _json_safe(value: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    """The agent is spoken to in JSON, which knows neither `.nan` nor `.inf`."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise ValueError("must not contain .nan or .inf") from error
    return value


Text = Annotated[str, AfterCheck(_without_nul), Shape("text")]
Name = Annotated[Text, AfterCheck(_not_blank)]
LowerName = Annotated[Name, AfterCheck(_folded)]
GitName = Annotated[Name, AfterCheck(_no_option)]
Host = Annotated[Name, AfterCheck(_one_word)]
VariableName = Annotated[Text, AfterCheck(_variable)]
Script = Annotated[Text | None, AfterCheck(_blank_to_null), Shape("script")]
SkillsPath = Annotated[Text, AfterCheck(_inside_workspace), Shape("relative path")]
UserPath = Annotated[Name, AfterCheck(_home_or_absolute), Shape("absolute path")]
Flag = Annotated[bool, Shape("true or false")]
Whole = Annotated[int, Bounds(ge=-MAX_NUMBER, le=MAX_NUMBER), Shape("number")]
Positive = Annotated[int, Bounds(gt=0, le=MAX_NUMBER), Shape("number > 0")]
NonNegative = Annotated[int, Bounds(ge=0, le=MAX_NUMBER), Shape("number ≥ 0")]
Port = Annotated[int, Bounds(ge=0, le=65_535), Shape("number 0 to 65535")]

_Names = Annotated[tuple[Text, ...], Shape("list of text")]
States = Annotated[_Names | None, AfterCheck(_trimmed), Shape("list of text")]
Labels = Annotated[_Names, AfterCheck(_labels)]
Hosts = Annotated[_Names, AfterCheck(_unique)]
EnvNames = Annotated[tuple[VariableName, ...], Shape("list of variable names")]
EnvValues = Annotated[dict[VariableName, Text], Shape("map of variable name to text")]
SkillNames = Annotated[tuple[Name, ...], Shape("list of text")]
SkillsPaths = Annotated[tuple[SkillsPath, ...], Shape("list of relative paths")]

OpaqueMap = Annotated[dict[str, Any] | None, AfterCheck(_json_safe), Shape("map")]
OpaqueTextOrMap = Annotated[
    str | dict[str, Any], BeforeCheck(_text_or_map), AfterCheck(_json_safe), Shape("text or map")
]
