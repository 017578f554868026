"""Records of runs with other facts, each named by itself."""

from dataclasses import replace
from typing import Any, TypeVar

from msgspec import structs

from symphony.domain import RunFacts, Tokens, WorkSize
from symphony.journal.model import RunRecord
from symphony.scheduler import RunReport

_T = TypeVar("_T", RunReport, RunRecord)
_TOKENS = Tokens.__struct_fields__
_WORK = WorkSize.__struct_fields__
_FACTS = RunFacts.__struct_fields__


def facts(before: RunFacts | None = None, **changes: Any) -> RunFacts:
    """The facts with other values, among them counts of tokens and of work by their names."""
    known = before or RunFacts()
    tokens, work = (
        {name: changes.pop(name) for name in names if name in changes} for names in (_TOKENS, _WORK)
    )
    counts = {
        "tokens": structs.replace(known.tokens, **tokens),
        "work": structs.replace(known.work, **work),
    }
    return structs.replace(known, **{**counts, **changes})


def changed(record: _T, **changes: Any) -> _T:
    """The record with other values, among them facts and counts by their names."""
    named = {name: changes.pop(name) for name in (*_FACTS, *_TOKENS, *_WORK) if name in changes}
    return replace(record, **{"facts": facts(record.facts, **named), **changes})
