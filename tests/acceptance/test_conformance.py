"""Promise: every rule of the specification names the test that shows it; the report is generated."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from conformance.matrix import ROWS, Row
from conformance.report import PAGE
from conformance.today import faults_today

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^### (\S+)\n\n(.*?)(?=^#{2,4} |\Z)", re.MULTILINE | re.DOTALL)
SHOWN_BY = re.compile(r"^- \[(\S+)\]\(\.\./\1\): (.*)$", re.MULTILINE)


@cache
def _sections() -> dict[str, str]:
    return dict(SECTION.findall((ROOT / PAGE).read_text(encoding="utf-8")))


@cache
def _tests_in(file: Path) -> set[str]:
    """Names of the tests in a file, as the report writes them, read from the text alone."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if hasattr(inner, "name")}
    return found


@pytest.mark.parametrize("rule", ROWS, ids=lambda rule: rule.id)
def test_a_rule_names_tests_that_are_there_or_what_it_waits_for(rule: Row) -> None:
    section = _sections()[rule.id]
    assert rule.rule in section
    if rule.pending:
        assert f"pending: {rule.pending}" in section
        return
    shown_by = SHOWN_BY.findall(section)
    assert shown_by, "no test shows it"
    for file, names in shown_by:
        assert set(re.findall(r"`([^`]+)`", names)) <= _tests_in(ROOT / file)


@pytest.mark.slow  # it collects every test
@pytest.mark.timeout(400)
def test_the_report_is_what_the_tests_say_today(request: pytest.FixtureRequest) -> None:
    assert faults_today(request.config, ROOT) == []
