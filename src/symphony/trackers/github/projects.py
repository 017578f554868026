"""States that are kept in a project: GitHub has them in GraphQL only, beside the issues and not in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symphony.domain.issue import normalise_state
from symphony.trackers.github.config import GithubConfig, Project
from symphony.trackers.github.dialect import GITHUB
from symphony.trackers.github.wire import number_of
from symphony.trackers.graphql import graphql, page_of, question
from symphony.trackers.http import Flow, Trail, malformed
from symphony.trackers.reading import items, mapping, text
from symphony.trackers.wording import no_such_state, not_found

__all__ = [
    "ITEMS",
    "LOOK",
    "MOVE",
    "OF_ISSUE",
    "Options",
    "move",
    "options",
    "states_of_all",
    "states_of_some",
]

PAGE = 100
BATCH = 50

ITEMS = """query SymphonyItems(
  $owner: String!, $number: Int!, $field: String!, $first: Int!, $after: String
) {
  repositoryOwner(login: $owner) {
    ... on ProjectV2Owner {
      projectV2(number: $number) {
        items(first: $first, after: $after) {
          nodes {
            isArchived
            fieldValueByName(name: $field) { ... on ProjectV2ItemFieldSingleSelectValue { name } }
            content { ... on Issue { number repository { nameWithOwner } } }
          }
          pageInfo { hasNextPage endCursor }
        }
      }
    }
  }
}"""

LOOK = """query SymphonyProject($owner: String!, $number: Int!, $field: String!) {
  repositoryOwner(login: $owner) {
    ... on ProjectV2Owner {
      projectV2(number: $number) {
        id
        title
        field(name: $field) { ... on ProjectV2SingleSelectField { id options { id name } } }
      }
    }
  }
}"""

_ITEM = """projectItems(first: 20) {
      nodes {
        id
        isArchived
        project { number owner { ... on Organization { login } ... on User { login } } }
        fieldValueByName(name: $field) { ... on ProjectV2ItemFieldSingleSelectValue { name } }
      }
    }"""

OF_ISSUE = f"""query SymphonyItem($owner: String!, $repo: String!, $number: Int!, $field: String!) {{
  repository(owner: $owner, name: $repo) {{
    issue(number: $number) {{
      {_ITEM}
    }}
  }}
}}"""

MOVE = """mutation SymphonyMoveItem($project: ID!, $item: ID!, $field: ID!, $option: String!) {
  updateProjectV2ItemFieldValue(
    input: {projectId: $project, itemId: $item, fieldId: $field, value: {singleSelectOptionId: $option}}
  ) { projectV2Item { id } }
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A project's field: its states in their order, and the ids by which one is set."""

    project_id: str
    title: str
    field_id: str
    by_name: Mapping[str, str]


def states_of_all(config: GithubConfig, project: Project) -> Flow[Mapping[str, str]]:
    """The state of every issue of the repository in the project, by number; archived items left out."""
    variables = {"owner": project.owner, "number": project.number, "field": project.field, "first": PAGE}
    request = question("SymphonyItems", ITEMS, variables, path=config.graphql)
    trail = Trail(GITHUB, request, config.access.base)
    states: dict[str, str] = {}
    while True:
        data = yield from graphql(GITHUB, request)
        found = mapping(mapping(data.get("repositoryOwner")).get("projectV2"))
        if not found:
            raise _no_project(project)
        nodes, cursor, more = page_of(GITHUB, request, found.get("items"))
        states.update(_states(nodes, config))
        trail.count(len(nodes))
        if not more:
            return states
        after = {**variables, "after": trail.cursor(cursor)}
        request = question("SymphonyItems", ITEMS, after, path=config.graphql)


def _states(nodes: Iterable[Any], config: GithubConfig) -> Iterable[tuple[str, str]]:
    for node in nodes:
        content, state = mapping(mapping(node).get("content")), _state(node)
        repo = text(mapping(content.get("repository")).get("nameWithOwner")) or ""
        number = number_of(content)
        if number and state and repo.lower() == f"{config.owner}/{config.repo}".lower():
            yield number, state


def _state(node: Any) -> str | None:
    if mapping(node).get("isArchived") is True:
        return None
    return text(mapping(mapping(node).get("fieldValueByName")).get("name"))


def states_of_some(config: GithubConfig, project: Project, numbers: Sequence[str]) -> Flow[Mapping[str, str]]:
    """The states of these issues, by number; those that are not in the project are left out."""
    states: dict[str, str] = {}
    for start in range(0, len(numbers), BATCH):
        batch = numbers[start : start + BATCH]
        issues = "\n    ".join(f"i{number}: issue(number: {number}) {{ {_ITEM} }}" for number in batch)
        query = f"""query SymphonyItemsOf($owner: String!, $repo: String!, $field: String!) {{
  repository(owner: $owner, name: $repo) {{
    {issues}
  }}
}}"""
        variables = {"owner": config.owner, "repo": config.repo, "field": project.field}
        request = question("SymphonyItemsOf", query, variables, path=config.graphql)
        data = yield from graphql(GITHUB, request)
        for number in batch:
            item = _item(mapping(data.get("repository")).get(f"i{number}"), project)
            if item is not None and (state := _state(item)):
                states[number] = state
    return states


def _item(issue: Any, project: Project) -> Any:
    """The issue's row in the project, or null."""
    for node in items(mapping(mapping(issue).get("projectItems")).get("nodes")):
        found = mapping(mapping(node).get("project"))
        owner = text(mapping(found.get("owner")).get("login")) or ""
        if found.get("number") == project.number and owner.lower() == project.owner.lower():
            return node
    return None


def options(config: GithubConfig, project: Project) -> Flow[Options]:
    """The states of the project. Raises `TrackerError` where there is no such project or field."""
    variables = {"owner": project.owner, "number": project.number, "field": project.field}
    request = question("SymphonyProject", LOOK, variables, path=config.graphql)
    data = yield from graphql(GITHUB, request)
    found = mapping(mapping(data.get("repositoryOwner")).get("projectV2"))
    if not found:
        raise _no_project(project)
    field = mapping(found.get("field"))
    project_id, field_id = text(found.get("id")), text(field.get("id"))
    if project_id is None or field_id is None:
        hint = "tracker.provider.states.field is a single select field of the project"
        raise not_found(GITHUB.service, f"field {project.field!r} in project {project.number}", hint=hint)
    by_name = {
        option["name"]: option["id"]
        for option in items(field.get("options"))
        if text(mapping(option).get("name")) and text(option.get("id"))
    }
    return Options(
        project_id=project_id, title=text(found.get("title")) or "", field_id=field_id, by_name=by_name
    )


def move(config: GithubConfig, project: Project, number: str, state: str) -> Flow[None]:
    """Set the field of an issue's row. Raises `TrackerError` where there is no such state or row."""
    known = yield from options(config, project)
    option = next(
        (key for name, key in known.by_name.items() if normalise_state(name) == normalise_state(state)), None
    )
    if option is None:
        raise no_such_state(GITHUB.service, state, tuple(known.by_name))
    variables = {
        "owner": config.owner,
        "repo": config.repo,
        "number": int(number),
        "field": project.field,
    }
    data = yield from graphql(GITHUB, question("SymphonyItem", OF_ISSUE, variables, path=config.graphql))
    item = text(mapping(_item(mapping(data.get("repository")).get("issue"), project)).get("id"))
    if item is None:
        raise not_found(GITHUB.service, f"issue {number} in project {project.number}")
    ids = {"project": known.project_id, "item": item, "field": known.field_id, "option": option}
    request = question("SymphonyMoveItem", MOVE, ids, path=config.graphql, writes=True)
    data = yield from graphql(GITHUB, request)
    if not mapping(data.get("updateProjectV2ItemFieldValue")):
        raise malformed(GITHUB, "did not carry out SymphonyMoveItem")


def _no_project(project: Project) -> Exception:
    hint = "check tracker.provider.states, and whether the token may read projects"
    return not_found(GITHUB.service, f"project {project.number} of {project.owner}", hint=hint)
