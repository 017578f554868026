"""Turns the front matter into `Settings` and reports all of its problems at once."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from symphony.config import secrets
from symphony.config.errors import (
    FrontMatter,
    Location,
    ProblemCollector,
    SourceMap,
    WarningCode,
    describe_error,
    did_you_mean,
    did_you_mean_one_of,
    dotted,
    one_of,
    quoted,
)
from symphony.config.pull_request_text import PULL_REQUEST_NAMES, pull_request_text_problem
from symphony.config.settings import (
    AGENT_SECTIONS,
    NOTIFY_EVENTS,
    NULLABLE_KEYS,
    OPAQUE_KEYS,
    AgentKinds,
    AgentRuleSettings,
    AgentSection,
    AgentSettings,
    NamedAgent,
    NotifySettings,
    PhaseRuleSettings,
    PriceSettings,
    ScheduleSettings,
    Section,
    Settings,
    Variables,
    VerifySettings,
    named_agent,
    requested_agents,
    sections,
)
from symphony.config.synonyms import LINEAR_ALIASES
from symphony.config.values import MAX_NUMBER
from symphony.domain import Category, SymphonyError, normalise_state
from symphony.scheduler import IssueRule

# --- Agents ---
#
# A named agent is validated like the section of its kind. Unknown keys are removed with a warning. Every
# agent that is referred to must exist.

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Names are used in log lines and as directory names."""


def check_agents(review: ProblemCollector, raw: dict[str, Any], kinds: AgentKinds) -> None:
    """Validate `agents`, the references to them in `agent`, and sections of kinds from other packages.

    The package of a kind is loaded only if an issue can be given to an agent of this kind.

    Args:
        review: collects the problems.
        raw: the front matter without nulls; unknown keys are removed from it.
        kinds: the installed kinds.
    """
    named = raw.get("agents")
    named = named if isinstance(named, dict) else {}
    agent = raw.get("agent")
    agent = agent if isinstance(agent, dict) else {}
    models = dict(AGENT_SECTIONS)
    verify = raw.get("verify")
    reviewer = verify.get("reviewer") if isinstance(verify, dict) else None
    for name, at in _referenced(agent, reviewer).items():
        values, kind, place = named.get(name), name, at
        if isinstance(values, dict):
            kind, place = str(values.get("kind")), ("agents", name, "kind")
        if kind not in kinds or kind in models:
            continue
        try:
            models[kind] = kinds[kind]
        except SymphonyError as error:
            review.add(place, error.failure)
        else:
            _check_section(review, raw, kind, models[kind])
    for name in tuple(named):
        _check_named(review, name, named[name], kinds, models)
    if agent:
        _check_choice(review, agent, {*kinds, *named})
        _check_phases(review, agent)
    _check_exists(review, ("verify", "reviewer"), reviewer, {*kinds, *named})


def _referenced(agent: Mapping[str, Any], reviewer: object) -> Mapping[str, Location]:
    """The names of agents that not yet validated sections refer to, with the first location of each."""
    found: dict[str, Location] = {}

    def note(name: object, at: Location) -> None:
        if isinstance(name, str):
            found.setdefault(name, at)

    note(agent.get("kind"), ("agent", "kind"))
    note(agent.get("fallback"), ("agent", "fallback"))
    rules = agent.get("rules")
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        for key in ("use", "fallback"):
            note(rule.get(key) if isinstance(rule, dict) else None, ("agent", "rules", index, key))
    library = agent.get("library")
    if isinstance(library, dict):
        note(library.get("learner"), ("agent", "library", "learner"))
    note(reviewer, ("verify", "reviewer"))
    return found


def _check_section(
    review: ProblemCollector, raw: Mapping[str, Any], kind: str, model: type[AgentSection]
) -> None:
    """Validate the section of a kind from another package."""
    values = raw.get(kind, {})
    if isinstance(values, dict):
        _remove_unknown(review, values, model.model_fields, (kind,))
    try:
        review.sections[kind] = model.model_validate(values)
    except ValidationError as error:
        review.fail_each(error, (kind,))


