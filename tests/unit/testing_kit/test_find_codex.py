from pathlib import Path

import pytest

from symphony.testing.codex_home import find_codex


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """The npm layout: a link on PATH to a Node program inside the package."""
    target = program(tmp_path / "node_modules/@openai/codex/bin/codex.js")
    link = tmp_path / "node_modules/.bin/codex"
    link.parent.mkdir()
    link.symlink_to(target)
    return link


def test_nothing_is_found_where_there_is_nothing(tmp_path: Path) -> None:
    assert find_codex({"PATH": str(tmp_path)}) is None


def test_the_variable_comes_first_and_is_not_replaced_by_something_else(shim: Path, tmp_path: Path) -> None:
    named = program(tmp_path / "mine")
    path = str(shim.parent)
    assert find_codex({"SYMPHONY_TEST_CODEX": str(named), "PATH": path}) == named
    assert find_codex({"SYMPHONY_TEST_CODEX": str(tmp_path / "absent"), "PATH": path}) is None


def test_a_program_on_the_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert find_codex({"PATH": str(program(tmp_path / "bin/codex").parent)}) == tmp_path / "bin/codex"


@pytest.mark.parametrize("place", ["node_modules/@openai", "node_modules/@openai/codex/node_modules/@openai"])
def test_the_native_binary_beside_the_node_program_is_preferred(
    shim: Path, tmp_path: Path, place: str
) -> None:
    native = program(tmp_path / place / "codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex")
    assert find_codex({"PATH": str(shim.parent)}) == native


def test_without_the_native_binary_the_node_program_serves(shim: Path) -> None:
    assert find_codex({"PATH": str(shim.parent)}) == shim.resolve()
