"""What a parsed prompt template would stumble over at render time, found without rendering it (PR1).

Rendering notices an unknown name only on the branch it takes; this looks at all of them. It knows the shape
of an issue from the vocabulary itself, so that a new field there is known here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from liquid import BoundTemplate
from liquid.static_analysis import Variable

from symphony.config.errors import did_you_mean, quoted
from symphony.domain.issue import Issue, template_view

__all__ = ["VARIABLES", "Finding", "findings"]

VARIABLES: Final = frozenset({"issue", "attempt"})
"""The inputs of a prompt (PR2)."""

_SHAPE: Final[Mapping[str, object]] = template_view(
    Issue(id="", identifier="", title="", state="", dispatchable=False)
)
_OPAQUE: Final = frozenset({"native_ref"})
_LIST_PROPERTIES: Final = frozenset({"first", "last", "size"})
_TEXT_PROPERTIES: Final = frozenset({"size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that cannot work; `index` is its offset in the source, in characters."""

    index: int
    message: str
    hint: str | None


def findings(template: BoundTemplate) -> list[Finding]:
    """Every unknown filter, variable and issue field of the template, in source order.

    A name that is assigned, captured or counted anywhere in the template is known everywhere in it: whether
    the assignment comes first is decided by data, so it is left to rendering.
    """
    analysis = template.analyze(include_partials=False)
    local = frozenset(analysis.locals)
    known_filters = template.env.filters
    found = [
        Finding(
            index=span.index, message=f"unknown filter {quoted(name)}", hint=did_you_mean(name, known_filters)
        )
        for name, spans in analysis.filters.items()
        if name not in known_filters
        for span in spans
    ]
    for variable in _unbound(analysis.globals.values(), local):
        found.extend(_check_variable(variable, local))
    return sorted(found, key=lambda finding: finding.index)


def _unbound(groups: Iterable[list[Variable]], local: frozenset[str]) -> Iterator[Variable]:
    for group in groups:
        yield from (variable for variable in group if str(variable.segments[0]) not in local)


def _check_variable(variable: Variable, local: frozenset[str]) -> Iterator[Finding]:
    root, *rest = variable.segments
    name = quoted(str(variable))
    if not isinstance(root, str) or root not in VARIABLES:
        hint = did_you_mean(str(root), VARIABLES | local)
        known = "a prompt knows issue, attempt and what it assigns itself"
        yield Finding(index=variable.span.index, message=f"unknown variable {name}", hint=hint or known)
    elif root == "attempt" and rest:
        yield Finding(
            index=variable.span.index, message=f"{name}: attempt is a number without fields", hint=None
        )
    elif root == "issue" and rest:
        yield from _check_field(variable, rest)


def _check_field(variable: Variable, path: Sequence[object]) -> Iterator[Finding]:
    field, *rest = path
    if isinstance(field, list):  # issue[name]: which field it is, only data can say
        return
    if field not in _SHAPE:
        hint = did_you_mean(str(field), _SHAPE, prefix="issue.")
        yield Finding(
            index=variable.span.index,
            message=f"unknown issue field {quoted(str(variable))}",
            hint=hint or f"fields of an issue: {', '.join(_SHAPE)}",
        )
    elif rest and field not in _OPAQUE and not _is_property(_SHAPE[str(field)], rest[0]):
        yield Finding(index=variable.span.index, message=f"{quoted(str(variable))} does not exist", hint=None)


def _is_property(value: object, name: object) -> bool:
    if isinstance(value, list):
        return not isinstance(name, str) or name in _LIST_PROPERTIES
    return isinstance(name, list) or name in _TEXT_PROPERTIES
