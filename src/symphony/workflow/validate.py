"""From the front matter's map to `Settings`, telling all that is wrong with it at once (WF8, CF1-CF13)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic_core import ValidationError

from symphony.domain.failures import Category
from symphony.workflow.agent_review import check_agents, keep_agents
from symphony.workflow.confidential import literal_secrets, masked
from symphony.workflow.engine import names_of, typed
from symphony.workflow.errors import WarningCode, did_you_mean, quoted
from symphony.workflow.keys import section_of
from symphony.workflow.legacy import adopt_aliases
from symphony.workflow.resolve import (
    ResolveError,
    UnsetVariableError,
    default_workspace_root,
    reference_name,
    resolve_repository,
    resolve_root,
)
from symphony.workflow.review import FrontMatter, Location, Review, dotted
from symphony.workflow.settings import NULL_KEYS, OPAQUE_KEYS, Section, Settings
from symphony.workflow.values import MAX_NUMBER
from symphony.workflow.wording import wording

__all__ = ["SKILLS_ENABLED_VARIABLE", "review_settings"]

T = TypeVar("T")

_NO_FRONT_MATTER: Final = 'the file has no front matter: its first line must be "---"'

_OPAQUE: Final = frozenset(location[1:] for location in OPAQUE_KEYS)
"""The same keys in a named agent, whatever its kind."""

PLANNED_TRACKERS: Final = frozenset(
    {"linear", "github", "gitlab", "jira", "asana", "forgejo", "gitea", "redmine", "memory", "markdown"}
)
"""Kinds that mean something, whether or not this version has their adapter."""

SKILLS_ENABLED_VARIABLE: Final = "SYMPHONY_AGENT_SKILLS_ENABLED"
"""The one variable that overrides a key by itself (CF2)."""


def review_settings(
    source: FrontMatter,
    *,
    environment: Mapping[str, str],
    tracker_kinds: Collection[str],
    agent_kinds: Collection[str],
) -> Review:
    """Type, resolve and judge a front matter; never raises.

    Args:
        source: the parsed front matter; an empty map where the file has none.
        environment: variables that `$NAME` may refer to.
        tracker_kinds: adapters that exist.
        agent_kinds: agent backends that exist.

    Returns:
        a review with `settings` set if, and only if, it has no failures.
    """
    review = Review(source=source)
    raw = {key: _without_nulls(value, (key,)) for key, value in source.value.items() if value is not None}
    raw.setdefault("tracker", {})
    _warn_literal_secrets(review, raw)
    _adopt_aliases(review, raw)
    _warn_unknown(review, raw, Settings, ())
    check_agents(review, raw, agent_kinds)
    has_kind = _check_tracker_kind(review, raw, tracker_kinds)
    _clean_state_limits(review, raw)
    _resolve_workspace(review, raw, environment)
    _override_skills(review, raw, environment)
    _mask_provider(raw)
    settings = _typed(review, raw, skip=() if has_kind else ("tracker", "kind"))
    keep_agents(review, raw)
    _check_skills_source(review, settings)
    review.settings = None if review.failures else settings
    return review


def _warn_literal_secrets(review: Review, raw: Mapping[str, Any]) -> None:
    """Say where a secret stands in the file, and never what it is (AG20)."""
    for location in literal_secrets(raw):
        review.warn(
            location,
            f"{dotted(location)} holds a secret, and every session can read this file",
            code=WarningCode.LITERAL_SECRET,
            hint="write $NAME there and set the variable where the daemon starts; then replace the secret",
        )


def _adopt_aliases(review: Review, raw: Mapping[str, Any]) -> None:
    """Old spellings become today's, told at the line where they stand (CF11)."""
    moved = adopt_aliases(raw)
    known = review.places.positions
    adopted = {now: known[then] for now, then in moved.items() if then in known}
    places = replace(review.places, positions={**known, **adopted})
    review.source = replace(review.source, places=places)


def _mask_provider(raw: Mapping[str, Any]) -> None:
    tracker = raw["tracker"]
    if isinstance(tracker, dict) and isinstance(tracker.get("provider"), dict):
        tracker["provider"] = masked(tracker["provider"])


def _without_nulls(value: Any, location: Location) -> Any:
    """A null means "default" and is dropped (WF8), but for `NULL_KEYS` and maps that belong to the agent."""
    if location in OPAQUE_KEYS or (location[0] == "agents" and location[2:] in _OPAQUE):
        return value
    if isinstance(value, dict):
        return {
            key: _without_nulls(item, (*location, key))
            for key, item in value.items()
            if item is not None or (*location, key) in NULL_KEYS
        }
    if isinstance(value, list):
        return [_without_nulls(item, (*location, index)) for index, item in enumerate(value)]
    return value


def _warn_unknown(review: Review, raw: Mapping[str, Any], model: type[Section], at: Location) -> None:
    known = names_of(model)
    for key, value in raw.items():
        if key not in known:
            what = "key" if at else "section"
            name = quoted(dotted((*at, key)))
            review.warn(
                (*at, key),
                f"unknown {what} {name} is ignored",
                code=WarningCode.UNKNOWN_KEY,
                hint=did_you_mean(key, known),
            )
        elif isinstance(value, dict) and (section := section_of(model, key)):
            _warn_unknown(review, value, section, (*at, key))