def _check_named(
    review: ProblemCollector,
    name: str,
    values: object,
    kinds: AgentKinds,
    models: Mapping[str, type[AgentSection]],
) -> None:
    at = ("agents", name)
    if name in kinds or name in models:
        hint = f"write its settings in the section {name}, or choose another name"
        review.fail(at, "is a kind of agents, which has this name already", hint=hint)
        return
    if not _NAME.fullmatch(name):
        hint = "write 1 to 64 of a-z, 0-9, - and _, a letter or digit first"
        review.fail(at, "is no name for an agent", hint=hint)
    if not isinstance(values, dict):
        review.fail(at, "must be a map", hint="write its keys indented below it, kind first")
        return
    kind = values.get("kind")
    if isinstance(kind, str) and kind in kinds:
        model = models.get(kind)
        if model is None:  # a kind from another package that no issue can be given to
            return
        _remove_unknown(review, values, {"kind", *model.model_fields}, at)
        try:
            model.model_validate(values)
        except ValidationError as error:
            review.fail_each(error, at)
    elif kind is None:
        review.fail((*at, "kind"), "is required", hint=one_of(kinds))
    elif isinstance(kind, str):
        hint = did_you_mean_one_of(kind, kinds)
        review.fail((*at, "kind"), f"{quoted(kind)} is not supported", hint=hint)
    else:
        review.fail((*at, "kind"), "must be text", hint=one_of(kinds))


def _remove_unknown(
    review: ProblemCollector, values: dict[str, Any], known: Collection[str], at: Location
) -> None:
    for key in sorted(values.keys() - set(known)):
        del values[key]
        review.warn_unknown((*at, key), known)


def _check_choice(review: ProblemCollector, agent: Mapping[str, Any], known: Collection[str]) -> None:
    """Check that the agents exist. Values of a wrong type are reported elsewhere."""
    _check_exists(review, ("agent", "kind"), agent.get("kind"), known)
    _check_fallback(review, ("agent",), agent.get("kind", "codex"), agent.get("fallback"), known)
    rules = agent.get("rules")
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, dict):
            _check_rule(review, ("agent", "rules", index), rule, known)
    library = agent.get("library")
    if isinstance(library, dict):
        _check_exists(review, ("agent", "library", "learner"), library.get("learner"), known)


def _check_rule(review: ProblemCollector, at: Location, rule: dict[str, Any], known: Collection[str]) -> None:
    _remove_unknown(review, rule, AgentRuleSettings.__dataclass_fields__, at)
    _check_exists(review, (*at, "use"), rule.get("use"), known)
    _check_fallback(review, at, rule.get("use"), rule.get("fallback"), known)
    _check_condition(review, at, rule, hint="without a rule, agent.kind says which agent it is")


def _check_phases(review: ProblemCollector, agent: Mapping[str, Any]) -> None:
    phases = agent.get("phases")
    rules = phases.get("rules") if isinstance(phases, dict) else None
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, dict):
            at = ("agent", "phases", "rules", index)
            _remove_unknown(review, rule, PhaseRuleSettings.__dataclass_fields__, at)
            _check_condition(review, at, rule, hint="agent.phases.default is the phase of all other issues")


def _check_condition(review: ProblemCollector, at: Location, rule: Mapping[str, Any], *, hint: str) -> None:
    if "label" not in rule and "state" not in rule:
        review.fail(at, "needs a label or a state to choose by", hint=hint)


def _check_fallback(
    review: ProblemCollector, at: Location, agent: object, fallback: object, known: Collection[str]
) -> None:
    location = (*at, "fallback")
    _check_exists(review, location, fallback, known)
    if isinstance(fallback, str) and fallback == agent:
        hint = "name another agent, or leave it out"
        review.fail(location, f"{quoted(fallback)} is the agent itself", hint=hint)


def _check_exists(review: ProblemCollector, location: Location, name: object, known: Collection[str]) -> None:
    if not isinstance(name, str) or not name.strip() or "\0" in name or name in known:
        return
    problem = "is not supported" if location == ("agent", "kind") else "is no agent of this file"
    review.fail(location, f"{quoted(name)} {problem}", hint=did_you_mean_one_of(name, known))


