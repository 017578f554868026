"""The gate for the shape of the code: rules in prose without a gate do not hold."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src" / "symphony" / "cli" / "demo_content"  # the demo's own small program, not ours
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if DEMO not in path.parents)
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
TOP_LEVEL = (
    "pyproject.toml",
    "README.md",
    "WORKFLOW.md",
    "Makefile",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    ".ci/run",
)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_every_module_says_what_it_is_for_and_stays_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "a module begins with its reason to exist"
    assert text.count("\n") <= MAX_FILE_LINES, "look for the seam"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_functions_stay_small_and_nothing_is_left_open(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"
    assert not re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", text)


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_every_exception_from_a_rule_is_justified(path: Path) -> None:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if "# noqa" in line:
            assert re.search(r"# noqa: [A-Z0-9, ]+ - \w", line), f"line {number}: say why"
        if "type: ignore" in line:
            assert re.search(r"type: ignore\[[a-z, -]+\]  # \w", line), f"line {number}: say why"


def test_httpx_stands_behind_two_seams() -> None:
    importers = {
        _name(path)
        for path in SOURCES
        if re.search(r"^ *(import|from) httpx", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert importers == {
        "src/symphony/cli/client.py",
        "src/symphony/trackers/http/transport.py",
        *(name for name in importers if name.startswith("src/symphony/testing/")),
    }


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "common", "helpers", "misc"}
    assert not [path for path in SOURCES if drawers & {path.stem, *path.parent.parts}]


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_the_top_level_is_as_people_expect_it(name: str) -> None:
    assert (ROOT / name).is_file()
