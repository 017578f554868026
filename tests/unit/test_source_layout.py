"""The shape of the sources, as far as ruff cannot tell: each check names all that break its rule."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "src" / "symphony" / "cli" / "demo_content"  # the demo's own small program, not ours
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if DEMO not in path.parents)
TOP_LEVEL = (
    "pyproject.toml",
    "README.md",
    "WORKFLOW.md",
    "Makefile",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    ".ci/run",
)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_nothing_is_left_open() -> None:
    marker = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert [_name(path) for path in SOURCES if marker.search(_text(path))] == []


def test_every_exception_from_a_rule_is_justified() -> None:
    unexplained = [
        f"{_name(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(_text(path).splitlines(), 1)
        if ("# noqa" in line and not re.search(r"# noqa: [A-Z0-9, ]+ - \w", line))
        or ("type: ignore" in line and not re.search(r"type: ignore\[[a-z, -]+\]  # \w", line))
    ]
    assert unexplained == []


def test_httpx_stands_behind_one_seam() -> None:
    importers = {
        _name(path) for path in SOURCES if re.search(r"^ *(import|from) httpx", _text(path), re.MULTILINE)
    }
    assert importers == {
        "src/symphony/http/transport.py",
    }


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "common", "helpers", "misc"}
    assert not [path for path in SOURCES if drawers & {path.stem, *path.parent.parts}]


def test_the_top_level_is_as_people_expect_it() -> None:
    assert [name for name in TOP_LEVEL if not (ROOT / name).is_file()] == []
