"""Where the binaries of agents from npm are found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit.claude_home import find_claude
from kit.codex_home import find_codex


@dataclass(frozen=True, kw_only=True)
class Known:
    name: str
    find: Callable[[Mapping[str, str]], Path | None]
    variable: str
    node: str
    scope: str
    native: str


CLAUDE = Known(
    name="claude",
    find=find_claude,
    variable="SYMPHONY_TEST_CLAUDE",
    node="@anthropic-ai/claude-code/cli-wrapper.cjs",
    scope="@anthropic-ai",
    native="claude-code-linux-x64/claude",
)
CODEX = Known(
    name="codex",
    find=find_codex,
    variable="SYMPHONY_TEST_CODEX",
    node="@openai/codex/bin/codex.js",
    scope="@openai",
    native="codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture(params=[CLAUDE, CODEX], ids=lambda known: known.name)
def known(request: pytest.FixtureRequest) -> Known:
    chosen: Known = request.param
    return chosen


@pytest.fixture
def shim(tmp_path: Path, known: Known) -> Path:
    """The npm layout: a link on PATH to a Node program inside the package."""
    target = program(tmp_path / "node_modules" / known.node)
    link = tmp_path / "node_modules/.bin" / known.name
    link.parent.mkdir()
    link.symlink_to(target)
    return link


def test_nothing_is_found_where_there_is_nothing(tmp_path: Path, known: Known) -> None:
    assert known.find({"PATH": str(tmp_path)}) is None


def test_the_variable_comes_first_and_is_not_replaced_by_something_else(
    shim: Path, tmp_path: Path, known: Known
) -> None:
    named = program(tmp_path / "mine")
    path = str(shim.parent)
    assert known.find({known.variable: str(named), "PATH": path}) == named
    assert known.find({known.variable: str(tmp_path / "absent"), "PATH": path}) is None


def test_a_program_on_the_path_is_taken_as_it_is(tmp_path: Path, known: Known) -> None:
    own = program(tmp_path / "bin" / known.name)
    assert known.find({"PATH": str(own.parent)}) == own


@pytest.mark.parametrize("place", ["beside", "nested"])
def test_the_native_binary_beside_the_node_program_is_preferred(
    shim: Path, tmp_path: Path, known: Known, place: str
) -> None:
    package = Path(known.node).parts[1]
    nested = Path(known.scope, package, "node_modules", known.scope)
    scope = nested if place == "nested" else Path(known.scope)
    native = program(tmp_path / "node_modules" / scope / known.native)
    assert known.find({"PATH": str(shim.parent)}) == native


def test_without_the_native_binary_the_node_program_serves(shim: Path, known: Known) -> None:
    assert known.find({"PATH": str(shim.parent)}) == shim.resolve()
