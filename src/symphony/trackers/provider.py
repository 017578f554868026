"""Settings of trackers over HTTP: `tracker.provider` and the states of `tracker`, as one model per kind.

    class ExampleSettings(ProviderSettings):
        kind = "example"

        api_key: Annotated[Credential, StandInVariable("EXAMPLE_API_KEY")]
        project: Annotated[str, matches(r"[A-Z]+", "be the key of a project")]
        endpoint: Address = "https://api.example.org"

Texts and credentials can be `$NAME`. A setting that is missing, blank, or refers to an unset variable is
taken from its `StandInVariable`, if it has one. `read` reports all mistakes at once.
"""

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from msgspec import Struct
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from symphony import config
from symphony.domain import CREDENTIALS_BY_SERVICE, Blame, Category, Failure, normalise_state
from symphony.http import is_loopback
from symphony.http.exchange import origin_of
from symphony.trackers.base import ConfigProblem, TrackerConfigError, unique
from symphony.trackers.raw_tools import RawToolScope

_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_TRACKER_KEYS = frozenset({"active_states", "terminal_states", "on_block"})
"""Fields that are in `tracker`, not in `tracker.provider`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccess:
    """How to reach a service: base address, credential, and the headers with the credential."""

    base: str
    credential: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


# --- kinds of values -------------------------------------------------------------------------------------


class StandInVariable(Struct, frozen=True):
    """The environment variable that stands in for a missing setting."""

    name: str


class SettingError(ValueError):
    """A value that does not fit. The text follows the name of the setting."""

    def __init__(
        self, problem: str, *, hint: str | None = None, category: Category = Category.INVALID_TRACKER_CONFIG
    ) -> None:
        super().__init__(problem)
        self.hint, self.category = hint, category


def matches(pattern: str, rule: str) -> AfterValidator:
    """A text that matches a pattern; `rule` describes it in words ("be owner/name")."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise SettingError(f"must {rule}")
        return value

    return AfterValidator(check)


def _credential(value: object) -> config.Secret:
    if not isinstance(value, config.Secret):
        raise SettingError("must be text", hint="put the value in quotes")
    if _CONTROL.search(value.reveal()) or not value.reveal().isascii():
        raise SettingError(
            "holds characters that no credential has", category=Category.MISSING_TRACKER_SECRET
        )
    return value


def _address(value: str, info: ValidationInfo) -> str:
    """An https address, or an http address of this machine or with `insecure_http`; no trailing slash."""
    value = value.rstrip("/")
    try:
        scheme, _, _ = origin_of(value)
    except ValueError as error:
        raise SettingError(f"cannot be used: {error}") from error
    if "?" in value or "#" in value or _CONTROL.search(value):
        raise SettingError("must be an address without query, fragment or blanks")
    if scheme == "http" and not is_loopback(value) and not info.data.get("insecure_http"):
        hint = "use https, or accept that the credential can be read on the way: insecure_http: true"
        raise SettingError("is plain http to another machine", hint=hint)
    return value


Credential = Annotated[config.Secret, BeforeValidator(_credential)]
Address = Annotated[str, AfterValidator(_address)]
States = Annotated[tuple[str, ...], AfterValidator(unique)]


# --- the model -------------------------------------------------------------------------------------------


