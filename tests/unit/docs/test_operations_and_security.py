"""The pages for operators say what is so: the tests of claims exist, and commands, settings, classes do."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from symphony.cli.failures import ExitCode
from symphony.cli.main import main
from symphony.config import KEYS
from symphony.domain import Category

ROOT = Path(__file__).parents[3]
OPERATIONS, SECURITY = (ROOT / "docs" / f"{name}.md" for name in ("operations", "security"))


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _claims() -> list[tuple[str, str]]:
    return re.findall(r"`(test_\w+\.py)::(test_\w+)`", _text(SECURITY))


def _exists(file: str, name: str) -> bool:
    texts = (place.read_text(encoding="utf-8") for place in (ROOT / "tests").rglob(file))
    return any(f"def {name}(" in text for text in texts)


def test_what_a_claim_is_shown_by_exists() -> None:
    assert [claim for claim in _claims() if not _exists(*claim)] == []


def test_every_row_of_a_table_of_claims_names_its_test() -> None:
    tables = re.findall(r"^\|.*\| shown by \|\n\|[-|]+\|\n((?:\|.*\n)+)", _text(SECURITY), re.MULTILINE)
    assert len(tables) >= 6
    for row in "".join(tables).splitlines():
        assert "::test_" in row, row


def _commands(page: Path) -> Iterator[list[str]]:
    for line in re.findall(r"`(symphony [^`]+)`", _text(page)):
        yield shlex.split(line)[1:]


@pytest.mark.parametrize("page", [OPERATIONS, SECURITY], ids=lambda page: page.stem)
def test_commands_in_the_text_are_understood(page: Path) -> None:
    for words in _commands(page):
        command: click.Command = main
        for word in words:
            if not isinstance(command, click.Group):
                break
            found = command.get_command(click.Context(command), word)
            if found is None:
                break
            command = found
        assert command is not main or words[0] == "--version", words
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, words


@pytest.mark.parametrize("page", [OPERATIONS, SECURITY], ids=lambda page: page.stem)
def test_settings_in_the_text_exist(page: Path) -> None:
    sections = {name.split(".")[0] for name in KEYS if "." in name}
    for name in re.findall(r"`((?:[a-z_]+)(?:\.[a-z_]+)+)[`:]", _text(page)):
        if name.split(".")[0] in sections and name != "tracker.provider.scope":
            assert name in KEYS, name


def test_every_class_of_a_failed_start_exists_with_its_exit_code() -> None:
    rows = re.findall(r"^\| .* \| (`.*`.*) \| (\d) \|", _text(OPERATIONS), re.MULTILINE)
    assert {int(code) for _, code in rows} <= set(ExitCode)
    known = {category.value for category in Category}
    for names, _ in rows:
        assert set(re.findall(r"`(\w+)`", names)) <= known
