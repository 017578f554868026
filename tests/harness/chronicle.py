"""A scheduler's story with the history that a daemon would keep of it, on a wall clock of its own."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import jsonschema
import msgspec
from typing_extensions import override

from harness.scheduling import Story, make_failure, make_issue
from symphony.api.documents import issue_document, state_document
from symphony.api.history import History
from symphony.api.models import Document, DroppedSkill, ListedSkill, SkillProblem, Skills
from symphony.api.openapi import API, schemas
from symphony.domain import ALL_ISSUES, Category, Issue, Selection
from symphony.observability.redaction import masked
from symphony.scheduler import Command, Event, OutcomeKind

__all__ = ["SKILLS", "START", "Chronicle", "conforms", "populated", "sent"]


START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SKILLS = Skills(
    listed=(ListedSkill(name="greet", path=".symphony/skills/greet/SKILL.md", sha256="ab" * 32),),
    dropped=(DroppedSkill(name="rest", reason="count"),),
    problems=(
        SkillProblem(path=".symphony/skills/bad/SKILL.md", code="invalid_yaml", severity="error", line=3),
    ),
)


class Chronicle(Story):
    """`jump` moves the wall clock, as a person or a time server would."""

    def __init__(self, *issues: Issue, **settings: Any) -> None:
        super().__init__(*issues, **settings)
        self.jump = timedelta()
        self.history = History(now=self.wall, now_ms=lambda: self.now)

    def wall(self) -> datetime:
        """What the clock on the wall shows."""
        return START + timedelta(milliseconds=self.now) + self.jump

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        before = self.state
        commands = super()._step(fact)
        self.history(before, fact, self.state, commands)
        return commands

    def document(self, only: Selection = ALL_ISSUES) -> dict[str, Any]:
        """What the API would say of the daemon."""
        return sent(state_document(self.state, self.history, now_ms=self.now, now=self.wall(), only=only))

    def issue(self, identifier: str) -> dict[str, Any]:
        """What the API would say of an issue that is known."""
        document = issue_document(self.state, self.history, identifier, now_ms=self.now, now=self.wall())
        assert document is not None
        return sent(document)


def sent(document: Document) -> dict[str, Any]:
    """The document as a client gets it: as JSON, with what no JSON can hold left out."""
    found: dict[str, Any] = json.loads(msgspec.json.encode(masked(document, str)))
    return found


def populated() -> Chronicle:
    """One issue of each status: SYM-1 runs, SYM-2 is retried, SYM-3 blocked, SYM-4 and `a/b ü` wait."""
    story = Chronicle(
        *(make_issue(str(number), priority=number) for number in range(1, 4)),
        make_issue("4", priority=4, dispatchable=False, not_dispatchable_reason="assigned to a person"),
        make_issue("5", identifier="a/b ü", priority=4, title="<script>alert('é')</script>\n\x1b[31m"),
        max_concurrent_agents=3,
    ).begin()
    story.advance(1_500)
    for issue_id in ("1", "2", "3"):
        story.history.skills_loaded(issue_id, "r", SKILLS)
        story.streams(
            issue_id,
            session_id=f"t-{issue_id}",
            turn_count=1,
            last_event="item",
            last_message="reads",
            last_words="I look at the page",
            input_tokens=10,
            output_tokens=2,
            total_tokens=12,
            rate_limits={"limitId": "five_hours"},
        )
    story.slow = True
    story.fails("2", make_failure("it broke"))
    needs = make_failure("the agent needs a person", category=Category.TURN_INPUT_REQUIRED, hint="answer it")
    story.ends("3", OutcomeKind.INPUT_REQUIRED, needs)
    return story


def conforms(document: Mapping[str, Any] | Document, name: str) -> None:
    """The document is what the stored schema says, and has nothing that the schema does not tell of."""
    _validator(name).validate(sent(document) if isinstance(document, Document) else dict(document))


@cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    """The schemas themselves are checked by `tests/unit/docs/test_schemas.py`, which takes long."""
    schema = {"$ref": f"#/$defs/{name}", "$defs": _CLOSED}
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "properties" in schema and schema.get("type") == "object":
        closed["additionalProperties"] = False
    return closed


_CLOSED = {key: _closed(value) for key, value in schemas(*API).items()}