class ProviderSettings(BaseModel):
    """The settings of all kinds. A subclass adds the keys of its service.

    Attributes:
        kind: the kind of the tracker, whose page is `docs/trackers/<kind>.md`.
        scopes: the allowed values of `scope`.
        closed_states: states of the service itself in which an issue is always over.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
        validate_default=True,
        arbitrary_types_allowed=True,
    )

    kind: ClassVar[str]
    scopes: ClassVar[tuple[RawToolScope, ...]] = tuple(RawToolScope)
    closed_states: ClassVar[tuple[str, ...]] = ()

    insecure_http: bool = False
    scope: RawToolScope = RawToolScope.TOKEN
    active_states: States
    terminal_states: States
    on_block: str | None = None

    @property
    @abstractmethod
    def access(self) -> ServiceAccess:
        """How to reach the service."""

    def is_terminal(self, state: str | None) -> bool:
        """Whether an issue in this state is over; false for an unknown state."""
        return state is not None and normalise_state(state) in self.over

    @cached_property
    def over(self) -> frozenset[str]:
        """The normalised states in which an issue is over."""
        return frozenset(map(normalise_state, (*self.terminal_states, *self.closed_states)))

    @classmethod
    def provider_keys(cls) -> tuple[str, ...]:
        """The keys of `tracker.provider`."""
        return tuple(key for key in cls.model_fields if key not in _TRACKER_KEYS)

    @classmethod
    def secret_names(cls) -> frozenset[str]:
        """The variables that may hold a credential: those of the settings and of the service's clients."""
        fields = cls.model_fields.values()
        own = {_variable(field) for field in fields if field.annotation is config.Secret}
        known = CREDENTIALS_BY_SERVICE.get(cls.kind, frozenset())
        return known | {name for name in own if name is not None}

    @classmethod
    def read(cls, tracker: config.TrackerSettings, environment: Mapping[str, str]) -> Self:
        """Read the section `tracker`. Raises `TrackerConfigError` with all mistakes."""
        given: dict[str, Any] = {}
        for key, setting in cls.model_fields.items():
            value = getattr(tracker, key) if key in _TRACKER_KEYS else tracker.provider.get(key)
            value = _resolved(value, setting, environment)
            if value is not None:
                given[key] = value
        problems: list[ConfigProblem] = []
        sound: dict[str, Any] = {}
        settings = None
        try:
            settings = cls.model_validate(given, context=sound)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                key = str(details["loc"][0])
                if not cls.model_fields[key].is_required():
                    sound.setdefault(key, cls.model_fields[key].default)
                mistake = cls._explain(details, tracker.provider.get(key), environment)
                problems.append(cls.problem(key, mistake))
        problems += cls.check(sound)
        # The first mistake decides the exit code of a command, and a missing credential has its own exit
        # code.
        problems.sort(key=lambda problem: problem.failure.category is not Category.MISSING_TRACKER_SECRET)
        if settings is None or problems:
            raise TrackerConfigError(problems)
        return settings

    @classmethod
    def check(cls, sound: Mapping[str, Any]) -> Iterator[ConfigProblem]:
        """Mistakes that concern several settings together.

        Args:
            sound: the settings without a mistake, and defaults for the others if there are any.
        """
        del sound
        yield from ()

    @classmethod
    def problem(cls, key: str, error: SettingError) -> ConfigProblem:
        """The mistake in a setting."""
        location = ("tracker", key) if key in _TRACKER_KEYS else ("tracker", "provider", key)
        return ConfigProblem(
            location=location,
            failure=Failure(
                category=error.category,
                blame=Blame.CONFIG,
                message=f"{'.'.join(location)} {error}",
                retryable=False,
                hint=error.hint or f"docs/trackers/{cls.kind}.md describes the settings",
            ),
        )

    @classmethod
    def _explain(cls, details: ErrorDetails, value: object, environment: Mapping[str, str]) -> SettingError:
        """The mistake that pydantic found; `value` is the value in the file."""
        key, *inner = map(str, details["loc"])
        setting, is_missing = cls.model_fields[key], details["type"] == "missing"
        variable = _variable(setting)
        raised = details.get("ctx", {}).get("error")
        if isinstance(raised, SettingError) and not inner:
            return raised
        if is_missing and key in _TRACKER_KEYS:
            return SettingError("must be set", hint=f"{cls.kind} has no default states")
        if is_missing and setting.annotation is config.Secret:
            name = config.reference_name(value) or variable or "a variable"
            near = config.nearest_variable(name, environment)
            meant = "" if near is None else f"did you mean ${near}, which is set? Else "
            return SettingError(
                "has no credential",
                hint=f"{meant}set {name} where the daemon starts, and write ${name} here",
                category=Category.MISSING_TRACKER_SECRET,
            )
        problem, hint = config.describe_error(details)
        if is_missing and variable is not None:
            hint = f"set it, or the variable {variable}"
        if details["type"] == "extra_forbidden":
            problem = "is unknown"
        if inner:
            problem = f"has a wrong `{'.'.join(inner)}`: it {problem}"
        return SettingError(problem, hint=hint)

    @field_validator("scope", mode="before")
    @classmethod
    def _known_scope(cls, value: object) -> RawToolScope:
        for scope in cls.scopes:
            if scope == value:
                return scope
        raise SettingError(f"must be one of {', '.join(cls.scopes)}")

    @field_validator("*", mode="after")
    @classmethod
    def _is_sound(cls, value: Any, info: ValidationInfo) -> Any:
        """Collect valid settings for `check`, even if others are invalid."""
        if isinstance(info.context, dict):
            info.context[info.field_name] = value
        return value


def _variable(setting: FieldInfo) -> str | None:
    return next((marker.name for marker in setting.metadata if isinstance(marker, StandInVariable)), None)


def _resolved(value: Any, setting: FieldInfo, environment: Mapping[str, str]) -> Any:
    """The value of a setting, `None` if it is missing. Texts and credentials may come from a variable."""
    variable = _variable(setting)
    if setting.annotation is config.Secret:
        if value is None or isinstance(value, str | config.Secret):
            return config.resolve_secret(value, environment=environment, fallback=variable)
        return value
    if not (isinstance(setting.annotation, type) and issubclass(setting.annotation, str)):
        return value
    if isinstance(value, config.Secret):
        value = value.reveal()
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is not None and not isinstance(value, str):
        return value
    name = config.reference_name(value)
    if name is not None:
        value = environment.get(name)
    if value is None and variable is not None:
        value = environment.get(variable)
    return value.strip() or None if value else None
