"""Prompts in other template languages: named once, every tag at its line, converted where that is clear."""

import time
from pathlib import Path

import pytest

from harness.rings import mostly_slow
from symphony.config import PromptTemplate, WorkflowError, prompt_in_liquid
from symphony.config.dialects import Dialect, foreign_prompt, liquid_path
from symphony.config.template import is_liquid
from symphony.domain import Category, Failure, Issue

PATH = Path("/repo/WORKFLOW.md")
ISSUE = Issue(
    id="7",
    identifier="SYM-7",
    title="Mend",
    state="Todo",
    dispatchable=True,
    description="All of it.",
    labels=("bug", "web"),
)

GO = """\
{{ .Issue.Identifier }}: {{ .issue.title }}
{{- if .issue.description }}
{{ .issue.description }}
{{ else if eq .issue.state "Todo" }}new{{ else }}none
{{- end }}
{{ range $i, $l := .issue.labels }}{{ if $i }}, {{ end }}{{ $l }}{{ end }}
{{/* not for agents */}}{{ if not .attempt }}first{{ end }}{{ range .issue.labels }}<{{ . }}>{{ end }}
"""
HANDLEBARS = """\
{{issue.identifier}}: {{{issue.title}}}
{{#if issue.description}}
{{issue.body}}
{{else}}none
{{/if}}
{{#each issue.labels}}<{{this}}>{{/each}}{{#each issue.labels as |l|}}[{{l}}]{{/each}}
{{!-- not for agents --}}{{#unless attempt}}first{{/unless}}
"""
JINJA = """\
{{ issue.identifier }}: {{ issue.title | upper }}
{# not for agents #}{% if issue.description is not none %}{{ issue.description | default("x") }}
{% elif not attempt %}new{% endif %}{% if not attempt %}first{% endif %}
{% set kind = issue.state %}{{ kind | lower }}
{% for l in issue.labels %}{{ loop.index }}{{ l }}{% if not loop.last %}, {% endif %}{% endfor %}
{{ issue.labels | join(", ") }} {{ issue.url or "nowhere" }} {% if "bug" in issue.labels %}bug{% endif %}
"""


def refused(text: str) -> tuple[Failure, ...]:
    with pytest.raises(WorkflowError) as caught:
        PromptTemplate.parse(text, path=PATH, first_line=4)
    return caught.value.failures


def rendered(text: str) -> str:
    return PromptTemplate.parse(text, path=PATH).render(ISSUE, None)


@pytest.mark.parametrize(
    ("text", "dialect", "lines"),
    [
        (GO, Dialect.GO, [4, 4, 5, 6, 7, 7, 8, *[9] * 5, *[10] * 6]),
        (HANDLEBARS, Dialect.HANDLEBARS, [4, 5, 7, 8, *[9] * 5, *[10] * 3]),
        (JINJA, Dialect.JINJA, [4, 5, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 9]),
    ],
)
def test_the_language_is_named_once_and_every_tag_of_it_at_its_line(
    text: str, dialect: Dialect, lines: list[int]
) -> None:
    named, *tags = [one for one in refused(text) if one.category is Category.TEMPLATE_PARSE_ERROR]
    assert dialect.value in named.message
    assert sum(dialect.value in one.message for one in tags) == 0
    assert named.where == f"{PATH}:{lines[0]}"
    assert [int(str(one.where).rpartition(":")[2]) for one in tags] == lines
    assert all(one.hint and one.hint.startswith("write {") for one in tags)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (GO, ["SYM-7: Mend", "All of it.", "\nbug, web\n", "first<bug><web>"]),
        (HANDLEBARS, ["SYM-7: Mend", "All of it.", "<bug><web>[bug][web]", "first"]),
        (JINJA, ["SYM-7: MEND", "All of it.", "first", "todo", "1bug, 2web", "bug, web nowhere bug"]),
    ],
)
def test_what_is_converted_says_the_same(text: str, parts: list[str]) -> None:
    prompt = rendered(prompt_in_liquid(text))
    for part in parts:
        assert part in prompt
    assert "not for agents" not in prompt
    assert "none\n" not in prompt


@pytest.mark.parametrize("text", [GO, HANDLEBARS, JINJA])
def test_a_conversion_converts_to_itself(text: str) -> None:
    once = prompt_in_liquid(text)
    assert prompt_in_liquid(once) == once != text


@pytest.mark.parametrize(
    "text",
    [
        "{{ if and .a (not .b) }}x{{ end }}",
        "{{ with .issue.url }}{{ . }}{{ end }}",
        "{{#each-in issue}}x{{/each-in}}",
        "{{> partial}}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{% set x %}y{% endset %}",
        "{{ 'a' if attempt else 'b' }}",
    ],
)
def test_what_needs_more_than_a_tag_is_left_for_a_person(text: str) -> None:
    named, *tags = refused(text)
    assert "and prompts here are Liquid" in named.message
    assert tags
    assert any("leave it out" in str(one.hint) for one in tags)
    assert prompt_in_liquid(text)


