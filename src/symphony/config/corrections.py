"""Finds settings that are misplaced or have another program's name, and makes the corrected file.

`find_corrections` needs the names of `synonyms`, and the settings themselves. `validate_workflow` judges the
corrected file as well, so that one pass reports everything; `symphony init --from` writes it.
"""

import copy
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from symphony.config import synonyms
from symphony.config.errors import FrontMatter, Location, did_you_mean, dotted, quoted
from symphony.config.keys import KEYS
from symphony.config.secrets import foreign_reference, is_secret_key
from symphony.config.settings import AGENT_SECTIONS, OPAQUE_KEYS, AgentKinds, Section, Settings, sections

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DURATION: Final = re.compile(r"\s*(\d{1,9})\s*([a-z]+)\s*")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_SCRIPTS: Final = frozenset({"after_create", "before_run", "after_run", "before_remove", "command"})
_PROVIDER: Final = ("tracker", "provider")
_CLEAR: Final = frozenset({"access_token", "api_key", "api_token", "apikey", "repo_full_name", "token"})
"""Names of tracker settings that are also unambiguous at the top of a file."""

ProviderKeys = Callable[[str], Collection[str]]
"""The keys of `tracker.provider` of a kind; empty for an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """One key that has another name, is misplaced, or has a value in another program's words.

    Attributes:
        at: the key in the file.
        also: further keys that are reported with it.
        moves: the settings that it stands for; empty if there are none, or if the file has them already.
        problem: the phrase after the key's name if the value is wrong; `None` if the key is.
        hint: what to write.
    """

    at: Location
    hint: str
    moves: tuple[tuple[Location, Any], ...] = field(default=(), repr=False)
    also: tuple[Location, ...] = ()
    problem: str | None = None

    @property
    def targets(self) -> Iterator[Location]:
        """The locations of the settings that it stands for."""
        return (location for location, _ in self.moves)


def plain_name(name: str) -> str:
    """A name in the spelling of the table: `apiKey`, `api-key` and `API_KEY` become `api_key`."""
    text = unicodedata.normalize("NFKC", name).strip()
    return re.sub(r"[-\s]+", "_", _CAMEL.sub("_", text)).lower()


def find_corrections(
    front: FrontMatter,
    *,
    tracker_kinds: Collection[str],
    agent_kinds: AgentKinds,
    provider_keys: ProviderKeys,
) -> tuple[Correction, ...]:
    """What to correct in a file. A corrected section can contain more, which a further round finds."""
    found: list[Correction] = []
    told: set[Location] = set()
    while new := [
        one
        for one in _Finder(front.value, tracker_kinds, agent_kinds, provider_keys).all()
        if not told.intersection((one.at, *one.also))
    ]:
        told.update(location for one in new for location in (one.at, *one.also))
        found += new
        front = corrected(front, new)
    return tuple(found)


def corrected(front: FrontMatter, found: Collection[Correction]) -> FrontMatter:
    """The front matter with the corrections; a setting that moves keeps its line."""
    value, positions = copy.deepcopy(dict(front.value)), dict(front.source_map.positions)
    for one in found:
        for location in (one.at, *one.also):
            _remove(value, location)
        for target, setting in one.moves:
            if _place(value, target, setting) and one.at in positions:
                positions[target] = positions[one.at]
                if isinstance(setting, dict):
                    inner = [(place, at) for place, at in positions.items() if place[: len(one.at)] == one.at]
                    positions = {**{(*target, *place[len(one.at) :]): at for place, at in inner}, **positions}
    source_map = replace(front.source_map, positions=positions)
    targets = frozenset(target for one in found for target in one.targets)
    return replace(front, value=value, source_map=source_map, corrected=front.corrected | targets)


def without(front: FrontMatter, found: Collection[Correction]) -> FrontMatter:
    """The front matter without keys that are not settings; wrong values stay."""
    value = copy.deepcopy(dict(front.value))
    for one in found:
        if one.problem is None:
            for location in (one.at, *one.also):
                _remove(value, location)
    return replace(front, value=value)


def _remove(tree: Any, location: Location) -> None:
    """Remove a key, and maps that become empty."""
    parents: list[tuple[dict[str, Any], str]] = []
    for part in location:
        if not isinstance(tree, dict) or part not in tree:
            return
        parents.append((tree, str(part)))
        tree = tree[part]
    for parent, key in reversed(parents):
        if parent is parents[-1][0] or not parent[key]:
            del parent[key]


def _place(tree: dict[str, Any], location: Location, setting: Any) -> bool:
    """Set a key, or the keys of a map, if they are not set yet. Only an entry of a list is replaced."""
    *parents, last = location
    place: Any = tree
    for part in parents:
        if isinstance(place, dict) and place.get(part) is None:
            place[part] = {}
        if not isinstance(place, dict | list):
            return False
        place = place[part]  # type: ignore[index]  # a list is asked for a number, a map for a name
    if isinstance(place, list) and isinstance(last, int):
        place[last] = setting
        return True
    if not isinstance(place, dict):
        return False
    if isinstance(place.get(last), dict) and isinstance(setting, dict):
        placed = [_place(place, (last, key), value) for key, value in setting.items()]
        return any(placed)
    if place.get(last) is not None:
        return False
    place[last] = copy.deepcopy(setting)
    return True


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def known_tracker(value: object, kinds: Collection[str]) -> str | None:
    """The kind of tracker that a value means, or `None`."""
    name = plain_name(value) if isinstance(value, str) else ""
    kind = synonyms.TRACKERS.get(name, name)
    return kind if kind in kinds else None


def known_agent(value: object, kinds: Collection[str]) -> tuple[str, str | None] | None:
    """The kind of agent that a value means, with its profile, or `None`."""
    name = plain_name(value) if isinstance(value, str) else ""
    kind, profile = synonyms.AGENTS.get(name, (name, None))
    return (kind, profile) if kind in kinds else None


class _Finder:
    """One round over a front matter."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        tracker_kinds: Collection[str],
        agent_kinds: AgentKinds,
        provider_keys: ProviderKeys,
    ) -> None:
        self._tree = tree
        self._tracker_kinds, self._agent_kinds = tracker_kinds, agent_kinds
        self._provider_keys = provider_keys

    def all(self) -> Iterator[Correction]:
        """The corrections of this round, one per key."""
        yield from self._values()
        for key, value in self._tree.items():
            at: Location = (key,)
            model = sections(Settings).get(key) or (
                AGENT_SECTIONS.get(key) if key in self._agent_kinds else None
            )
            if model is not None and isinstance(value, dict):
                yield from self._section(at, value, model)
            elif key == "agents":
                yield from self._agents(value)
            elif key not in Settings.model_fields and key not in self._agent_kinds:
                yield from self._unknown(at, value, {*Settings.model_fields, *AGENT_SECTIONS})

    # --- what the file says of tracker and agent ---

    @cached_property
    def _tracker(self) -> str | None:
        """The kind of the tracker, under any name that the file uses."""
        tracker = self._tree.get("tracker")
        if not isinstance(tracker, dict):
            return known_tracker(tracker, self._tracker_kinds)
        named = (
            known_tracker(value, self._tracker_kinds)
            for key, value in tracker.items()
            if synonyms.SETTINGS.get(f"tracker.{plain_name(key)}", f"tracker.{key}") == "tracker.kind"
        )
        return next((kind for kind in named if kind is not None), None)

    @cached_property
    def _keys(self) -> tuple[str, ...]:
        """The keys of `tracker.provider`."""
        return () if self._tracker is None else tuple(self._provider_keys(self._tracker))

    @cached_property
    def _agent(self) -> str:
        """The section of the agent."""
        agent = self._tree.get("agent")
        name = agent if isinstance(agent, str) else _mapping(agent).get("kind", "codex")
        named = _mapping(_mapping(self._tree.get("agents")).get(str(name))).get("kind", name)
        found = known_agent(named, self._agent_kinds)
        return "codex" if found is None else found[0]

    # --- values ---

    def _values(self) -> Iterator[Correction]:
        tracker, agent = self._tree.get("tracker"), self._tree.get("agent")
        if isinstance(tracker, str) and known_tracker(tracker, self._tracker_kinds):
            yield Correction(
                at=("tracker",), hint="write it as tracker.kind", moves=((("tracker", "kind"), tracker),)
            )
        elif (kind := _mapping(tracker).get("kind")) is not None:
            yield from self._tracker_kind(kind)
        if isinstance(agent, str) and known_agent(agent, self._agent_kinds):
            yield Correction(
                at=("agent",), hint="write it as agent.kind", moves=((("agent", "kind"), agent),)
            )
        elif isinstance(agent, dict):
            yield from self._agent_name(("agent", "kind"), ("acp",), agent.get("kind"))
        for name, values in _mapping(self._tree.get("agents")).items():
            at: Location = ("agents", name)
            yield from self._agent_name((*at, "kind"), at, _mapping(values).get("kind"))
        yield from self._sandbox()
        yield from self._references((), self._tree)

    def _tracker_kind(self, given: object) -> Iterator[Correction]:
        kind, at = known_tracker(given, self._tracker_kinds), ("tracker", "kind")
        if kind is None or kind == given or not isinstance(given, str):
            return
        moves: list[tuple[Location, Any]] = [(at, kind)]
        hint = (
            did_you_mean(given, self._tracker_kinds) if given.lower() == kind else ""
        ) or f"write it as {kind}"
        if plain_name(given) in synonyms.PROJECT_TRACKERS:
            states = (*_PROVIDER, "states")
            moves.append(((*states, "source"), "project"))
            hint = (
                f"write it as {kind}, with tracker.provider.states: {{source: project, project: NUMBER}}; "
                "NUMBER stands in the project's address"
            )
        yield Correction(at=at, hint=hint, moves=tuple(moves), problem=f"{quoted(given)} is not supported")

    def _agent_name(self, at: Location, section: Location, given: object) -> Iterator[Correction]:
        found = known_agent(given, self._agent_kinds)
        named = _mapping(self._tree.get("agents"))
        if found is None or found[0] == given or given in named or not isinstance(given, str):
            return
        kind, profile = found
        moves: list[tuple[Location, Any]] = [(at, kind)]
        hint = f"write it as {kind}"
        if profile is not None:
            place: Location = (kind,) if section == ("acp",) else section
            if _mapping(self._tree.get(kind)).get("profile") is None:
                moves.append(((*place, "profile"), profile))
            hint = f"write it as {kind}, and {dotted((*place, 'profile'))}: {profile}"
        yield Correction(at=at, hint=hint, moves=tuple(moves), problem=f"{quoted(given)} is not supported")

    def _sandbox(self) -> Iterator[Correction]:
        at = ("codex", "turn_sandbox_policy")
        given = _mapping(self._tree.get("codex")).get("turn_sandbox_policy")
        if isinstance(given, str) and (kind := synonyms.SANDBOXES.get(plain_name(given))):
            yield Correction(
                at=at,
                hint=f"write it as {{type: {kind}}}, or leave it out",
                moves=((at, {"type": kind}),),
                problem="must be a map, not text",
            )

    def _references(self, at: Location, node: object) -> Iterator[Correction]:
        """References to variables in the syntax of other programs."""
        if at in OPAQUE_KEYS or (at and at[-1] in _SCRIPTS) or not self._is_read(at):
            return
        if isinstance(node, dict):
            for key, value in node.items():
                yield from self._references((*at, key), value)
        elif isinstance(node, list):
            for index, value in enumerate(node):
                yield from self._references((*at, index), value)
        elif isinstance(node, str) and (
            reference := foreign_reference(node, secret=any(is_secret_key(str(part)) for part in at))
        ):
            name = reference.name
            moves: tuple[tuple[Location, Any], ...] = () if name is None else ((at, f"${name}"),)
            write = "$NAME, and set that variable where the daemon starts" if name is None else f"${name}"
            yield Correction(at=at, hint=f"write it as {write}", moves=moves, problem=reference.problem)

    def _is_read(self, at: Location) -> bool:
        """Whether the key is a known one; unknown keys are reported separately."""
        if at[:1] == ("tracker",) and len(at) > 1:
            return at[1] in sections(Settings)["tracker"].model_fields or at[1] in synonyms.LINEAR_ALIASES
        return not at or at[0] in Settings.model_fields or at[0] in self._agent_kinds

    # --- keys ---

    def _section(self, at: Location, values: Mapping[str, Any], model: type[Section]) -> Iterator[Correction]:
        known, below = model.model_fields, sections(model)
        if at == ("tracker",):
            yield from self._repository(at, values)
        for key, value in values.items():
            place = (*at, key)
            if place == _PROVIDER and isinstance(value, dict):
                yield from self._provider(value)
            elif key in below and isinstance(value, dict):
                yield from self._section(place, value, below[key])
            elif key not in known and not (at == ("worker",) and key == values.get("carrier")):
                yield from self._unknown(place, value, known)

    def _provider(self, values: Mapping[str, Any]) -> Iterator[Correction]:
        if self._keys:
            yield from self._repository(_PROVIDER, values)
            for key, value in values.items():
                if key not in self._keys:
                    yield from self._unknown((*_PROVIDER, key), value, self._keys)

    def _agents(self, value: object) -> Iterator[Correction]:
        model = self._agent_kinds.get(self._agent) if self._agent in AGENT_SECTIONS else None
        if isinstance(value, list):
            names = [_mapping(one).get("name") or _mapping(one).get("id") for one in value]
            moves: tuple[tuple[Location, Any], ...] = ()
            if all(isinstance(name, str) for name in names):
                moves = tuple(
                    (("agents", str(name)), {key: one[key] for key in one if key not in {"name", "id"}})
                    for name, one in zip(names, value, strict=True)
                )
            hint = "write it as a map of names: agents: {fast: {kind: codex}}"
            yield Correction(at=("agents",), hint=hint, moves=moves, problem="must be a map, not a list")
        for key, inner in _mapping(value).items():
            if model is not None and not isinstance(inner, dict) and key in model.model_fields:
                yield self._move(("agents", key), inner, (self._agent, key))
            elif isinstance(inner, dict) and isinstance(inner.get("kind"), str):
                own = AGENT_SECTIONS.get(inner["kind"])
                for name, each in inner.items():
                    if own is not None and name != "kind" and name not in own.model_fields:
                        yield from self._unknown(("agents", key, name), each, own.model_fields)

    def _unknown(self, at: Location, value: object, known: Collection[str]) -> Iterator[Correction]:
        """What an unknown key stands for, if that is known."""
        key, name = at[-1], plain_name(str(at[-1]))
        path = ".".join(plain_name(str(part)) for part in at)
        same = next((other for other in known if plain_name(other) == name), None)
        if value is None or (
            self._tracker == "linear" and at[0] == "tracker" and key in synonyms.LINEAR_ALIASES
        ):
            return
        if path in synonyms.NONE:
            yield Correction(at=at, hint=synonyms.NONE[path])
        elif same is not None:
            yield self._move(at, value, (*at[:-1], same))
        elif (target := self._named(at, path, value)) is not None:
            yield target
        elif len(at) == 1 and isinstance(value, dict):
            yield from self._foreign_section(at, value, name)
        elif (
            isinstance(value, dict)
            and at[0] == "tracker"
            and (name in synonyms.PROVIDER_PLACES or name == self._tracker)
        ):
            yield from self._foreign_provider(at, value)
        elif isinstance(value, dict):
            yield from self._inside(at, value)
        elif near := did_you_mean(str(key), known):
            meant = near.split('"')[1]
            yield replace(self._move(at, value, (*at[:-1], meant)), hint=near)

    def _named(self, at: Location, path: str, value: object) -> Correction | None:
        """The setting with this name in the table, in milliseconds, in the provider, or elsewhere."""
        target = synonyms.SETTINGS.get(path)
        if target in {"tracker.kind", "agent.kind"}:
            kinds = self._tracker_kinds if target == "tracker.kind" else self._agent_kinds
            known = known_tracker if target == "tracker.kind" else known_agent
            target = target if known(value, kinds) else None
        if target is not None:
            return self._move(at, value, tuple(target.split(".")))
        if (found := self._in_provider(at, value)) is not None:
            return found
        name = plain_name(str(at[-1]))
        stem, _, unit = name.rpartition("_")
        factor = synonyms.UNITS.get(unit) if stem and unit != "ms" else None
        base = name if factor is None else stem
        if not name.endswith("_ms") and (place := self._in_ms(at, path, base)) is not None:
            if factor is None:
                return self._move(at, value, place)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return self._move(at, int(value * factor), place, milliseconds=True)
        elsewhere = self._elsewhere(at, name)
        return None if elsewhere is None else self._move(at, value, tuple(elsewhere.split(".")))

    def _in_ms(self, at: Location, path: str, base: str) -> Location | None:
        """The setting in milliseconds that a name without this unit stands for."""
        parent = path.rpartition(".")[0]
        names = [f"{parent}.{base}_ms".lstrip("."), f"{parent}.{base}".lstrip(".")]
        known = next((name for name in names if name in KEYS), None)
        found = known or next((synonyms.SETTINGS[name] for name in names if name in synonyms.SETTINGS), None)
        found = found or self._elsewhere(at, f"{base}_ms")
        return tuple(found.split(".")) if found is not None and found.endswith("_ms") else None

    def _elsewhere(self, at: Location, name: str) -> str | None:
        """The setting with this name in another section, if there is exactly one."""
        model = AGENT_SECTIONS.get(self._agent)
        if at[0] == "agent" and model is not None and name in model.model_fields and name != "kind":
            return f"{self._agent}.{name}"
        if "_" not in name or name in synonyms.GENERIC:
            return None
        found = [key for key in KEYS if key.rpartition(".")[2] == name]
        inside = [key for key in found if key.split(".")[0] == at[0]]
        agent = f"{self._agent}.{name}"
        if len(inside) == 1:
            return inside[0]
        return agent if agent in found else found[0] if len(found) == 1 else None

    def _in_provider(self, at: Location, value: object) -> Correction | None:
        """A key of `tracker.provider` that is in `tracker`, or the other way round."""
        name, outside = plain_name(str(at[-1])), at[:2] != _PROVIDER
        if self._tracker is None or isinstance(value, dict) or (at[0] != "tracker" and len(at) > 1):
            return None
        if not outside and f"tracker.{name}" in KEYS:
            return self._move(at, value, ("tracker", name))
        if outside and at[0] == "tracker" and name in self._keys:
            return self._move(at, value, (*_PROVIDER, name))
        if self._tracker == "github" and name in synonyms.GITHUB_STATES:
            return self._project_setting(at, value, synonyms.GITHUB_STATES[name])
        own = name.removeprefix(f"{self._tracker}_")
        if own.endswith("_env") and isinstance(value, str) and _VARIABLE.fullmatch(value):
            own, value = own.removesuffix("_env"), f"${value}"
        key = self._provider_key(own, value, only_clear=len(at) == 1)
        return None if key is None else self._move(at, value, (*_PROVIDER, key))

    def _project_setting(self, at: Location, value: object, key: str) -> Correction:
        states = (*_PROVIDER, "states")
        given = _mapping(_mapping(_mapping(self._tree.get("tracker")).get("provider")).get("states"))
        source = () if given.get("source") is not None else (((*states, "source"), "project"),)
        hint = f"write it as {dotted((*states, key))}, with source: project"
        return Correction(at=at, hint=hint, moves=(((*states, key), value), *source))

    def _provider_key(self, name: str, value: object, *, only_clear: bool) -> str | None:
        """The name of a thing in `tracker.provider`; `only_clear` leaves out ambiguous names."""
        named = synonyms.PROVIDER.get(self._tracker or "", {})
        thing = next((thing for thing in named if name in synonyms.THINGS[thing]), None)
        if thing is None or (
            only_clear and (name not in _CLEAR or thing not in {"credential", "repository"})
        ):
            return None
        is_name = isinstance(value, str) and "/" not in value and not value.startswith("$")
        if thing == "repository" and is_name:
            return None
        return named[thing] if named[thing] in self._keys else None

    def _repository(self, at: Location, values: Mapping[str, Any]) -> Iterator[Correction]:
        """Owner and name of a repository in two keys."""
        key = synonyms.PROVIDER.get(self._tracker or "", {}).get("repository")
        names = {plain_name(name): name for name, value in values.items() if isinstance(value, str)}
        kind = f"{self._tracker}_"
        owner = next((names[name] for name in names if name.removeprefix(kind) in synonyms.OWNERS), None)
        name = next((names[name] for name in names if name.removeprefix(kind) in synonyms.NAMES), None)
        if key is None or owner is None or name is None or "/" in values[name] or "$" in values[name]:
            return
        target = (*_PROVIDER, key)
        full = f"{values[owner]}/{values[name]}"
        hint = f"write it with {dotted((*at, name))} as one: {dotted(target)}: OWNER/NAME"
        yield Correction(at=(*at, owner), also=((*at, name),), hint=hint, moves=((target, full),))

    def _foreign_section(self, at: Location, value: Mapping[str, Any], name: str) -> Iterator[Correction]:
        renamed = synonyms.SECTIONS.get(name)
        if renamed is not None:
            yield self._move(at, value, (renamed,))
        elif name == self._tracker:
            yield from self._foreign_provider(at, value)
        else:
            yield from self._inside(at, value)

    def _foreign_provider(self, at: Location, value: Mapping[str, Any]) -> Iterator[Correction]:
        """Settings of the tracker in a map of their own."""
        moves = tuple(((*_PROVIDER, key), each) for key, each in value.items() if each is not None)
        yield Correction(at=at, hint="write its keys in tracker.provider", moves=moves)

    def _inside(self, at: Location, value: Mapping[str, Any]) -> Iterator[Correction]:
        """Settings in an unknown section."""
        for key, each in value.items():
            place = (*at, key)
            path = ".".join(plain_name(str(part)) for part in place)
            if isinstance(each, dict) and path not in synonyms.SETTINGS:
                yield from self._inside(place, each)
            elif each is not None and (found := self._named(place, path, each)) is not None:
                yield found

    def _move(
        self, at: Location, value: object, target: Location, *, milliseconds: bool = False
    ) -> Correction:
        name, shape = dotted(target), KEYS[dotted(target)].shape if dotted(target) in KEYS else ""
        if isinstance(value, str) and shape.startswith("list"):
            value = [part.strip() for part in value.split(",")]
        if isinstance(value, str) and name.endswith("_ms") and (time := _DURATION.fullmatch(value)):
            value, milliseconds = int(time[1]) * synonyms.UNITS.get(time[2], 1), True
        hint = f"write it as {name}{', in milliseconds' if milliseconds else ''}"
        if isinstance(value, str) and (better := self._in_our_words(target, value)) != value:
            value, hint = better, f"{hint}: {better}"
        if _is_set(self._tree, target):
            return Correction(at=at, hint=f"leave it out: {name} is set already")
        unclear = name.endswith("_ms") and not milliseconds and not plain_name(str(at[-1])).endswith("_ms")
        if unclear:
            return Correction(at=at, hint=f"{hint}, in milliseconds")
        if shape and isinstance(value, dict) and "map" not in shape:
            return Correction(at=at, hint=f"{hint}: {shape}")
        return Correction(at=at, hint=hint, moves=((target, value),))

    def _in_our_words(self, target: Location, value: str) -> str:
        """The value in the words of this program: kinds of trackers and agents, references to variables."""
        if target == ("tracker", "kind"):
            return known_tracker(value, self._tracker_kinds) or value
        reference = foreign_reference(value, secret=is_secret_key(str(target[-1])))
        return f"${reference.name}" if reference is not None and reference.name is not None else value


def _is_set(tree: Any, location: Location) -> bool:
    for part in location:
        if not isinstance(tree, dict) or tree.get(part) is None:
            return False
        tree = tree[part]
    return not isinstance(tree, dict)
