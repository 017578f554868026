"""`python -m symphony.skills`: what it prints, and how it ends."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from symphony.skills.codes import problem
from symphony.skills.command import main
from symphony.skills.lint import github_lines, text_lines
from symphony.skills.model import Code

if TYPE_CHECKING:
    from pathlib import Path

    from unit.skills.conftest import Shelf


@pytest.fixture
def place(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """The shelf as the current directory, with one good, one odd and one malformed skill."""
    shelf.skill("good", "description: About good.", "metadata: {symphony-phases: TEST}")
    shelf.skill("odd", "name: Odd")
    shelf.write("bad", "---\nname: bad\n---\n")
    monkeypatch.chdir(shelf.workspace)
    return shelf


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.usefixtures("place")
def test_list_names_each_skill_with_its_scope_and_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "list") == (
        1,
        "Odd project .symphony/skills/odd/SKILL.md\ngood project .symphony/skills/good/SKILL.md\n",
        "2 skills, 1 error, 2 warnings\n",
    )


def test_list_as_json_has_the_shape_of_the_docs(place: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "--json")
    shape = json.loads(out)
    assert (code, err) == (1, "")
    assert shape["roots"] == [{"scope": "project", "path": ".symphony/skills"}]
    assert shape["skills"][1] == {
        "name": "good",
        "description": "About good.",
        "when_to_use": "",
        "path": ".symphony/skills/good/SKILL.md",
        "scope": "project",
        "enabled": True,
        "listed": True,
        "sha256": hashlib.sha256((place.root / "good/SKILL.md").read_bytes()).hexdigest(),
        "phases": ["TEST"],
        "priority": 50,
    }
    assert {one["code"] for one in shape["problems"] if one["severity"] == "error"} == {"missing_description"}
    assert shape["shadowed"] == []


def test_list_tells_what_is_shadowed(place: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    (place.workspace / "more/good").mkdir(parents=True)
    (place.workspace / "more/good/SKILL.md").write_text("---\nname: good\ndescription: d\n---\n")
    shape = json.loads(run(capsys, "list", "--json", "--extra-path", "more")[1])
    assert shape["shadowed"] == [
        {
            "name": "good",
            "path": "more/good/SKILL.md",
            "scope": "extra",
            "by": ".symphony/skills/good/SKILL.md",
        }
    ]


def test_list_of_what_is_well_ends_well(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.write("a", "\ufeff---\nname: a\ndescription: b\n---\n")
    assert run(capsys, "list", str(shelf.workspace))[0] == 0


@pytest.mark.usefixtures("place")
def test_check_prints_like_a_linter_and_fails_on_errors(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "check")
    assert (code, err) == (1, "2 skills, 1 error, 2 warnings\n")
    lines = out.splitlines()
    assert lines[0].startswith(".symphony/skills/bad/SKILL.md:1:1: error missing_description `description`")
    assert [line.split(": ")[1].split(" `")[0] for line in lines[1:]] == [
        "warning name_charset",
        "warning name_dir_mismatch",
    ]
    assert "info missing_when_to_use" in run(capsys, "check", "--all")[1]


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 1)])
def test_warnings_fail_a_strict_check_only(
    shelf: Shelf, capsys: pytest.CaptureFixture[str], strict: tuple[str, ...], code: int
) -> None:
    shelf.write("a", "\ufeff---\nname: a\ndescription: b\n---\n")
    assert run(capsys, "check", str(shelf.workspace), *strict)[0] == code


def test_a_clean_skill_passes_the_strict_check(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.skill("a")
    assert run(capsys, "check", "--strict", str(shelf.root)) == (0, "", "1 skill, 0 errors, 0 warnings\n")


@pytest.mark.usefixtures("place")
def test_check_annotates_for_github(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "--format", "github", "--all")
    assert code == 1
    assert out.splitlines()[0].startswith(
        "::error file=.symphony/skills/bad/SKILL.md,line=1,col=1,title=missing_description::`description` is"
    )
    assert "::notice file=" in out


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("arguments", [("--json",), ("--format", "json")])
def test_check_as_json_holds_every_problem(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, out, _ = run(capsys, "check", *arguments)
    assert code == 1
    first = json.loads(out)["problems"][0]
    assert (first["code"], first["line"], first["column"]) == ("missing_description", 1, 1)
    assert set(first) == {"path", "severity", "code", "line", "column", "message", "hint"}


def test_prompt_prints_exactly_the_block(place: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "prompt") == (0, f"{place.render().text}\n", "")
    assert "<available_skills>" in run(capsys, "prompt", "--format", "xml")[1]
    shape = json.loads(run(capsys, "prompt", "--json", "--max-skills", "1", "--max-chars", "9000")[1])
    assert shape["listed"] == ["Odd"]
    assert shape["dropped"] == [{"name": "good", "reason": "count"}]
    assert shape["shortened"] == []
    assert shape["block"].startswith("## Available skills")
    assert {one["severity"] for one in shape["problems"]} == {"error", "warning", "info"}


def test_prompt_prints_nothing_where_there_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "prompt", str(tmp_path)) == (0, "", "")


@pytest.mark.usefixtures("place")
def test_show_tells_what_is_known_of_one_skill(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "good")
    assert code == 0
    assert "description: About good.\n" in out
    assert "phases: TEST\n" in out
    assert ".symphony/skills/good/SKILL.md:1:1: info missing_when_to_use" in out
    shape = json.loads(run(capsys, "show", "Odd", "--json")[1])
    assert (shape["name"], [one["code"] for one in shape["problems"]][1:]) == (
        "Odd",
        ["name_charset", "name_dir_mismatch"],
    )


@pytest.mark.usefixtures("place")
def test_show_of_an_unknown_skill_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "show", "none")
    assert (code, out) == (1, "")
    assert err.startswith("error: there is no skill none\nhint: ")


def test_a_directory_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "list", "nowhere")
    assert (code, err.count("\n")) == (2, 2)


@pytest.mark.parametrize("where", [".", ".symphony/skills", ".symphony/skills/good"])
def test_a_repository_a_folder_of_skills_and_one_skill_are_understood(
    place: Shelf, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    assert "good" in run(capsys, "list", str(place.workspace / where))[1]


def test_other_places_are_named_by_options(place: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    place.root.rename(place.workspace / "mine")
    root = str(place.workspace)
    assert "good" in run(capsys, "list", root, "--path", "mine")[1]
    assert f"{root}/mine/bad/SKILL.md:1:1: " in run(capsys, "check", root, "--user-path", f"{root}/mine")[1]
    out = run(capsys, "list", root, "--user-path", f"{root}/mine")[1]
    assert f"good user {root}/mine/good/SKILL.md" in out


def test_an_untrusted_path_cannot_begin_another_line_or_command() -> None:
    one = problem(Code.BOM, "a\n::error::x,y%\u202e/SKILL.md", (1, 1))
    (line,) = github_lines([one], ".")
    assert line.startswith("::warning file=a%0A%3A%3Aerror%3A%3Ax%2Cy%25/SKILL.md,line=1")
    (text,) = text_lines([one], "sub")
    assert text.startswith("sub/a ::error::x,y%/SKILL.md:1:1: warning bom ")


def test_it_runs_as_a_module_and_explains_itself(place: Shelf) -> None:
    command = [sys.executable, "-m", "symphony.skills"]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "examples:" in done.stdout
    done = subprocess.run(
        [*command, "check"], capture_output=True, text=True, check=False, cwd=place.workspace
    )
    assert (done.returncode, done.stdout.count("\n")) == (1, 3)
