"""Docs are tested: what they name exists, and what exists is named."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from symphony.cli import main
from symphony.workflow.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize("key", list(_keys(Settings)))
def test_every_setting_is_documented_with_its_name(key: str) -> None:
    text = (ROOT / "docs" / "workflow-file.md").read_text(encoding="utf-8")
    assert f"`{key}`" in text


def _commands(group: click.Group, prefix: str = "symphony") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


@pytest.mark.parametrize("command", list(_commands(main)))
def test_every_command_is_documented(command: str) -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert command in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_pages_name_exist(page: Path) -> None:
    for name in re.findall(r"`(?:src/)?((?:\w+/)+\w+\.py)`", page.read_text(encoding="utf-8")):
        places = (ROOT / name, ROOT / "src" / name, ROOT / "src" / "symphony" / name)
        assert any(place.exists() for place in places), f"{page.name} names {name}"


def test_every_promise_of_the_readme_has_its_acceptance_file() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    present = {path.name for path in (ROOT / "tests" / "acceptance").glob("test_*.py")}
    assert named == present
