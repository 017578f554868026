"""Which checks `symphony init` finds in a repository, and which of them it is sure of."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from symphony.cli.found_checks import found_checks
from symphony.cli.scaffolding import agent_template, compose_workflow


def names(root: Path) -> tuple[list[str], list[str]]:
    """The commands that are sure, and the others."""
    found = found_checks(root)
    return [each.run for each in found if each.sure], [each.run for each in found if not each.sure]


@pytest.mark.parametrize(
    ("file", "content", "sure", "unsure"),
    [
        ("Makefile", ".PHONY: test\ntest: lint\n\tpytest\n", ["make test"], []),
        ("GNUmakefile", "test::\n\ttrue\n", ["make test"], []),
        ("Makefile", "test := x\ntests:\n\ttrue\nall: test\n", [], []),
        ("package.json", json.dumps({"scripts": {"test": "vitest run"}}), ["npm test"], []),
        ("package.json", json.dumps({"scripts": {"test": 'echo "Error: no test specified"'}}), [], []),
        ("package.json", json.dumps({"scripts": {"test": ["a"]}}), [], []),
        ("package.json", json.dumps(["scripts"]), [], []),
        ("package.json", "[" * 100_000, [], []),
        ("pytest.ini", "", [], ["python3 -m pytest"]),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", [], ["python3 -m pytest"]),
        ("pyproject.toml", "[project]\nname = 'x'\n", [], []),
        ("tests/test_a.py", "", [], ["python3 -m pytest"]),
        ("Cargo.toml", "", [], ["cargo test"]),
        ("go.mod", "module x\n", [], ["go test ./..."]),
    ],
)
def test_a_target_or_a_script_is_sure_and_the_rest_is_offered(
    tmp_path: Path, file: str, content: str, sure: list[str], unsure: list[str]
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    assert names(tmp_path) == (sure, unsure)


def test_the_runner_is_that_of_the_lock_file_and_a_fifo_is_no_makefile(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text(json.dumps({"scripts": {"test": "jest"}}))
    (tmp_path / "pnpm-lock.yaml").write_text("")
    (tmp_path / "Makefile").symlink_to("/dev/zero")
    assert names(tmp_path) == (["pnpm test"], [])


def test_what_is_sure_is_in_the_file_and_the_rest_is_a_comment(tmp_path: Path) -> None:
    def section(*files: str) -> tuple[str, Any]:
        for name in files:
            (tmp_path / name).write_text("test:\n")
        checks = found_checks(tmp_path)
        text = compose_workflow("markdown", agent_template("codex"), {}, base_branch="main", checks=checks)
        return text, yaml.safe_load(text.split("---")[1]).get("verify")

    text, verify = section()
    assert verify is None
    assert "# verify:" in text
    text, verify = section("pytest.ini")
    assert verify is None
    assert "#     - python3 -m pytest" in text
    text, verify = section("Makefile")
    assert verify == {"commands": ["make test"]}
    assert "    # - python3 -m pytest" in text
