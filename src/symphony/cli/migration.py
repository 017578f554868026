"""`symphony init --from FILE`: a WORKFLOW.md of the reference, or of another program, translated.

Settings move by the table that `symphony check` uses. Values are written in this program's words, the prompt
in Liquid, and a secret becomes a variable. A file without changes is copied unchanged, so that a result
converts to itself.
"""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from symphony import config
from symphony.agents.registry import SECTIONS
from symphony.cli.scaffolding import TRACKERS as TEMPLATES
from symphony.config import dotted as dotted_name
from symphony.daemon.admission import USED_VARIABLE, hook_variable, judge, provider_keys
from symphony.domain import MASK, Failure, holds_credential, mask_credentials, one_line
from symphony.frontmatter import dump_blocks
from symphony.trackers.registry import TRACKERS

_SCRIPTS: Final = frozenset({"after_create", "before_run", "after_run", "before_remove", "command", "check"})
_NUMBER: Final = re.compile(r"[-+]?\d+(?:[_,]\d{3})*(?:\.0+)?")
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h)")
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_PLACEHOLDER: Final = "placeholder-of-a-variable"
_MIN_SECRET_CHARS: Final = 6
_YAML: Final = frozenset({".yaml", ".yml"})


class Migration(Struct, frozen=True, kw_only=True):
    """A converted file.

    Attributes:
        text: the WORKFLOW.md, without secrets.
        changes: the changed settings, in the order of the file.
        left_out: settings without a counterpart.
        decisions: what is missing or wrong, with what to do; empty for a usable file.
        variables: variables that it refers to.
    """

    text: str
    changes: tuple[str, ...]
    left_out: tuple[str, ...]
    decisions: tuple[str, ...]
    variables: tuple[str, ...]


def migrate(file: config.WorkflowFile, *, target: Path, environment: Mapping[str, str]) -> Migration:
    """Convert a file; the result at `target` is checked.

    Raises:
        WorkflowError: the file is not text, or its front matter is not a map.
    """
    if file.path.suffix.lower() in _YAML:
        file = replace(file, data=b"---\n" + file.data.removeprefix(b"---\n") + b"\n---\n")
    front, body = config.read_parts(file)
    found = config.find_corrections(
        front, tracker_kinds=TRACKERS.names, agent_kinds=SECTIONS, provider_keys=provider_keys
    )
    draft = _Draft(config.corrected(front, found), body)
    for one in sorted(found, key=lambda one: front.source_map.line(one.at)):
        draft.note(front, one)
    draft.write_values()
    draft.write_secrets()
    draft.write_prompt()
    for location in _judged(draft.render(), target, environment).unknown:
        draft.leave_out(front, location)
    is_same = not (draft.changes or draft.left_out)
    text = file.data.decode("utf-8-sig") if is_same else draft.render()
    report = _judged(text, target, environment)
    decisions = [*{failure.hint: _decision(failure) for failure in reversed(report.failures)}.values()][::-1]
    if not is_same:
        text = draft.render(decisions)
    clean = draft.without_secrets
    return Migration(
        text=clean(text),
        changes=tuple(map(clean, draft.changes)),
        left_out=tuple(map(clean, draft.left_out)),
        decisions=tuple(clean(decision) for _, decision in decisions),
        variables=tuple(sorted(config.referenced_variables(draft.values))),
    )


def _judged(text: str, target: Path, environment: Mapping[str, str]) -> config.WorkflowReport:
    """The judgement of a text. Variables need not be set yet."""
    file = config.WorkflowFile(path=target, data=text.encode("utf-8", "surrogateescape"))
    front, _ = config.read_parts(file)
    templates = (variable for template in TEMPLATES.values() for variable in template.variables)
    placeholders = {variable.name: variable.placeholder for variable in templates}
    unset = {
        name: placeholders.get(name, _PLACEHOLDER)
        for name in config.referenced_variables(front.value) | placeholders.keys()
        if not environment.get(name)
    }
    report = judge(file, environment={**environment, **unset}, acknowledged=None)
    guessed = tuple(f"{dotted_name(at)} " for at in _references(front.value, unset))
    failures = tuple(one for one in report.failures if not one.message.startswith(guessed))
    return replace(report, failures=failures)


def _references(
    node: object, names: Mapping[str, str], at: config.Location = ()
) -> Iterator[config.Location]:
    match node:
        case Mapping():
            for key, value in node.items():
                yield from _references(value, names, (*at, key))
        case list():
            for index, value in enumerate(node):
                yield from _references(value, names, (*at, index))
        case str() if config.reference_name(node) in names:
            yield at
        case _:
            return


def _decision(failure: Failure) -> tuple[str, str]:
    """The section that a failure is about, and its text."""
    section = re.match(r"\w+", failure.message)
    hint = "" if failure.hint is None else f" ({failure.hint})"
    return section[0] if section else "", one_line(f"{failure.message}{hint}")