def keep_agents(review: ProblemCollector, raw: Mapping[str, Any]) -> None:
    """Collect the valid agents that can be chosen for an issue, and warn about rules that never apply."""
    sections = {**review.partial_sections, **review.sections}
    agent = sections.get("agent")
    if not isinstance(agent, AgentSettings):
        agent = AgentSettings()
    verify = sections.get("verify")
    if not isinstance(verify, VerifySettings):
        verify = VerifySettings()
    known = {found.name: found for found in _valid_agents(sections, raw.get("agents"))}
    review.agents.update({name: known[name] for name in requested_agents(agent, verify) if name in known})
    _warn_shadowed(review, ("agent", "rules"), agent.rules)
    _warn_shadowed(review, ("agent", "phases", "rules"), agent.phases.rules)


def _warn_shadowed(review: ProblemCollector, at: Location, rules: Sequence[IssueRule]) -> None:
    """Warn about rules that never apply."""
    name = dotted(at)
    for later, rule in enumerate(rules):
        if (earlier := _shadow(rules[:later], rule)) is not None:
            review.warn(
                (*at, later),
                f"{name}[{later}] never chooses: {name}[{earlier}] matches every issue that it matches",
                code=WarningCode.SHADOWED_RULE,
                hint="the first matching rule counts: put the narrower one first",
            )


def _valid_agents(sections: Mapping[str, Any], named: object) -> Iterator[NamedAgent]:
    for kind, section in sections.items():
        if isinstance(section, AgentSection):
            yield NamedAgent(name=kind, kind=kind, settings=section)
    for name, values in named.items() if isinstance(named, dict) else ():
        base = sections.get(str(values.get("kind"))) if isinstance(values, dict) else None
        if isinstance(base, AgentSection):
            with suppress(ValidationError):
                yield named_agent(name, values, base)


def _shadow(earlier: Sequence[IssueRule], rule: IssueRule) -> int | None:
    """The index of an earlier rule that matches every issue that this one matches, or `None`."""
    for index, other in enumerate(earlier):
        if other.label in {None, rule.label} and other.state in {None, rule.state}:
            return index
    return None


def agent_key_location(agent: NamedAgent, key: str, source_map: SourceMap) -> Location:
    """The location of a key of an agent: in its own section, or in that of its kind."""
    own: Location = ("agents", agent.name, key)
    if agent.name == agent.kind:
        return (agent.kind, key)
    of_kind: Location = (agent.kind, key)
    return of_kind if own not in source_map.positions and of_kind in source_map.positions else own


# --- The front matter ---

T = TypeVar("T")

_PRICE: Final = TypeAdapter(PriceSettings)
_NO_FRONT_MATTER: Final = 'the file has no front matter: its first line must be "---"'

_OPAQUE: Final = frozenset(location[1:] for location in OPAQUE_KEYS)
"""`OPAQUE_KEYS` without their section, because a named agent can have any kind."""

_NUMBERS_AS_TEXT: Final[tuple[Location, ...]] = (
    ("polling", "interval_ms"),
    ("agent", "max_concurrent_agents"),
    ("agent", "max_turns"),
    ("agent", "max_retry_backoff_ms"),
)
_LISTS_AS_TEXT: Final[tuple[Location, ...]] = (("tracker", "active_states"), ("tracker", "terminal_states"))
_NUMBER: Final = re.compile(r"\s*[-+]?[0-9]{1,16}\s*", re.ASCII)


def review_settings(
    source: FrontMatter,
    *,
    environment: Mapping[str, str],
    tracker_kinds: Collection[str],
    agent_kinds: AgentKinds,
) -> ProblemCollector:
    """Validate and resolve a front matter; never raises.

    Args:
        source: the parsed front matter; an empty map if the file has none.
        environment: variables that `$NAME` may refer to.
        tracker_kinds: the existing tracker adapters.
        agent_kinds: the existing agent backends, with the models of their sections.

    Returns:
        the problems; `settings` is set if there are no failures.
    """
    review = ProblemCollector(source=source)
    raw = {key: _without_nulls(value, (key,)) for key, value in source.value.items() if value is not None}
    raw.setdefault("tracker", {})
    _warn_literal_secrets(review, raw)
    _warn_unset(review, raw, environment)
    _read_outdated_forms(review, raw)
    _adopt_aliases(review, raw)
    _warn_unknown(review, raw, Settings, (), others=agent_kinds)
    check_agents(review, raw, agent_kinds)
    has_kind = _check_tracker_kind(review, raw, tracker_kinds)
    _clean_state_limits(review, raw)
    _clean_prices(review, raw)
    _clean_notify(review, raw)
    _resolve_workspace(review, raw, environment)
    _push_for_pull_requests(raw)
    _warn_unknown_of_schedules(review, raw)
    _override_skills(review, raw, environment)
    settings = _typed(review, raw, skip=() if has_kind else ("tracker", "kind"))
    keep_agents(review, raw)
    _check_skills_source(review, settings)
    _check_instructions(review, settings)
    _check_hosts(review, settings)
    _check_pull_requests(review, settings)
    _check_schedules(review, settings)
    review.settings = None if review.failures else settings
    return review


