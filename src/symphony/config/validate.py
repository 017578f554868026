"""From the front matter's map to `Settings`, telling all that is wrong with it at once (WF8, CF1-CF13)."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from symphony.config.agent_review import check_agents, keep_agents
from symphony.config.agents import AgentKinds
from symphony.config.confidential import literal_secrets
from symphony.config.errors import WarningCode, did_you_mean, did_you_mean_one_of, one_of, quoted
from symphony.config.keys import sections
from symphony.config.resolve import (
    ResolveError,
    UnsetVariableError,
    default_workspace_root,
    reference_name,
    resolve_repository,
    resolve_root,
    root_variable,
    unset_hint,
)
from symphony.config.review import FrontMatter, Location, Review, dotted, phrase
from symphony.config.settings import MAX_NUMBER, NULL_KEYS, OPAQUE_KEYS, Section, Settings, Variables
from symphony.domain.failures import Category
from symphony.domain.issue import normalise_state

__all__ = ["review_settings"]

T = TypeVar("T")

_NO_FRONT_MATTER: Final = 'the file has no front matter: its first line must be "---"'

_OPAQUE: Final = frozenset(location[1:] for location in OPAQUE_KEYS)
"""The same keys in a named agent, whatever its kind."""

LINEAR_ALIASES: Final = ("endpoint", "api_key", "project_slug", "assignee")
"""Keys that once stood directly below `tracker`, when Linear was the only one (CF11)."""


def review_settings(
    source: FrontMatter,
    *,
    environment: Mapping[str, str],
    tracker_kinds: Collection[str],
    agent_kinds: AgentKinds,
) -> Review:
    """Type, resolve and judge a front matter; never raises.

    Args:
        source: the parsed front matter; an empty map where the file has none.
        environment: variables that `$NAME` may refer to.
        tracker_kinds: adapters that exist.
        agent_kinds: agent backends that exist, with the models of their sections.

    Returns:
        a review with `settings` set if, and only if, it has no failures.
    """
    review = Review(source=source)
    raw = {key: _without_nulls(value, (key,)) for key, value in source.value.items() if value is not None}
    raw.setdefault("tracker", {})
    _warn_literal_secrets(review, raw)
    _warn_unset(review, raw, environment)
    _adopt_aliases(review, raw)
    _warn_unknown(review, raw, Settings, (), others=agent_kinds)
    check_agents(review, raw, agent_kinds)
    has_kind = _check_tracker_kind(review, raw, tracker_kinds)
    _clean_state_limits(review, raw)
    _resolve_workspace(review, raw, environment)
    _override_skills(review, raw, environment)
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


def _warn_unset(review: Review, node: object, environment: Mapping[str, str], at: Location = ()) -> None:
    """Say which variables are referred to and not set; `workspace` says more of its own (CF5)."""
    if at in OPAQUE_KEYS or at == ("workspace",):
        return
    match node:
        case Mapping():
            for key, value in node.items():
                _warn_unset(review, value, environment, (*at, key))
        case list():
            for index, value in enumerate(node):
                _warn_unset(review, value, environment, (*at, index))
        case str() if (name := reference_name(node)) is not None and not environment.get(name):
            review.warn(
                at,
                f"{dotted(at)} refers to ${name}, which is not set",
                code=WarningCode.UNSET_VARIABLE,
                hint=unset_hint(name, environment),
            )
        case _:
            return


def _adopt_aliases(review: Review, raw: Mapping[str, Any]) -> None:
    """Move Linear's old flat keys into `tracker.provider`, told at the line where they stand (CF11)."""
    tracker = raw["tracker"]
    if not isinstance(tracker, dict) or tracker.get("kind") != "linear":
        return
    flat = {name: tracker.pop(name) for name in LINEAR_ALIASES if name in tracker}
    provider = tracker.setdefault("provider", {}) if flat else None
    if not isinstance(provider, dict):
        return
    moved = {name: value for name, value in flat.items() if name not in provider}
    provider.update(moved)
    positions = dict(review.places.positions)
    positions.update({("tracker", "provider", name): positions["tracker", name] for name in moved})
    review.source = replace(review.source, places=replace(review.places, positions=positions))


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