class _Draft:
    """The settings and the prompt while they are converted."""

    def __init__(self, front: config.FrontMatter, body: str) -> None:
        self.values: dict[str, Any] = copy.deepcopy(dict(front.value))
        self.changes: list[str] = []
        self.left_out: list[str] = []
        self._secrets: list[str] = []
        self._body = body

    def without_secrets(self, text: str) -> str:
        """A text that may quote the file, without the secrets that the file held."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def note(self, front: config.FrontMatter, one: config.Correction) -> None:
        """Note a correction, without its value."""
        name, line = _key_name(one.at), front.source_map.line(one.at)
        if one.problem is not None and one.moves:
            self.changes.append(f"line {line}: {name}: {one.hint.replace('write it as', 'written as', 1)}")
        elif one.moves:
            targets = ", ".join(dict.fromkeys(dotted_name(target) for target in one.targets))
            self.changes.append(f"line {line}: {name} is written as {targets}")
        else:
            self.left_out.append(f"line {line}: {name}: {one.hint}")

    def leave_out(self, front: config.FrontMatter, location: config.Location) -> None:
        """Remove a key that nothing reads."""
        line = front.source_map.line(location)
        self.left_out.append(f"line {line}: {_key_name(location)}: there is no such setting")
        while location:
            place: Any = self.values
            for part in location[:-1]:
                place = place[part]
            del place[location[-1]]
            location = location[:-1] if not place else ()

    def write_values(self) -> None:
        """Write values in the form of the types of settings."""
        for name, key in config.KEYS.items():
            *parents, last = name.split(".")
            place: Any = self.values
            for part in parents:
                place = place.get(part) if isinstance(place, dict) else None
            if isinstance(place, dict) and place.get(last) is not None:
                better = _value(place[last], key.shape, in_ms=last.endswith("_ms"))
                if better != place[last] or type(better) is not type(place[last]):
                    place[last] = better
                    self.changes.append(f"{name} is written as {key.shape}")
        given = self.values.get("hooks")
        hooks: dict[str, Any] = given if isinstance(given, dict) else {}
        for name in sorted(_SCRIPTS & hooks.keys()):
            if isinstance(hooks[name], str) and (script := _with_our_variables(hooks[name])) != hooks[name]:
                hooks[name] = script
                self.changes.append(f"hooks.{name} uses the variables that hooks get here")

    def write_secrets(self) -> None:
        """Put variables in the place of secrets. Those inside of a script are masked."""
        for location in [*config.literal_secrets(self.values)]:
            place: Any = self.values
            for part in location[:-1]:
                place = place[part]
            secret, last = str(place[location[-1]]), location[-1]
            if last in _SCRIPTS or len(secret.split()) > 1:
                place[last] = mask_credentials(secret)
                self.left_out.append(f"{dotted_name(location)}: a secret in it, now {MASK}")
                continue
            if len(secret) >= _MIN_SECRET_CHARS:
                self._secrets.append(secret)
            name = self._variable_for(location)
            place[last] = f"${name}"
            self.changes.append(f"{dotted_name(location)} refers to ${name}: set that variable to the secret")

    def _variable_for(self, location: config.Location) -> str:
        tracker = self.values.get("tracker")
        kind = str(tracker.get("kind")) if isinstance(tracker, dict) else ""
        if location[0] == "tracker" and location[-1] != "webhook_secret" and kind in TEMPLATES:
            for variable in TEMPLATES[kind].variables:
                if config.is_secret_variable(variable.name):
                    return variable.name
        name = "_".join(str(part) for part in location if part != "provider")
        return re.sub(r"\W+", "_", name, flags=re.ASCII).upper().strip("_")

    def write_prompt(self) -> None:
        """Write the prompt in Liquid, as far as each tag can be converted alone."""
        better = config.prompt_in_liquid(self._body)
        if better != self._body:
            self._body = better
            self.changes.append("the prompt is written in Liquid, with our names")
        if holds_credential(self._body):
            self._body = mask_credentials(self._body)
            self.left_out.append(f"a secret in the prompt, now {MASK}")

    def render(self, decisions: Iterable[tuple[str, str]] = ()) -> str:
        """The file, with comments where a person has to decide."""
        decisions = tuple(decisions)
        sections = [key for key, value in self.values.items() if value is not None]
        apart = [text for section, text in decisions if section not in sections]
        lines = [*_comments("to decide", apart), *_comments("left out", self.left_out)]
        for section in sections:
            lines += _comments("to decide", (text for of, text in decisions if of == section))
            lines.append(dump_blocks({section: self.values[section]}).rstrip("\n"))
        front = "\n".join(("---", *lines, "---"))
        return f"{front}\n{self._body}" if self._body.strip() else f"{front}\n"


def _key_name(location: config.Location) -> str:
    name = dotted_name(location)
    return MASK if holds_credential(name) else name


def _comments(what: str, texts: Iterable[str]) -> list[str]:
    return [f"# {what}: {one_line(text)}" for text in texts]


def _with_our_variables(script: str) -> str:
    def replace_name(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return (
            found[0] if name.startswith("SYMPHONY_") else found[0].replace(name, hook_variable(name) or name)
        )

    return USED_VARIABLE.sub(replace_name, script)


def _value(value: Any, shape: str, *, in_ms: bool) -> Any:
    """The value in the form of a setting of this shape; unchanged if that is unclear."""
    convert = next((convert for word, convert in _CONVERTERS.items() if shape.startswith(word)), None)
    text = value.strip().lower() if isinstance(value, str) else ""
    if in_ms and (time := _DURATION.fullmatch(text)):
        return int(time[1]) * _UNITS[time[2]]
    return value if convert is None else convert(value)


def _number(value: Any) -> Any:
    if isinstance(value, float) and value == value // 1:
        return int(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0].replace("_", "").replace(",", ""))
    return value


def _flag(value: Any) -> Any:
    return _FLAGS.get(value.strip().lower(), value) if isinstance(value, str) else value


def _list(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _script(value: Any) -> Any:
    is_list = isinstance(value, list) and all(isinstance(line, str) for line in value)
    return "\n".join((*value, "")) if is_list else value


_CONVERTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "number": _number,
    "true or false": _flag,
    "list of": _list,
    "script": _script,
}
"""By the beginning of the name of a shape."""
