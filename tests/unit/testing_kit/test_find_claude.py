from pathlib import Path

import pytest

from symphony.testing.claude_home import find_claude


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """The npm layout: a link on PATH to a Node program inside the package."""
    target = program(tmp_path / "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs")
    link = tmp_path / "node_modules/.bin/claude"
    link.parent.mkdir()
    link.symlink_to(target)
    return link


def test_nothing_is_found_where_there_is_nothing(tmp_path: Path) -> None:
    assert find_claude({"PATH": str(tmp_path)}) is None


def test_the_variable_comes_first_and_is_not_replaced_by_something_else(shim: Path, tmp_path: Path) -> None:
    named = program(tmp_path / "mine")
    path = str(shim.parent)
    assert find_claude({"SYMPHONY_TEST_CLAUDE": str(named), "PATH": path}) == named
    assert find_claude({"SYMPHONY_TEST_CLAUDE": str(tmp_path / "absent"), "PATH": path}) is None


def test_a_program_on_the_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert find_claude({"PATH": str(program(tmp_path / "bin/claude").parent)}) == tmp_path / "bin/claude"


@pytest.mark.parametrize("place", ["@anthropic-ai", "@anthropic-ai/claude-code/node_modules/@anthropic-ai"])
def test_the_native_binary_beside_the_node_program_is_preferred(
    shim: Path, tmp_path: Path, place: str
) -> None:
    native = program(tmp_path / "node_modules" / place / "claude-code-linux-x64/claude")
    assert find_claude({"PATH": str(shim.parent)}) == native


def test_without_the_native_binary_the_node_program_serves(shim: Path) -> None:
    assert find_claude({"PATH": str(shim.parent)}) == shim.resolve()
