"""From Asana's JSON to issues, and from comments to stories and back. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from symphony.domain.issue import Blocker, Issue, normalise_labels, normalise_state
from symphony.trackers.asana.config import AsanaConfig
from symphony.trackers.comments import AGENT_MARK
from symphony.trackers.raw_tools import RestCall
from symphony.trackers.reading import (
    MalformedRecordError,
    instant,
    items,
    mapping,
    required,
    text,
)

__all__ = [
    "COMPLETED",
    "FIELDS",
    "Blockers",
    "blocker_of",
    "body_of",
    "dependencies_of",
    "gid_of",
    "is_over",
    "issue_of",
    "marked",
    "text_of",
]

_AGENT = AGENT_MARK.removeprefix("<!-- ").removesuffix(" -->")
COMPLETED = "completed"
"""The state of a task that is completed and in a section that is not terminal."""

FIELDS = (
    "name,notes,completed,created_at,modified_at,permalink_url,resource_subtype,is_rendered_as_separator,"
    "assignee,tags.name,dependencies,memberships.project,memberships.section,memberships.section.name"
)
"""What is asked of a task; without it the answer holds little more than its name."""

Blockers = Mapping[str, tuple[Blocker, ...]]
"""What blocks tasks, by their gid."""

_MARKER = re.compile(r"symphony:[a-z0-9-]{1,32} v1 key=[0-9a-f]{32} fp=[0-9a-f]{32}")


def gid_of(record: Any) -> str | None:
    """The gid of whatever the record is, or null."""
    return text(mapping(record).get("gid"))


def dependencies_of(record: Any) -> tuple[str, ...]:
    """The gids of the tasks that this one depends on, as its own record tells them."""
    gids = (gid_of(each) for each in items(mapping(record).get("dependencies")))
    return tuple(dict.fromkeys(gid for gid in gids if gid is not None))


def _section(record: Any, config: AsanaConfig) -> Mapping[str, Any] | None:
    """The task's section in the project; empty where it does not say, null outside of the project."""
    for each in items(mapping(record).get("memberships")):
        if gid_of(mapping(each).get("project")) == config.project:
            return mapping(mapping(each).get("section"))
    return None


def _state(record: Any, section: Mapping[str, Any], terminal: frozenset[str]) -> str | None:
    name = text(section.get("name"))
    if mapping(record).get("completed") is not True:
        return name
    return name if name is not None and normalise_state(name) in terminal else COMPLETED


def is_over(record: Any, config: AsanaConfig, terminal: frozenset[str]) -> bool:
    """Whether the task is in a terminal state, or in none at all."""
    state = _state(record, _section(record, config) or {}, terminal)
    return state is None or normalise_state(state) in terminal


def issue_of(
    record: Any, *, config: AsanaConfig, terminal: frozenset[str], blockers: Blockers
) -> Issue | None:
    """One issue; null for a task that is not in the project.

    Raises:
        MalformedRecordError: it has no gid, name or section, or does not say whether it is completed.
    """
    gid, title = required(record, "gid"), required(record, "name")
    section = _section(record, config)
    if section is None:
        return None
    if not isinstance(record.get("completed"), bool):
        raise MalformedRecordError("does not say whether it is completed")
    state = _state(record, section, terminal)
    if state is None:
        raise MalformedRecordError("has no section")
    blocked_by = blockers.get(gid, ())
    objection = _objection(record, blocked_by, terminal)
    return Issue(
        id=gid,
        identifier=f"ASANA-{gid}",
        title=title,
        state=state.strip(),
        dispatchable=objection is None,
        not_dispatchable_reason=objection,
        native_ref={"task_gid": gid, "project_gid": config.project, "section_gid": gid_of(section)},
        description=text(record.get("notes")),
        url=text(record.get("permalink_url")),
        assignee_id=gid_of(record.get("assignee")),
        labels=normalise_labels(_tags(record)),
        blocked_by=blocked_by,
        created_at=instant(record.get("created_at")),
        updated_at=instant(record.get("modified_at")),
    )


def _tags(record: Mapping[str, Any]) -> Sequence[str]:
    names = (text(mapping(tag).get("name")) for tag in items(record.get("tags")))
    return [name for name in names if name is not None]


def _objection(
    record: Mapping[str, Any], blockers: Sequence[Blocker], terminal: frozenset[str]
) -> str | None:
    if record.get("resource_subtype") == "section" or record.get("is_rendered_as_separator") is True:
        return "it is a line between tasks, and no task"
    if record["completed"]:
        return "it is completed"
    going_on = [each for each in blockers if normalise_state(each.state or "") not in terminal]
    return f"it is blocked by {', '.join(str(each.identifier) for each in going_on)}" if going_on else None


def blocker_of(record: Any, config: AsanaConfig, terminal: frozenset[str]) -> Blocker:
    """A task that another one depends on; its state is null in another project, until it is completed."""
    gid = gid_of(record)
    state = _state(record, _section(record, config) or {}, terminal)
    return Blocker(id=gid, identifier=f"ASANA-{gid}", state=state)


# --- comments, which are plain text: a marker can be seen, so it stands at the end ---


def text_of(body: str) -> str:
    """A comment as it is written: a marker in its first line becomes its last."""
    first, _, rest = body.partition("\n")
    marker = first.removeprefix("<!-- ").removesuffix(" -->")
    return f"{rest}\n\n{marker}" if marker != first and _MARKER.fullmatch(marker) else body


def marked(call: RestCall) -> RestCall:
    """Mark what the raw tool writes as a comment of an agent, in its last line."""
    data = mapping(mapping(call.body).get("data"))
    if call.method == "GET" or "stories" not in call.steps or not data:
        return call
    said, html = data.get("text"), data.get("html_text")
    changed = {**data}
    if isinstance(said, str):
        changed["text"] = f"{said}\n\n{_AGENT}"
    if isinstance(html, str):
        changed["html_text"] = html.replace("</body>", f"\n\n{_AGENT}</body>")
    return replace(call, body={**call.body, "data": changed})


def body_of(written: str) -> str:
    """The other way round."""
    rest, _, last = written.rstrip().rpartition("\n")
    if last == _AGENT:
        return f"{AGENT_MARK}\n{rest.rstrip()}"
    return f"<!-- {last} -->\n{rest.rstrip()}" if _MARKER.fullmatch(last) else written
