"""What is wrong with the agents of a front matter and with the choice among them, each at its line.

A named agent is judged as the section of its kind would be. What is unknown in it is left out, so that
nothing that means nothing is held or shown. Whoever is asked for must exist, before anything runs.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic import ValidationError

from symphony.config.agents import AGENT_SECTIONS, AgentKinds, NamedAgent, asked_for, named_agent
from symphony.config.errors import WarningCode, did_you_mean, did_you_mean_one_of, one_of, quoted
from symphony.config.review import Location, Places, Review, dotted
from symphony.config.settings import AgentRule, AgentSection, AgentSettings
from symphony.domain.failures import SymphonyError

__all__ = ["check_agents", "keep_agents", "place_of"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""A name is a word of log lines and the name of a directory, so that it is short, plain and in one case."""


def check_agents(review: Review, raw: dict[str, Any], kinds: AgentKinds) -> None:
    """Judge `agents`, what `agent` asks of them, and the sections of kinds that are not part of `Settings`.

    Such a kind is looked at where an issue may be given to it, so that no other package is loaded.

    Args:
        review: where it is told.
        raw: the front matter without nulls; keys that nobody knows leave it.
        kinds: those that are installed.
    """
    named = raw.get("agents")
    named = named if isinstance(named, dict) else {}
    agent = raw.get("agent")
    agent = agent if isinstance(agent, dict) else {}
    models = dict(AGENT_SECTIONS)
    for name, at in _asked_for(agent).items():
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


def _asked_for(agent: Mapping[str, Any]) -> Mapping[str, Location]:
    """The names of agents that are asked for, in a section that nobody has judged yet, and where."""
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
    return found


def _check_section(review: Review, raw: Mapping[str, Any], kind: str, model: type[AgentSection]) -> None:
    """Judge the section of a kind from another package."""
    values = raw.get(kind, {})
    if isinstance(values, dict):
        _leave_out_unknown(review, values, model.model_fields, (kind,))
    try:
        review.sections[kind] = model.model_validate(values)
    except ValidationError as error:
        review.fail_each(error, (kind,))


def _check_named(
    review: Review,
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
        if model is None:  # of another package, and no issue is given to it
            return
        _leave_out_unknown(review, values, {"kind", *model.model_fields}, at)
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


def _leave_out_unknown(review: Review, values: dict[str, Any], known: Collection[str], at: Location) -> None:
    for key in sorted(values.keys() - set(known)):
        del values[key]
        review.warn(
            (*at, key),
            f"unknown key {quoted(dotted((*at, key)))} is ignored",
            code=WarningCode.UNKNOWN_KEY,
            hint=did_you_mean(key, known),
        )


# --- who is asked for ------------------------------------------------------------------------------------


def _check_choice(review: Review, agent: Mapping[str, Any], known: Collection[str]) -> None:
    """Values of the wrong kind are not looked at here: their type is told with all others."""
    _check_exists(review, ("agent", "kind"), agent.get("kind"), known)
    _check_fallback(review, ("agent",), agent.get("kind", "codex"), agent.get("fallback"), known)
    rules = agent.get("rules")
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, dict):
            _check_rule(review, ("agent", "rules", index), rule, known)


def _check_rule(review: Review, at: Location, rule: dict[str, Any], known: Collection[str]) -> None:
    _leave_out_unknown(review, rule, AgentRule.model_fields, at)
    _check_exists(review, (*at, "use"), rule.get("use"), known)
    _check_fallback(review, at, rule.get("use"), rule.get("fallback"), known)
    if "label" not in rule and "state" not in rule:
        hint = "without a rule, agent.kind says which agent it is"
        review.fail(at, "needs a label or a state to choose by", hint=hint)


def _check_fallback(
    review: Review, at: Location, agent: object, fallback: object, known: Collection[str]
) -> None:
    location = (*at, "fallback")
    _check_exists(review, location, fallback, known)
    if isinstance(fallback, str) and fallback == agent:
        hint = "name another agent, or leave it out"
        review.fail(location, f"{quoted(fallback)} is the agent itself", hint=hint)


def _check_exists(review: Review, location: Location, name: object, known: Collection[str]) -> None:
    if not isinstance(name, str) or not name.strip() or "\0" in name or name in known:
        return
    problem = "is not supported" if location == ("agent", "kind") else "is no agent of this file"
    review.fail(location, f"{quoted(name)} {problem}", hint=did_you_mean_one_of(name, known))


# --- what can be told in spite of mistakes ---------------------------------------------------------------


def keep_agents(review: Review, raw: Mapping[str, Any]) -> None:
    """Note the agents that an issue may be given to, and warn of rules that never choose any."""
    sections = {**review.remains, **review.sections}
    agent = sections.get("agent")
    if not isinstance(agent, AgentSettings):
        agent = AgentSettings()
    known = {found.name: found for found in _told(sections, raw.get("agents"))}
    review.agents.update({name: known[name] for name in asked_for(agent) if name in known})
    for later, rule in enumerate(agent.rules):
        if (earlier := _shadow(agent.rules[:later], rule)) is not None:
            review.warn(
                ("agent", "rules", later),
                f"agent.rules[{later}] never chooses: agent.rules[{earlier}] fits whatever it fits",
                code=WarningCode.SHADOWED_RULE,
                hint="the first rule that fits an issue is taken: put the narrower one first",
            )


def _told(sections: Mapping[str, Any], named: object) -> Iterator[NamedAgent]:
    for kind, section in sections.items():
        if isinstance(section, AgentSection):
            yield NamedAgent(name=kind, kind=kind, settings=section)
    for name, values in named.items() if isinstance(named, dict) else ():
        base = sections.get(str(values.get("kind"))) if isinstance(values, dict) else None
        if isinstance(base, AgentSection):
            with suppress(ValidationError):
                yield named_agent(name, values, base)


def _shadow(earlier: tuple[AgentRule, ...], rule: AgentRule) -> int | None:
    """Which rule takes every issue that this one could, or null."""
    for index, other in enumerate(earlier):
        if other.label in {None, rule.label} and other.state in {None, rule.state}:
            return index
    return None


def place_of(agent: NamedAgent, key: str, places: Places) -> Location:
    """Where a key of an agent stands in the file: its own, or that of its kind's section."""
    own: Location = ("agents", agent.name, key)
    if agent.name == agent.kind:
        return (agent.kind, key)
    of_kind: Location = (agent.kind, key)
    return of_kind if own not in places.positions and of_kind in places.positions else own
