"""Docs are tested: what they name exists, and what exists is named."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import settings_page
from symphony.cli.main import main
from symphony.config import KEYS, WarningCode, read_workflow_file
from symphony.daemon.admission import admit
from symphony.domain import Category

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.conformance("C-1")
def test_the_table_of_settings_is_made_of_the_models() -> None:
    page = settings_page.PAGE.read_text(encoding="utf-8")
    assert settings_page.current(page) == page, "`make settings` writes it"
    assert [key.name for key in KEYS.values() if not key.meaning] == []


def _commands(group: click.Group, prefix: str = "symphony") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [command for command in _commands(main) if command not in text] == []


def _found_on_pages(pattern: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in re.findall(pattern, page.read_text(encoding="utf-8")):
            yield page.relative_to(ROOT), target


def test_links_between_pages_lead_somewhere() -> None:
    links = _found_on_pages(r"\]\((?!https?:)([^)#]+)")
    assert [link for link in links if not (ROOT / link[0].parent / link[1]).exists()] == []


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def test_anchors_of_links_exist() -> None:
    links = _found_on_pages(r"\]\((?!https?:)([^)#]*#[^)]+)")
    broken = []
    for page, link in links:
        target, _, anchor = link.partition("#")
        aimed = ROOT / page.parent / target if target else ROOT / page
        if aimed.suffix == ".md" and anchor not in _anchors(aimed):
            broken.append((str(page), link))
    assert broken == []


def test_modules_that_pages_name_exist() -> None:
    places = (ROOT, ROOT / "src", ROOT / "src" / "symphony")
    names = _found_on_pages(r"`(?:src/)?((?:\w+/)+\w+\.py)`")
    assert [name for name in names if not any((place / name[1]).exists() for place in places)] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)#]+)", index)}
    pages = {path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "adr"}
    assert sorted(pages - linked - {ROOT / "docs" / "README.md"}) == []


FIELDS_OF_ALL_EVENTS = {"exc_info", "issue_id", "issue_identifier"}  # the page names them once, at its start
LOG_LEVELS = {"debug", "info", "warning", "error", "exception"}


def _calls(path: Path) -> Iterator[ast.Call]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))


def _logged(call: ast.Call) -> list[ast.expr]:
    """The event and what follows it in a call of a logger or of the scheduler's `notify`; else empty."""
    assert isinstance(call.func, ast.Attribute)
    owner = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    if owner.lower().strip("_") in {"log", "logger"} and call.func.attr in LOG_LEVELS:
        return call.args
    if owner == "bugs" and call.func.attr == "contained":
        return call.args
    if owner == "_log" and call.func.attr == "log":
        return call.args[1:]
    return call.args[1:] if call.func.attr == "notify" and owner in {"step", "self"} else []


@cache
def _log_events() -> list[tuple[str, set[str]]]:
    """Every event that our code logs, with the fields that are named at the call."""
    found = []
    ours = ROOT / "src" / "symphony"
    for path in sorted(path for path in ours.rglob("*.py") if not path.is_relative_to(ours / "testing")):
        for call in _calls(path):
            match _logged(call):
                case [ast.Constant(value=str(event)), *_]:
                    fields = {keyword.arg for keyword in call.keywords if keyword.arg}
                    found.append((event, fields - FIELDS_OF_ALL_EVENTS))
                case [odd, *_] if path.name != "bugs.py":  # its callers name the event
                    pytest.fail(
                        f"{path}:{odd.lineno}: an event must be a literal name, to be found in the docs"
                    )
    return found


def _documented_events() -> dict[str, tuple[str, str]]:
    page = (ROOT / "docs" / "log-events.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|", page, re.MULTILINE)
    return {event: (level, fields) for event, level, fields in rows}


def test_every_log_event_is_documented_with_its_fields() -> None:
    documented = _documented_events()
    for event, fields in _log_events():
        assert event in documented, f"docs/log-events.md does not have {event}"
        told = set(re.findall(r"`(\w+)`", documented[event][1]))
        assert fields <= told, f"docs/log-events.md leaves out {sorted(fields - told)} of {event}"


def test_no_log_event_is_documented_that_nobody_logs() -> None:
    assert set(_documented_events()) == {event for event, _ in _log_events()}


def test_the_workflow_shown_can_be_pasted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "workflow-file.md").read_text(encoding="utf-8")
    file = tmp_path / "WORKFLOW.md"
    file.write_text(page.split("```markdown\n")[1].split("```")[0], encoding="utf-8")
    workflow = admit(read_workflow_file(file), environment={"HOME": "/h"}, acknowledged=False)
    assert workflow.warnings == ()
    assert workflow.settings.workspace.repo == str(tmp_path)


def test_the_examples_of_settings_can_be_pasted(tmp_path: Path) -> None:
    file = tmp_path / "WORKFLOW.md"
    whole = {
        "tracker": "tracker: {kind: markdown}",
        "agent": "agent: {budget: {max_tokens_per_issue: 5000000}}",
        "agents": "agents: {reviewer: {kind: claude}}",
    }
    environment = {"HOME": "/h", "GITHUB_TOKEN": "t", "SYMPHONY_STATE_DIR": str(tmp_path)}
    for name, example in settings_page.EXAMPLES.items():
        others = "\n".join(text for section, text in whole.items() if section != name.partition(".")[0])
        file.write_text(f"---\n{others}\n{example}\n---\nWork.\n", encoding="utf-8")
        workflow = admit(read_workflow_file(file), environment=environment, acknowledged=False)
        assert {warning.code for warning in workflow.warnings} <= {WarningCode.NO_BUDGET}, name


def test_the_error_classes_of_a_workflow_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "workflow-file.md").read_text(encoding="utf-8").split("## Errors")[1]
    named = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in page.splitlines() if "|" in line))
    )
    assert named <= {category.value for category in Category}


def _options(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Each command line of a page's plain blocks, as words of the command and its options."""
    blocks = re.findall(
        r"^ *(`{3,})(?:sh)?\n(.*?)^ *\1$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    for _, block in blocks:
        for line in block.splitlines():
            command = line.strip().removeprefix("sudo ").split(" && ")[0].split(" || ")[0]
            if command.startswith("symphony ") and "…" not in command:
                words = shlex.split(command, comments=True)
                yield words[1:], [word for word in words if word.startswith("--")]


def _is_understood(words: list[str], options: list[str]) -> bool:
    command: click.Command | None = main
    for word in words:
        if word.startswith("-") or not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
    if command is None:
        return False
    return set(options) <= {name for parameter in command.params for name in parameter.opts}


def test_command_lines_that_pages_show_are_understood() -> None:
    shown = [(page.name, words, options) for page in PAGES for words, options in _options(page)]
    assert [line for line in shown if not _is_understood(*line[1:])] == []
