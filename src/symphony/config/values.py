"""The types of settings: which values are valid, and how the documentation describes them.

A type is the Python type with its checks. It has a `Shape` if its name does not say what a value must be. The
error of a check begins with "must" or "must not" and does not contain the value.
"""

import json
import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache, partial
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from msgspec import Struct
from pydantic import AfterValidator, BeforeValidator, Field

from symphony.config.secrets import mask_secrets
from symphony.domain import cron_problem, normalise_label, normalise_state

MAX_NUMBER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""


_PHASE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SSH_HOST: Final = re.compile(
    r"(?:[A-Za-z0-9_][A-Za-z0-9._+-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
)
_MAX_PORT: Final = 65_535
_UNSAFE_SSH_OPTION: Final = re.compile(
    r"(?i)(StrictHostKeyChecking[ =]*(no|off|accept-new)\b|(User|Global)KnownHostsFile[ =]*/dev/null)"
)
_REMOTE_PATH: Final = re.compile(r"[A-Za-z0-9._/+][A-Za-z0-9._/+-]{0,255}")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_QUIET_HOURS: Final = re.compile(f"{_TIME}-{_TIME}", re.ASCII)


T = TypeVar("T")


class Shape(Struct, frozen=True):
    """What a value must be, in the words of the documentation."""

    text: str


def _must(message: str, holds: Callable[[Any], object]) -> AfterValidator:
    """Refuse a value for which `holds` returns a false value."""

    def check(value: T) -> T:
        if not holds(value):
            raise ValueError(message)
        return value

    return AfterValidator(check)


def _no_option(text: str) -> str:
    """Refuse a value that a program would interpret as an option on its command line."""
    if text.startswith("-"):
        raise ValueError("must not begin with a dash")
    return text


def _one_word(text: str) -> str:
    if len(text.split()) != 1 or text != text.strip():
        raise ValueError("must be one word, without blanks")
    return text


