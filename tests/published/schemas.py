"""What is below `docs/schemas`: the shapes of the API, and one file for each command with `--json`."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from symphony.api import models
from symphony.api.openapi import API, IN_DEFS, schemas
from symphony.cli import documents

__all__ = ["COMMANDS", "FOLDER", "conforms_to", "fields", "published"]


_CHOICES = ("oneOf", "anyOf", "allOf")

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
COMMANDS: Mapping[str, tuple[type[models.Document], ...]] = {
    "check": (documents.CheckedWorkflow,),
    "clean": (documents.Cleaned,),
    "comment": (documents.IssueCommented,),
    "demo": (documents.DemoResult,),
    "diff": (documents.BranchDiff,),
    "doctor": (documents.Doctor,),
    "explain": (documents.Explained,),
    "health": (documents.Liveness,),
    "instructions-check": (documents.InstructionProblems,),
    "instructions-compose": (documents.ComposedInstructions,),
    "instructions-init": (documents.NewInstructions,),
    "instructions-list": (documents.InstructionListing,),
    "issue-list": (documents.BoardListing,),
    "issue-new": (documents.BoardIssue,),
    "issue-show": (documents.BoardIssueShown,),
    "library-assignments": (models.LibraryAssignments,),
    "library-backup": (documents.LibraryBackup,),
    "library-changed": (models.LibraryChanged,),
    "library-diff": (models.LibraryDiff,),
    "library-export": (documents.SkillsExported,),
    "library-history": (documents.LibraryHistory,),
    "library-import": (documents.LibraryImported,),
    "library-list": (models.LibrarySkills,),
    "library-purge": (documents.LibraryPurged,),
    "library-proposal": (models.LibraryProposalPage,),
    "library-proposals": (models.LibraryProposals,),
    "library-promote": (documents.LibraryPromoted,),
    "library-show": (models.LibrarySkillPage,),
    "library-sync": (documents.LibrarySynced,),
    "logs": (documents.LoggedEvent, documents.LoggedBegin, documents.LoggedEnd),
    "move": (documents.IssueMoved,),
    "notification": (models.Notifications,),
    "notify-list": (documents.NotifyTargets,),
    "notify-test": (documents.NotifyTested,),
    "order": (models.Verb, documents.Orders),
    "outbox": (documents.OutboxShown,),
    "prompt": (models.Prompt,),
    "refresh": (models.Refresh,),
    "forge-check": (documents.ForgeCheck,),
    "hosts": (documents.HostsShown,),
    "hosts-check": (documents.HostsChecked,),
    "pr": (documents.PullRequestShown,),
    "rehearse": (documents.RehearsalShown,),
    "schedules": (documents.SchedulesShown,),
    "schedules-run": (documents.IssueCreated,),
    "replay": (documents.Replayed,),
    "review": (models.Review, models.ReviewOutcome),
    "runs": (models.Runs,),
    "service-status": (documents.ServiceState,),
    "transcript": (documents.TranscriptLine,),
    "skills-check": (documents.SkillProblems,),
    "skills-export": (documents.SkillsExported,),
    "skills-import": (documents.SkillsImported,),
    "skills-list": (documents.SkillListing,),
    "skills-new": (documents.NewSkill,),
    "skills-prompt": (documents.SkillBlock,),
    "skills-report": (documents.SkillsReport,),
    "skills-search": (documents.SkillHits,),
    "skills-show": (documents.SkillDetail,),
    "status": (documents.Status,),
    "status-all": (documents.Daemons,),
    "tracker-check": (documents.TrackerCheck,),
    "verify": (documents.VerificationShown,),
}
"""What each prints: a document, or lines of several."""


def published() -> Mapping[Path, str]:
    """The text of every file."""
    api = {
        "$schema": DIALECT,
        "$id": "urn:symphony:api:v1",
        "description": "The shapes of API v1. Fields may be added, never removed or retyped.",
        "$defs": schemas(*API),
    }
    found = {"api": api} | {name: _of(*kinds) for name, kinds in COMMANDS.items()}
    return {FOLDER / f"{name}.schema.json": f"{json.dumps(one, indent=1)}\n" for name, one in found.items()}


def _of(*kinds: type[models.Document]) -> dict[str, Any]:
    refs = [{"$ref": IN_DEFS.format(name=kind.__name__)} for kind in kinds]
    return {"$schema": DIALECT, **(refs[0] if len(refs) == 1 else {"oneOf": refs}), "$defs": schemas(*kinds)}


def conforms_to(command: str, found: Any) -> None:
    """What a command printed is as its stored schema says; a test of its own judges that."""
    _validator(command).validate(found)


@cache
def _validator(command: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((FOLDER / f"{command}.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def fields(schema: Mapping[str, Any], place: str, defs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each field below a schema: its place, its type, and whether it may be missing."""
    for branch in (schema, *(one for word in _CHOICES for one in schema.get(word, ()))):
        inside = _resolved(branch, defs)
        if inside is not schema and inside.keys() & {*_CHOICES}:
            yield from fields(inside, place, defs)
            continue
        for name, field in inside.get("properties", {}).items():
            missing = "" if name in inside.get("required", ()) else " or nothing"
            yield f"{place}.{name}", f"{_kind(field, defs)}{missing}"
            yield from fields(field, f"{place}.{name}", defs)
        if "items" in inside:
            yield f"{place}[]", _kind(inside["items"], defs)
            yield from fields(inside["items"], f"{place}[]", defs)
        if isinstance(inside.get("additionalProperties"), Mapping):
            yield f"{place}.*", _kind(inside["additionalProperties"], defs)


def _resolved(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    return schema


def _kind(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    schema = _resolved(schema, defs)
    if some := schema.get("oneOf") or schema.get("anyOf"):
        return "|".join(sorted(_kind(one, defs) for one in some))
    if "const" in schema or "enum" in schema:
        return "|".join(sorted(json.dumps(one) for one in schema.get("enum", [schema.get("const")])))
    given = schema["type"]
    least = f">={schema['minimum']}" if "minimum" in schema else ""
    kinds = given if isinstance(given, list) else [given]
    return "|".join(sorted(one if one == "null" else f"{one}{least}" for one in kinds))