def _warn_unknown(
    review: Review,
    raw: Mapping[str, Any],
    model: type[Section] | type[Settings],
    at: Location,
    others: Collection[str] = (),
) -> None:
    """`others` are sections that the model does not have: `check_agents` looks at them."""
    known, below = {*model.model_fields, *others}, sections(model)
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
        elif isinstance(value, dict) and key in below:
            _warn_unknown(review, value, below[key], (*at, key))


def _check_tracker_kind(review: Review, raw: Mapping[str, Any], kinds: Collection[str]) -> bool:
    tracker = raw["tracker"]
    kind = tracker.get("kind", "") if isinstance(tracker, dict) else None
    if isinstance(kind, str) and not kind.strip():
        review.fail(
            ("tracker", "kind"),
            "is required",
            category=Category.MISSING_TRACKER_KIND,
            hint=one_of(kinds) if review.source.present else _NO_FRONT_MATTER,
        )
        return False
    if isinstance(kind, str) and "\0" not in kind and kind not in kinds:
        review.fail(
            ("tracker", "kind"),
            f"{quoted(kind)} is not supported",
            category=Category.UNSUPPORTED_TRACKER_KIND,
            hint=did_you_mean_one_of(kind, kinds),
        )
    return True


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
        name = normalise_state(state)
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
        workspace["root"] = _resolved(review, ("workspace", "root"), find_root, environment) or default
    if isinstance(repo, str):
        find_repo = partial(resolve_repository, repo, base=base, environment=environment)
        workspace["repo"] = _resolved(review, ("workspace", "repo"), find_repo, environment)


def _warn_about_root(review: Review, root: str, environment: Mapping[str, str]) -> None:
    location = ("workspace", "root")
    name = root_variable(root)
    if name is not None and not environment.get(name):
        review.warn(
            location,
            f"workspace.root refers to ${name}, which is not set; the default is used",
            code=WarningCode.UNSET_VARIABLE,
            hint=unset_hint(name, environment),
        )
    elif name is None and root.startswith("$"):
        hint = "only a value that is exactly $NAME, or begins with $SYMPHONY_STATE_DIR/, refers to a variable"
        review.warn(
            location,
            "workspace.root begins with a dollar sign that is taken literally",
            code=WarningCode.LITERAL_DOLLAR,
            hint=hint,
        )


def _resolved(
    review: Review, location: Location, resolve: Callable[[], T], environment: Mapping[str, str]
) -> T | None:
    try:
        return resolve()
    except UnsetVariableError as error:
        review.fail(location, str(error), hint=unset_hint(error.name, environment))
    except ResolveError as error:
        review.fail(location, str(error))
    return None


def _override_skills(review: Review, raw: dict[str, Any], environment: Mapping[str, str]) -> None:
    """A variable goes before the key, and mends no section that is not a map."""
    try:
        value = Variables.of(environment).agent_skills_enabled
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            review.fail_variable(str(problem["loc"][0]), phrase(problem)[0])
        return
    if value is None:
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
        settings = Settings.of(raw)
    except ValidationError as error:
        review.fail_each(error, but=skip)
        _keep_sections(review, raw)
        return None
    review.sections.update({name: getattr(settings, name) for name in sections(Settings)})
    return settings


def _keep_sections(review: Review, raw: Mapping[str, Any]) -> None:
    """The sections that are right in themselves, and what is left of the others."""
    for name, model in sections(Settings).items():
        values = raw.get(name, {})
        try:
            review.sections[name] = model.model_validate(values)
        except ValidationError as error:
            wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
            with suppress(ValidationError, AttributeError):  # the latter for what is no map at all
                left = {key: value for key, value in values.items() if key not in wrong}
                review.remains[name] = model.model_validate(left)
                review.told[name] = frozenset(left)