def _http_url(text: str) -> str:
    """Refuse an address without a usable host or with a login, which would be shown wherever the URL is."""
    try:
        parts = urlsplit(_one_word(text))
        usable = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
        if usable and parts.port != 0:
            return text
    except ValueError:
        pass
    raise ValueError("must be an http or https URL without a login")


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without blank and repeated ones."""
    return tuple(dict.fromkeys(_no_option(name.strip()) for name in names if name.strip()))


def _host_addresses(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        found = _SSH_HOST.fullmatch(name)
        if found is None or not 0 < int(found["port"] or 22) <= _MAX_PORT:
            raise ValueError("must be names of hosts: host, user@host or user@host:port")
    return names


def _ray_address(text: str) -> str:
    found = _SSH_HOST.fullmatch(text)
    if found is None or "@" in text or not 0 < int(found["port"] or 0) <= _MAX_PORT:
        raise ValueError("must be host:port")
    return text


def _inside_workspace(text: str) -> str:
    if "://" in text:
        raise ValueError(
            "must be a path inside the workspace, not an address: instructions may come from one "
            "(agent.instructions.url), and skills are copied from one by `symphony skills import`"
        )
    path = PurePosixPath(text)
    if not text.strip() or path.is_absolute() or ".." in path.parts or text.startswith("~"):
        raise ValueError("must be a path inside the workspace: relative, not empty, without ..")
    return text


def _iso_day(text: str) -> str:
    try:
        found = date.fromisoformat(text).isoformat()
    except ValueError:
        found = None
    if found != text:
        raise ValueError("must be a day such as 2026-10-01")
    return text


def _manifest_address(text: str) -> str:
    """Refuse an address with a login, and one that sends instructions in the clear over a network."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be the https address of a manifest.yaml")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("must not contain a user, a password, a query or a fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_this_machine(host)):
        raise ValueError("must begin with https:// (http:// only for this machine)")
    return text


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _sha256(text: str) -> str:
    if _SHA256.fullmatch(text) is None:
        raise ValueError("must be a SHA-256 of 64 hexadecimal digits; `symphony instructions list` shows it")
    return text.lower()


def _cron_line(text: str) -> str:
    if (problem := cron_problem(text)) is not None:
        raise ValueError(problem)
    return text


@lru_cache(maxsize=1_000)
def time_zone(name: str) -> ZoneInfo:
    """A time zone. Its file is read when the setting is validated, and not again by the event loop.

    Raises:
        KeyError, ValueError, OSError: there is no zone with that name.
    """
    return ZoneInfo(name)


def _time_zone(text: str) -> str:
    try:
        time_zone(text)
    except (KeyError, ValueError, OSError):
        message = "must be a time zone that this machine knows, such as Europe/Berlin or UTC"
        raise ValueError(message) from None
    return text


def _text_or_map(value: object) -> object:
    if not isinstance(value, str | dict):
        raise ValueError("must be text or a map")  # noqa: TRY004 - pydantic reports ValueError only
    return value


def _json_safe(value: T) -> T:
    """Refuse `.nan` and `.inf`, which JSON does not have."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise ValueError("must not contain .nan or .inf") from error
    return value


def _true_or_false(text: object) -> bool:
    value = {"true": True, "false": False}.get(str(text).strip().lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


Text = Annotated[
    str,
    Field(strict=True),
    _must("must not contain a NUL character", lambda text: "\0" not in text),
    Shape("text"),
]
Name = Annotated[Text, _must("must not be blank", str.strip)]
LowerName = Annotated[Name, AfterValidator(normalise_state)]
AgentName = Annotated[Name, Shape("name of an agent")]
PhaseName = Annotated[
    Text, _must("must be one word of letters, digits, - and _", _PHASE.fullmatch), Shape("one word")
]
GitName = Annotated[Name, AfterValidator(_no_option)]
Repository = Annotated[GitName, Shape("path or URL")]
Word = Annotated[Name, AfterValidator(_one_word)]
Host = Word
HttpUrl = Annotated[Name, AfterValidator(_http_url), Shape("http or https URL")]
ShellCommand = Annotated[Name, Shape("shell command")]
Script = Annotated[Text, AfterValidator(lambda text: text if text.strip() else None), Shape("script")]
VariableName = Annotated[Text, _must("must be the name of an environment variable", _VARIABLE.fullmatch)]
Day = Annotated[Text, AfterValidator(_iso_day)]
CronLine = Annotated[Name, AfterValidator(_cron_line), Shape("cron line")]
TimeZone = Annotated[Name, AfterValidator(_time_zone), Shape("time zone")]
QuietHours = Annotated[Text, _must("must be two times of day such as 22:00-07:00", _QUIET_HOURS.fullmatch)]
AbsolutePath = Annotated[Path, Shape("path")]
SkillsPath = Annotated[Text, AfterValidator(_inside_workspace), Shape("relative path")]
# A path relative to a workspace or to the file is refused: the directory is shared by all sessions.
UserPath = Annotated[
    Name,
    _must("must be an absolute path, or begin with ~/", re.compile(r"/|~/|~\Z").match),
    Shape("absolute path"),
]
FilePath = Annotated[Name, Shape("path of a file")]
ManifestAddress = Annotated[Name, AfterValidator(_manifest_address), Shape("https address")]
Sha256 = Annotated[Name, AfterValidator(_sha256), Shape("64 hexadecimal digits")]

Choice = Annotated[T, Field(strict=False)]
"""One of the values of an enumeration."""
Flag = Annotated[bool, Shape("true or false")]
Whole = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER), Shape("number")]
Positive = Annotated[int, Field(gt=0, le=MAX_NUMBER), Shape("number > 0")]
NonNegative = Annotated[int, Field(ge=0, le=MAX_NUMBER), Shape("number ≥ 0")]
Usd = Annotated[float, Field(strict=True, ge=0, le=1_000_000, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65_535), Shape("number 0 to 65535")]
FetchTimeout = Annotated[int, Field(gt=0, le=60_000), Shape("number 1 to 60000")]

# YAML has lists: `strict=False` accepts them as tuples; their items are still validated strictly.
Names = Annotated[tuple[Text, ...], Field(strict=False), Shape("list of text")]
States = Annotated[Names, AfterValidator(lambda names: tuple(name.strip() for name in names if name.strip()))]
# Normalised like issue labels, but blank labels stay, and match no issue.
Labels = Annotated[Names, AfterValidator(lambda names: tuple(dict.fromkeys(map(normalise_label, names))))]
Hosts = Annotated[Names, AfterValidator(_unique), AfterValidator(_host_addresses)]
SshOptions = Annotated[
    Names,
    _must(
        "must not switch off the check of the keys of hosts",
        lambda names: not _UNSAFE_SSH_OPTION.search(" ".join(names)),
    ),
]
RemotePath = Annotated[
    Text,
    _must(
        "must be a path of letters, digits, and . _ - + /, without ..",
        lambda text: _REMOTE_PATH.fullmatch(text) and ".." not in PurePosixPath(text).parts,
    ),
    Shape("path"),
]
RayAddress = Annotated[Name, AfterValidator(_ray_address), Shape("`host:port`")]
RayLabels = Annotated[dict[Name, Name], Shape("map of label to value")]
SkillNames = Annotated[tuple[Name, ...], Field(strict=False), Shape("list of text")]
TextFlag = Annotated[bool, BeforeValidator(_true_or_false)]
EnvNames = Annotated[tuple[VariableName, ...], Field(strict=False), Shape("list of variable names")]
SkillsPaths = Annotated[tuple[SkillsPath, ...], Field(strict=False), Shape("list of relative paths")]
UserPaths = Annotated[
    tuple[UserPath, ...],
    Field(strict=False),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Shape("absolute path, or list of them"),
]

Map = Annotated[dict[str, Any], Shape("map")]
MaskedMap = Annotated[Map, AfterValidator(mask_secrets)]
SecretValues = Annotated[
    dict[str, Text], AfterValidator(partial(mask_secrets, secret=True)), Shape("map of name to text")
]
EnvValues = Annotated[dict[VariableName, Text], Shape("map of variable name to text")]
StateLimits = Annotated[dict[str, Positive], Shape("map of state to number > 0")]
NamedSections = Annotated[dict[str, Any], Shape("map of name to settings")]
OpaqueMap = Annotated[Map, AfterValidator(_json_safe)]
OpaqueTextOrMap = Annotated[
    str | dict[str, Any], BeforeValidator(_text_or_map), AfterValidator(_json_safe), Shape("text or map")
]