def test_unknown_names_are_told_in_the_same_pass() -> None:
    told = refused("{{#if issue.description}}\nx{{/if}}\n{{ identifier }} {{ ticket.body }} {{ teapot }}")
    names = [(one.message.split('"')[1], one.hint) for one in told if "unknown" in one.message]
    assert [name for name, _ in names] == ["identifier", "ticket.body", "teapot"]
    assert [hint for _, hint in names][:2] == [
        "write {{ issue.identifier }}",
        "write {{ issue.description }}",
    ]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("{{ identifier }}", "issue.identifier"),
        ("{{ title | upcase }}", "issue.title"),
        ("{{ issue.body }}", "issue.description"),
        ("{{ issue.number }}", "issue.identifier"),
        ("{{ issue.status }}", "issue.state"),
        ("{{ ticket.title }}", "issue.title"),
        ("{{ task.summary }}", "issue.title"),
        ("{% if description %}x{% endif %}", "issue.description"),
    ],
)
def test_a_name_of_another_program_leads_to_the_field(text: str, meant: str) -> None:
    (failure,) = refused(text)
    assert failure.category is Category.TEMPLATE_RENDER_ERROR
    assert failure.hint == f"write {{{{ {meant} }}}}"
    assert meant in prompt_in_liquid(text)


def test_names_that_mean_nothing_are_not_led_anywhere() -> None:
    (failure,) = refused("{{ teapot }}")
    assert "write {{" not in str(failure.hint)


@pytest.mark.parametrize(
    "text",
    [
        "{{ issue.title }} {{ isue.title }}",
        "{% fro x in issue.labels %}",
        "{% if issue.title contains 'this is string' %}{{ nothing }}{% endif %}",
        "{% assign index = 1 %}{{ index }}{{ nothing }}",
        "{% if issue.title %}",
        "{% render 'x' %}",
    ],
)
def test_a_mistake_in_liquid_is_not_taken_for_another_language(text: str) -> None:
    assert all("prompts here are Liquid" not in one.message for one in refused(text))


@pytest.mark.parametrize(
    "text", ["{% render 'x' %}", "{% include 'x' %}", "{% render 'x' %}{{ .issue.title }}"]
)
def test_a_prompt_is_still_one_file(text: str) -> None:
    assert any("render" in one.message or "include" in one.message for one in refused(text))


@pytest.mark.parametrize(
    "text",
    [
        "{{ issue.title }}",
        "{% raw %}{{ .Values.x }} {{#if}}{% endraw %}",
        "{% comment %}{{ .x }}{% endcomment %}",
        "{% assign this = issue.title %}{{ this }}",
        "Use `{ .x }` and {x}.",
        "{%- if issue.labels -%}x{%- endif -%}",
    ],
)
def test_liquid_is_liquid(text: str) -> None:
    assert prompt_in_liquid(text) == text
    assert foreign_prompt(text, is_liquid) is None
    assert rendered(text) is not None


def test_a_bare_list_is_written_with_commas() -> None:
    assert rendered("{{ issue.labels }}|{{ issue.labels | join: '+' }}|{{ issue.labels.first }}") == (
        "bug, web|bug+web|bug"
    )
    assert rendered("{{ issue.blocked_by }}|") == "|"


@pytest.mark.parametrize(
    "unit",
    mostly_slow(["{{ .a }}", "{{#if a}}", "{#", "{# a #}", "{% elif %}", "{{{", "{{", "}}{{ end }}"], fast=3),
)
def test_a_long_prompt_of_anything_is_judged_soon(unit: str) -> None:
    text = unit * (60_000 // len(unit))
    start = time.thread_time()
    refused(text) if unit not in {"{#", "{# a #}"} else prompt_in_liquid(text)
    assert time.thread_time() - start < 20


def test_the_attempt_of_a_run_is_ours() -> None:
    assert liquid_path("run.attempt") == "attempt"


@pytest.mark.parametrize(
    "tag",
    [
        "{{ range $i, $l := (x) }}",
        "{{ if eq (x) .issue.state }}",
        "{{#each (x)}}",
    ],
)
def test_a_tag_whose_value_is_not_clear_is_left_for_a_person(tag: str) -> None:
    around = "{{ .issue.title }}" if "#" not in tag else "{{#if issue.title}}{{/if}}"
    assert tag in prompt_in_liquid(f"{around} {tag}")


def test_the_number_of_an_item_counts_from_zero() -> None:
    text = prompt_in_liquid("{{#each issue.labels}}{{@index}}{{@first}}{{/each}}")
    assert "{{ forloop.index0 }}{{ forloop.first }}" in text