def _check_tracker_kind(review: Review, raw: Mapping[str, Any], kinds: Collection[str]) -> bool:
    tracker = raw["tracker"]
    kind = tracker.get("kind", "") if isinstance(tracker, dict) else None
    if isinstance(kind, str) and not kind.strip():
        review.fail(
            ("tracker", "kind"),
            "is required",
            category=Category.MISSING_TRACKER_KIND,
            hint=_one_of(kinds) if review.source.present else _NO_FRONT_MATTER,
        )
        return False
    if isinstance(kind, str) and "\0" not in kind and kind not in kinds:
        problem, hint = "is not supported", did_you_mean(kind, kinds) or _one_of(kinds)
        if kind in PLANNED_TRACKERS:
            problem, hint = "is not in this version yet", _one_of(kinds)
        category = Category.UNSUPPORTED_TRACKER_KIND
        review.fail(("tracker", "kind"), f"{quoted(kind)} {problem}", category=category, hint=hint)
    return True


def _one_of(kinds: Collection[str]) -> str:
    return f"supported: {', '.join(sorted(kinds))}"


def _clean_state_limits(review: Review, raw: dict[str, Any]) -> None:
    """Normalise state names and leave out what is not a limit, with a warning (CF9)."""
    agent = raw.get("agent")
    if not isinstance(agent, dict):
        return
    limits = agent.get("max_concurrent_agents_by_state")
    if not isinstance(limits, dict):
        return
    cleaned: dict[str, int] = {}
    for state, limit in limits.items():
        name = state.strip().lower()
        if problem := _limit_problem(name, limit, cleaned):
            location = ("agent", "max_concurrent_agents_by_state", state)
            review.warn(
                location,
                f"agent.max_concurrent_agents_by_state: {quoted(state)} is ignored: {problem}",
                code=WarningCode.IGNORED_STATE_LIMIT,
            )
        else:
            cleaned[name] = limit
    agent["max_concurrent_agents_by_state"] = cleaned


def _limit_problem(name: str, limit: object, seen: Mapping[str, int]) -> str | None:
    if not name:
        return "a state needs a name"
    if name in seen:
        return "the same state is listed above"
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MAX_NUMBER:
        return "a limit is a whole number greater than 0"
    return None


def _resolve_workspace(review: Review, raw: dict[str, Any], environment: Mapping[str, str]) -> None:
    workspace = raw.setdefault("workspace", {})
    if not isinstance(workspace, dict):
        return
    base = review.source.path.parent
    default = default_workspace_root(environment)
    root, repo = workspace.setdefault("root", str(default)), workspace.get("repo")
    if isinstance(root, str):
        _warn_about_root(review, root, environment)
        find_root = partial(resolve_root, root, base=base, environment=environment)
        workspace["root"] = _resolved(review, ("workspace", "root"), find_root) or default
    if isinstance(repo, str):
        find_repo = partial(resolve_repository, repo, base=base, environment=environment)
        workspace["repo"] = _resolved(review, ("workspace", "repo"), find_repo)


def _warn_about_root(review: Review, root: str, environment: Mapping[str, str]) -> None:
    location = ("workspace", "root")
    name = reference_name(root)
    if name is not None and not environment.get(name):
        review.warn(
            location,
            f"workspace.root refers to ${name}, which is not set; the default is used",
            code=WarningCode.UNSET_VARIABLE,
        )
    elif name is None and root.startswith("$"):
        hint = "only a value that is exactly $NAME refers to a variable"
        review.warn(
            location,
            "workspace.root begins with a dollar sign that is taken literally",
            code=WarningCode.LITERAL_DOLLAR,
            hint=hint,
        )


def _resolved(review: Review, location: Location, resolve: Callable[[], T]) -> T | None:
    try:
        return resolve()
    except UnsetVariableError as error:
        review.fail(
            location, str(error), hint=f"set {error.name} where the daemon starts, or write the value"
        )
    except ResolveError as error:
        review.fail(location, str(error))
    return None


def _override_skills(review: Review, raw: dict[str, Any], environment: Mapping[str, str]) -> None:
    text = environment.get(SKILLS_ENABLED_VARIABLE)
    if text is None:
        return
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        review.fail_variable(SKILLS_ENABLED_VARIABLE, "must be true or false")
        return
    agent = raw.setdefault("agent", {})
    skills = agent.setdefault("skills", {}) if isinstance(agent, dict) else None
    if isinstance(skills, dict):
        skills["enabled"] = value


def _check_skills_source(review: Review, settings: Settings | None) -> None:
    """Without a repository nothing is committed anywhere, and a workspace is no replacement for it."""
    if settings and settings.agent.skills.source == "base_branch" and settings.workspace.repo is None:
        review.fail(
            ("agent", "skills", "source"),
            "can be base_branch only where workspace.repo names a repository",
            hint="set workspace.repo, or leave the source out to read skills in the workspace",
        )


def _typed(review: Review, raw: Mapping[str, Any], *, skip: Location) -> Settings | None:
    try:
        settings = typed(Settings, raw)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            if problem["loc"] != skip:
                text, hint = wording(problem)
                review.fail(problem["loc"], text, hint=hint)
        _keep_sections(review, raw)
        return None
    review.sections.update({name: getattr(settings, name) for name, _ in _sections()})
    return settings


def _sections() -> Iterator[tuple[str, type[Section]]]:
    for name in names_of(Settings):
        if model := section_of(Settings, name):
            yield name, model


def _keep_sections(review: Review, raw: Mapping[str, Any]) -> None:
    """The sections that are right in themselves, and what is left of the others."""
    for name, model in _sections():
        values = raw.get(name, {})
        try:
            review.sections[name] = typed(model, values)
        except ValidationError as error:
            wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
            with suppress(ValidationError, AttributeError):  # the latter for what is no map at all
                left = {key: value for key, value in values.items() if key not in wrong}
                review.remains[name] = typed(model, left)
                review.told[name] = frozenset(left)
