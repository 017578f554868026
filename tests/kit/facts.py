"""Records of runs with other facts, each named by itself."""

from dataclasses import replace
from typing import Any, TypeVar

from msgspec import structs

from symphony.domain import RunFacts, Tokens
from symphony.journal.model import RunRecord
from symphony.scheduler import RunReport

_T = TypeVar("_T", RunReport, RunRecord)
_TOKENS = Tokens.__struct_fields__
_FACTS = RunFacts.__struct_fields__


def facts(before: RunFacts | None = None, **changes: Any) -> RunFacts:
    """The facts with other values, among them counts of tokens by their names."""
    known = before or RunFacts()
    counts = {name: changes.pop(name) for name in _TOKENS if name in changes}
    return structs.replace(known, **{"tokens": structs.replace(known.tokens, **counts), **changes})


def changed(record: _T, **changes: Any) -> _T:
    """The record with other values, among them facts and counts of tokens by their names."""
    named = {name: changes.pop(name) for name in (*_FACTS, *_TOKENS) if name in changes}
    return replace(record, **{"facts": facts(record.facts, **named), **changes})