def _warn_literal_secrets(review: ProblemCollector, raw: Mapping[str, Any]) -> None:
    """Warn about plain text secrets in the file, without their values."""
    for location in secrets.literal_secrets(raw):
        review.warn(
            location,
            f"{dotted(location)} contains a secret, and every session can read this file",
            code=WarningCode.LITERAL_SECRET,
            hint="write $NAME there and set the variable where the daemon starts; then replace the secret",
        )


def _warn_unset(
    review: ProblemCollector, node: object, environment: Mapping[str, str], at: Location = ()
) -> None:
    """Warn about references to unset variables; those in `workspace` are checked with their paths."""
    if at in OPAQUE_KEYS or at == ("workspace",):
        return
    match node:
        case Mapping():
            for key, value in node.items():
                _warn_unset(review, value, environment, (*at, key))
        case list():
            for index, value in enumerate(node):
                _warn_unset(review, value, environment, (*at, index))
        case str() if (name := secrets.reference_name(node)) is not None and not environment.get(name):
            review.warn(
                at,
                f"{dotted(at)} refers to ${name}, which is not set",
                code=WarningCode.UNSET_VARIABLE,
                hint=secrets.unset_hint(name, environment),
            )
        case _:
            return


def _read_outdated_forms(review: ProblemCollector, raw: Mapping[str, Any]) -> None:
    """Read texts as numbers and lists where the first published specification took them, with a warning."""
    forms: dict[Location, Callable[[str], object]] = {
        **dict.fromkeys(_NUMBERS_AS_TEXT, _number_in),
        **dict.fromkeys(_LISTS_AS_TEXT, _list_in),
    }
    for location, read in forms.items():
        section, key = map(str, location)
        values = raw.get(section)
        text = values.get(key) if isinstance(values, dict) else None
        if not isinstance(values, dict) or not isinstance(text, str) or (value := read(text)) is None:
            continue
        values[key] = value
        plain = json.dumps(value, ensure_ascii=False)
        review.warn(
            location,
            f"{dotted(location)} is text, as the first published specification had it; it is read as {plain}",
            code=WarningCode.OUTDATED_FORM,
            hint=f"write {key}: {plain}",
        )


