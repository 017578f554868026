"""`forge`: templates of pull requests, and what opening them needs."""

from typing import TYPE_CHECKING

import pytest

from symphony.config import render_pull_request_text
from symphony.domain import Issue

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

ISSUE = Issue(id="1", identifier="SYM-1", title="A {{ b }}", state="Todo", dispatchable=True)


def file(*forge: str, workspace: str = "  repo: .\n") -> str:
    lines = "".join(f"  {line}\n" for line in forge)
    return f"---\ntracker: {{kind: markdown}}\nworkspace:\n  root: /w\n{workspace}forge:\n{lines}---\nDo it."


REPO = ("kind: github", "repo: octo-team/website", "token: $T")


def test_branches_are_pushed_where_pull_requests_are_opened(parse: "Parse") -> None:
    settings = parse(file(*REPO)).settings
    assert (settings.workspace.push, settings.forge.opens) == ("origin", True)
    for other in (("kind: github",), (*REPO, "open: never")):
        settings = parse(file(*other)).settings
        assert (settings.workspace.push, settings.forge.opens) == ("never", False)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("forge.open", file(*REPO, workspace="")),
        ("workspace.push", file(*REPO, workspace="  repo: .\n  push: never\n")),
        ("forge.title", file(*REPO, "title: '{{ unknown }}'")),
        ("forge.title", file(*REPO, "title: '{% if %}'")),
        ("forge.body", file(*REPO, "body: '{{ summary | split: 7 | join: 3 | nothing }}'")),
    ],
)
def test_what_cannot_be_opened_is_told_at_its_key(refuse: "Refuse", key: str, text: str) -> None:
    (failure,) = refuse(text)
    assert failure.message.startswith(key)
    assert failure.hint
    assert failure.where


def test_templates_that_can_be_rendered_are_taken_as_they_are(parse: "Parse") -> None:
    forge = parse(file(*REPO, "title: '{{ issue.title }}'", "body: '{{ summary }}'")).settings.forge
    assert (forge.title, forge.body) == ("{{ issue.title }}", "{{ summary }}")


def test_sections_of_another_shape_are_told_and_push_nothing(refuse: "Refuse") -> None:
    assert refuse("---\ntracker: {kind: markdown}\nworkspace: 7\nforge: [a]\n---\nDo it.")


def test_a_template_knows_the_issue_and_the_work() -> None:
    values = {"summary": "Done {{ x }}", "commits": 2}
    text = render_pull_request_text("{{ issue.title }}: {{ summary }}, {{ commits }}", ISSUE, values)
    assert text == "A {{ b }}: Done {{ x }}, 2"
    assert "Done {{ x }}" in render_pull_request_text(None, ISSUE, values)


@pytest.mark.parametrize(
    "source", ["{{ unknown }}", "{% for", "{{ 1 | divided_by: 0 }}", "{{ 'nan' | ceil }}"]
)
def test_what_cannot_be_rendered_is_one_line(source: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        render_pull_request_text(source, ISSUE, {})
