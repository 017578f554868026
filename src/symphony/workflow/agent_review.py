"""What is wrong with the agents of a front matter and with the choice among them, each at its line.

A named agent is judged as the section of its kind would be. What is unknown in it is left out, so that
nothing that means nothing is held or shown. Whoever is asked for must exist, before anything runs.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic_core import ValidationError

from symphony.workflow.agents import AGENT_KINDS, NamedAgent, asked_for, named_agent
from symphony.workflow.engine import names_of, typed
from symphony.workflow.errors import WarningCode, did_you_mean, quoted
from symphony.workflow.review import Location, Places, Review, dotted
from symphony.workflow.settings import (
    AcpSettings,
    AgentRule,
    AgentSettings,
    ClaudeSettings,
    CodexSettings,
    CommandSettings,
)
from symphony.workflow.wording import wording

__all__ = ["check_agents", "keep_agents", "place_of"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""A name is a word of log lines and the name of a directory, so that it is short, plain and in one case."""


def check_agents(review: Review, raw: Mapping[str, Any], kinds: Collection[str]) -> None:
    """Judge `agents` and what `agent` asks of them; keys that nobody knows leave `raw`.

    Args:
        review: where it is told.
        raw: the front matter without nulls.
        kinds: backends that exist.
    """
    named = raw.get("agents")
    named = named if isinstance(named, dict) else {}
    for name in tuple(named):
        _check_named(review, name, named[name], kinds)
    agent = raw.get("agent")
    if isinstance(agent, dict):
        _check_choice(review, agent, {*kinds, *named})


def _check_named(review: Review, name: str, values: object, kinds: Collection[str]) -> None:
    at = ("agents", name)
    if name in AGENT_KINDS:
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
        _leave_out_unknown(review, values, {"kind", *names_of(AGENT_KINDS[kind])}, at)
        _check_values(review, values, kind, at)
    elif kind is None:
        review.fail((*at, "kind"), "is required", hint=_supported(kinds))
    elif isinstance(kind, str):
        hint = did_you_mean(kind, kinds) or _supported(kinds)
        review.fail((*at, "kind"), f"{quoted(kind)} is not supported", hint=hint)
    else:
        review.fail((*at, "kind"), "must be text", hint=_supported(kinds))


def _supported(kinds: Collection[str]) -> str:
    return f"supported: {', '.join(sorted(kinds))}"


def _leave_out_unknown(review: Review, values: dict[str, Any], known: Collection[str], at: Location) -> None:
    for key in sorted(values.keys() - set(known)):
        del values[key]
        review.warn(
            (*at, key),
            f"unknown key {quoted(dotted((*at, key)))} is ignored",
            code=WarningCode.UNKNOWN_KEY,
            hint=did_you_mean(key, known),
        )


def _check_values(review: Review, values: Mapping[str, Any], kind: str, at: Location) -> None:
    try:
        typed(AGENT_KINDS[kind], values)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            text, hint = wording(problem)
            review.fail((*at, *problem["loc"]), text, hint=hint)


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
    _leave_out_unknown(review, rule, names_of(AgentRule), at)
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
    review.fail(location, f"{quoted(name)} {problem}", hint=did_you_mean(name, known) or _supported(known))


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
    for kind, model in AGENT_KINDS.items():
        if isinstance(sections.get(kind), model):
            yield NamedAgent(name=kind, kind=kind, settings=sections[kind])
    for name, values in named.items() if isinstance(named, dict) else ():
        base = sections.get(str(values.get("kind"))) if isinstance(values, dict) else None
        if isinstance(base, CodexSettings | ClaudeSettings | AcpSettings | CommandSettings):
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