def _number_in(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _list_in(text: str) -> list[str] | None:
    if "," not in text:
        return None
    return [name.strip() for name in text.split(",") if name.strip()] or None


def _adopt_aliases(review: ProblemCollector, raw: Mapping[str, Any]) -> None:
    """Move Linear's flat keys into `tracker.provider`; their positions stay."""
    tracker = raw["tracker"]
    if not isinstance(tracker, dict) or tracker.get("kind") != "linear":
        return
    flat = {name: tracker.pop(name) for name in LINEAR_ALIASES if name in tracker}
    provider = tracker.setdefault("provider", {}) if flat else None
    if not isinstance(provider, dict):
        return
    moved = {name: value for name, value in flat.items() if name not in provider}
    provider.update(moved)
    positions = dict(review.source_map.positions)
    positions.update({("tracker", "provider", name): positions["tracker", name] for name in moved})
    review.source = replace(review.source, source_map=replace(review.source_map, positions=positions))


def _without_nulls(value: Any, location: Location) -> Any:
    """Drop nulls, which mean "default", except for `NULLABLE_KEYS` and maps that are passed to the agent."""
    if location in OPAQUE_KEYS or (location[0] == "agents" and location[2:] in _OPAQUE):
        return value
    if isinstance(value, dict):
        return {
            key: _without_nulls(item, (*location, key))
            for key, item in value.items()
            if item is not None or (*location, key) in NULLABLE_KEYS
        }
    if isinstance(value, list):
        return [_without_nulls(item, (*location, index)) for index, item in enumerate(value)]
    return value


def _section_below(key: str, below: Mapping[str, type[Section]]) -> str | None:
    """The hint for a section that stands too high, such as `skills`, which belongs below `agent`."""
    found = next((name for name, model in below.items() if key in sections(model)), None)
    return None if found is None else f"it belongs below {found}: {found}.{key}"


def _warn_unknown(
    review: ProblemCollector,
    raw: Mapping[str, Any],
    model: type[Section],
    at: Location,
    others: Collection[str] = (),
) -> None:
    """Warn about unknown keys. `others` are sections of other packages, which check their own keys."""
    known, below = {*model.model_fields, *others}, sections(model)
    for key, value in raw.items():
        if key not in known:
            review.warn_unknown((*at, key), known, hint=None if at else _section_below(key, below))
        elif isinstance(value, dict) and key in below:
            other = (str(value.get("carrier")),) if (*at, key) == ("worker",) else ()
            _warn_unknown(review, value, below[key], (*at, key), other)


def _check_tracker_kind(review: ProblemCollector, raw: Mapping[str, Any], kinds: Collection[str]) -> bool:
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


def _clean_state_limits(review: ProblemCollector, raw: dict[str, Any]) -> None:
    """Normalise state names and remove invalid limits with a warning (specification section 5.3.5)."""
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


def _clean_notify(review: ProblemCollector, raw: dict[str, Any]) -> None:
    """Remove invalid targets and events of `notify` with warnings, so that work can start anyway."""
    targets = raw.pop("notify", [])
    if not isinstance(targets, list):
        _warn_notify(review, ("notify",), "must be a list of targets; no one is notified", None)
        return
    kept: dict[str, Any] = {}
    for index, target in enumerate(targets):
        at: Location = ("notify", index)
        if not isinstance(target, dict):
            _warn_notify(review, at, "must be a map; it is left out", None)
            continue
        _clean_events(review, target, at)
        for key in sorted(target.keys() - NotifySettings.model_fields.keys()):
            _warn_notify(review, (*at, key), "is unknown", did_you_mean(key, NotifySettings.model_fields))
        try:
            name = NotifySettings.model_validate(target).name
        except ValidationError as error:
            for wrong in error.errors(include_url=False):
                text, hint = describe_error(wrong)
                _warn_notify(review, (*at, *wrong["loc"]), f"{text}; the target is off", hint)
            continue
        if name in kept:
            problem = f"is {quoted(name)}, like an earlier target; the target is off"
            _warn_notify(review, (*at, "name"), problem, "give it another name")
        kept.setdefault(name, target)
    raw["notify"] = [*kept.values()]


def _clean_events(review: ProblemCollector, target: dict[str, Any], at: Location) -> None:
    events = target.get("on")
    if not isinstance(events, list):
        return
    for number, event in enumerate(events):
        if event not in NOTIFY_EVENTS:
            hint = did_you_mean_one_of(str(event), NOTIFY_EVENTS)
            _warn_notify(review, (*at, "on", number), f"is no event: {quoted(str(event))}", hint)
    target["on"] = [event for event in events if event in NOTIFY_EVENTS]


def _warn_notify(review: ProblemCollector, location: Location, problem: str, hint: str | None) -> None:
    review.warn(location, f"{dotted(location)} {problem}", code=WarningCode.IGNORED_NOTIFICATION, hint=hint)


def _limit_problem(name: str, limit: object, seen: Mapping[str, int]) -> str | None:
    if not name:
        return "a state needs a name"
    if name in seen:
        return "the same state is listed above"
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MAX_NUMBER:
        return "a limit is a whole number greater than 0"
    return None


def _clean_prices(review: ProblemCollector, raw: dict[str, Any]) -> None:
    """Remove invalid prices with a warning, so that work can start anyway; their tokens have no price."""

    def ignore(at: Location, problem: str, hint: str | None = None) -> None:
        review.warn(at, f"{dotted(at)} is ignored: {problem}", code=WarningCode.IGNORED_PRICE, hint=hint)

    given, cleaned = raw.get("pricing"), dict[str, list[dict[str, Any]]]()
    if not isinstance(given, dict):
        return
    keys = _PRICE.json_schema()["properties"].keys()
    for model, prices in given.items():
        if "*" in model[:-1] or not model.strip():
            ignore(("pricing", model), "it must be the name of a model, or its beginning with * at the end")
            continue
        days = set[str | None]()
        for index, entry in enumerate(prices if isinstance(prices, list) else [prices]):
            at: Location = ("pricing", model, index) if isinstance(prices, list) else ("pricing", model)
            if isinstance(entry, dict):
                _remove_unknown(review, entry, keys, at)
            try:
                price = _PRICE.validate_python(entry)
            except ValidationError as error:
                for problem in error.errors(include_url=False):
                    text, hint = describe_error(problem)
                    ignore(at, f"{dotted(problem['loc']) or 'it'} {text}", hint)
                continue
            if price.since in days:
                ignore(at, "it begins on the same day as one above")
            else:
                days.add(price.since)
                cleaned.setdefault(model, []).append(entry)
    raw["pricing"] = cleaned


def _resolve_workspace(review: ProblemCollector, raw: dict[str, Any], environment: Mapping[str, str]) -> None:
    workspace = raw.setdefault("workspace", {})
    if not isinstance(workspace, dict):
        return
    base = review.source.path.parent
    default = secrets.default_workspace_root(environment)
    root, repo = workspace.setdefault("root", str(default)), workspace.get("repo")
    if isinstance(root, str):
        _warn_about_root(review, root, environment)
        find_root = partial(secrets.resolve_root, root, base=base, environment=environment)
        workspace["root"] = _resolved(review, ("workspace", "root"), find_root, environment) or default
    if isinstance(repo, str):
        find_repo = partial(secrets.resolve_repository, repo, base=base, environment=environment)
        workspace["repo"] = _resolved(review, ("workspace", "repo"), find_repo, environment)


def _warn_about_root(review: ProblemCollector, root: str, environment: Mapping[str, str]) -> None:
    location = ("workspace", "root")
    name = secrets.root_variable(root)
    if name is not None and not environment.get(name):
        review.warn(
            location,
            f"workspace.root refers to ${name}, which is not set; the default is used",
            code=WarningCode.UNSET_VARIABLE,
            hint=secrets.unset_hint(name, environment),
        )
    elif name is None and root.startswith("$") and secrets.foreign_reference(root) is None:
        hint = "only a value that is exactly $NAME, or begins with $SYMPHONY_STATE_DIR/, refers to a variable"
        review.warn(
            location,
            "workspace.root begins with a dollar sign, which is used literally",
            code=WarningCode.LITERAL_DOLLAR,
            hint=hint,
        )


def _resolved(
    review: ProblemCollector, location: Location, resolve: Callable[[], T], environment: Mapping[str, str]
) -> T | None:
    try:
        return resolve()
    except secrets.UnsetVariableError as error:
        review.fail(location, str(error), hint=secrets.unset_hint(error.name, environment))
    except secrets.ResolveError as error:
        review.fail(location, str(error))
    return None


def _override_skills(review: ProblemCollector, raw: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Apply the environment variable that overrides `agent.skills.enabled`."""
    try:
        value = Variables.of(environment).agent_skills_enabled
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            review.fail_variable(str(problem["loc"][0]), describe_error(problem)[0])
        return
    if value is None:
        return
    agent = raw.setdefault("agent", {})
    skills = agent.setdefault("skills", {}) if isinstance(agent, dict) else None
    if isinstance(skills, dict):
        skills["enabled"] = value


def _check_skills_source(review: ProblemCollector, settings: Settings | None) -> None:
    """Check that skills of the base branch have a repository."""
    if settings and settings.agent.skills.source == "base_branch" and settings.workspace.repo is None:
        review.fail(
            ("agent", "skills", "source"),
            "can be base_branch only where workspace.repo names a repository",
            hint="set workspace.repo, or leave the source out to read skills in the workspace",
        )


def _check_instructions(review: ProblemCollector, settings: Settings | None) -> None:
    """Check that remote instructions have an address."""
    if settings and settings.agent.instructions.source == "remote" and not settings.agent.instructions.url:
        review.fail(
            ("agent", "instructions", "source"),
            "is remote, but agent.instructions.url is missing",
            hint="set agent.instructions.url to the https address of a manifest.yaml",
        )


def _check_hosts(review: ProblemCollector, settings: Settings | None) -> None:
    """Check that there is one carrier: Ray, SSH, or a carrier of another package."""
    if settings is None:
        return
    worker, hosts, cluster = settings.worker, "worker.ssh_hosts", "worker.ray.address"
    given = {"ssh": hosts if worker.ssh_hosts else None, "ray": cluster if worker.ray.address else None}
    if given["ssh"] and given["ray"]:
        review.fail(
            ("worker", "ray", "address"),
            f"is set, and so is {hosts}: runs go to a Ray cluster, or to hosts by ssh",
            hint="remove one of them; a host can be a node of the cluster",
        )
    elif other := next((key for kind, key in given.items() if key and kind != worker.carrier_kind), None):
        problem = f"is {quoted(str(worker.carrier))}, and {other} is set: runs go one way"
        review.fail(("worker", "carrier"), problem, hint="remove one of them")
    elif worker.carrier in given and given[worker.carrier] is None:
        needed = hosts if worker.carrier == "ssh" else cluster
        problem = f"is {worker.carrier}, and {needed} is not set"
        review.fail(("worker", "carrier"), problem, hint=f"set {needed}, or leave the carrier out")


def _check_pull_requests(review: ProblemCollector, settings: Settings | None) -> None:
    """Check that the templates of pull requests are usable, and that their branches have a repository."""
    if settings is None:
        return
    for key in sorted({"title", "body"} & settings.forge.model_fields_set):
        problem = pull_request_text_problem(getattr(settings.forge, key))
        if problem is not None:
            names = ", ".join(sorted({*PULL_REQUEST_NAMES, "issue"}))
            review.fail(("forge", key), f"is no usable template: {problem}", hint=f"it knows {names}")
    if settings.forge.opens and settings.workspace.repo is None:
        review.fail(
            ("forge", "open"),
            f"is {settings.forge.open}, but there is no workspace.repo whose branches could be pushed",
            hint="set workspace.repo, or forge.open: never",
        )
    if settings.forge.opens and settings.workspace.push == "never":
        review.fail(
            ("workspace", "push"),
            f"is never, but forge.open is {settings.forge.open}, and a pull request needs its branch",
            hint="leave workspace.push out, or set forge.open: never",
        )


def _warn_unknown_of_schedules(review: ProblemCollector, raw: Mapping[str, Any]) -> None:
    schedules = raw.get("schedules")
    for index, schedule in enumerate(schedules if isinstance(schedules, list) else ()):
        if isinstance(schedule, dict):
            _remove_unknown(review, schedule, ScheduleSettings.model_fields, ("schedules", index))


def _check_schedules(review: ProblemCollector, settings: Settings | None) -> None:
    """Check that the names of schedules are unique, and that each schedule has one body."""
    names = set[str]()
    for index, schedule in enumerate(settings.schedules if settings else ()):
        at: Location = ("schedules", index)
        if schedule.name in names:
            problem = f"is {quoted(schedule.name)}, like an earlier schedule"
            review.fail((*at, "name"), problem, hint="give it another name")
        names.add(schedule.name)
        if schedule.body is not None and schedule.file is not None:
            review.fail((*at, "file"), "is set, and so is body", hint="remove one of them")


def _push_for_pull_requests(raw: dict[str, Any]) -> None:
    """Push branches by default if the daemon opens pull requests."""
    forge, workspace = raw.get("forge"), raw.get("workspace")
    if not isinstance(forge, dict) or not isinstance(workspace, dict):
        return
    if forge.get("kind") and forge.get("repo") and forge.get("open") != "never":
        workspace.setdefault("push", "origin")


def _typed(review: ProblemCollector, raw: Mapping[str, Any], *, skip: Location) -> Settings | None:
    try:
        settings = Settings.model_validate(raw)
    except ValidationError as error:
        review.fail_each(error, but=skip)
        _keep_sections(review, raw)
        return None
    review.sections.update({name: getattr(settings, name) for name in sections(Settings)})
    return settings


def _keep_sections(review: ProblemCollector, raw: Mapping[str, Any]) -> None:
    """Keep the valid sections, and the valid keys of the others."""
    for name, model in sections(Settings).items():
        values = raw.get(name, {})
        try:
            review.sections[name] = model.model_validate(values)
        except ValidationError as error:
            wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
            with suppress(ValidationError, AttributeError):  # AttributeError: it is not a map
                left = {key: value for key, value in values.items() if key not in wrong}
                review.partial_sections[name] = model.model_validate(left)
                review.given_keys[name] = frozenset(left)
