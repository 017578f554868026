import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from symphony.config import (
    ResolveError,
    default_workspace_root,
    expand_path,
    reference_name,
    referenced_variables,
    resolve_repository,
)
from symphony.domain import Category

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

BASE = Path("/repo")


@pytest.mark.conformance("C-3")
@pytest.mark.parametrize(
    ("value", "name"), [("$A", "A"), ("$_a1", "_a1"), ("$LINEAR_API_KEY", "LINEAR_API_KEY")]
)
def test_a_reference_is_the_whole_value(value: str, name: str) -> None:
    assert reference_name(value) == name


@pytest.mark.conformance("C-3")
@pytest.mark.parametrize(
    "value", ["$", "$1", "$A ", " $A", "$A/b", "${A}", "a$A", "$$A", "env:A", "$A\n", "", 5, None]
)
def test_anything_else_is_literal(value: object) -> None:
    assert reference_name(value) is None


def test_variables_are_found_at_any_depth() -> None:
    node = {"a": "$A", "b": [{"c": "$B"}, "$A", "x$C", ("$D",)], "d": {"e": {"f": "$E"}}, "g": 5, "h": None}
    assert referenced_variables(node) == {"A", "B", "D", "E"}


def test_the_variables_of_the_tracker_are_secret_names(parse: "Parse") -> None:
    workflow = parse(
        "---\n"
        "tracker: {kind: markdown, api_key: $OLD_KEY, provider: {token: $NEW_KEY, list: [$MORE]}}\n"
        "workspace: {root: $ROOT}\n"
        "codex: {command: $CODEX}\n"
    )
    assert workflow.secret_names == {"OLD_KEY", "NEW_KEY", "MORE"}


@pytest.mark.conformance("C-4")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/abs/x", "/abs/x"),
        ("/abs/../x/./y", "/x/y"),
        ("rel/x", "/repo/rel/x"),
        ("../x", "/x"),
        (".", "/repo"),
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("~//x", "/home/me/x"),
        ("a/~/b", "/repo/a/~/b"),
        ("$X/y", "/repo/$X/y"),
    ],
)
def test_paths_become_absolute(value: str, expected: str) -> None:
    assert expand_path(value, base=BASE, environment={"HOME": "/home/me", "X": "/x"}) == Path(expected)


def test_the_home_of_a_user_comes_from_the_user_database() -> None:
    try:
        me = pwd.getpwuid(os.getuid())
    except KeyError:
        pytest.skip("this user is not in the user database")
    expected = Path(me.pw_dir) / "x"

    assert expand_path("~/x", base=BASE, environment={}) == expected
    assert expand_path("~/x", base=BASE, environment={"HOME": ""}) == expected
    assert expand_path(f"~{me.pw_name}/x", base=BASE, environment={"HOME": "/h"}) == expected


def test_a_user_nobody_knows_is_refused() -> None:
    with pytest.raises(ResolveError, match="~nobody-has-this-name, and that user"):
        expand_path("~nobody-has-this-name/x", base=BASE, environment={})


@pytest.mark.parametrize("text", ["", "  ", "a\0b"])
def test_text_that_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ResolveError, match=r"^must not "):
        expand_path(text, base=BASE, environment={})


def _root(parse: "Parse", root: str, environment: dict[str, str] | None = None) -> tuple[Path, list[str]]:
    text = f"---\ntracker: {{kind: markdown}}\nworkspace:\n  root: {root}\n"
    workflow = parse(text, environment=environment or {})
    assert all(warning.where == "/repo/WORKFLOW.md:4" for warning in workflow.warnings)
    return workflow.settings.workspace.root, [warning.message for warning in workflow.warnings]


@pytest.mark.conformance("C-4")
def test_the_workspace_root_is_relative_to_the_file(parse: "Parse") -> None:
    assert _root(parse, "ws") == (Path("/repo/ws"), [])


@pytest.mark.conformance("C-3")
def test_the_workspace_root_may_be_a_variable(parse: "Parse") -> None:
    assert _root(parse, "$ROOT", {"ROOT": "/data/ws"}) == (Path("/data/ws"), [])
    assert _root(parse, "$ROOT", {"ROOT": "~/ws", "HOME": "/h"}) == (Path("/h/ws"), [])
    assert _root(parse, "$ROOT", {"ROOT": "ws"}) == (Path("/repo/ws"), [])


@pytest.mark.conformance("C-3")
@pytest.mark.parametrize("environment", [{}, {"ROOT": ""}])
def test_an_unset_variable_gives_the_default_root_and_a_warning(
    parse: "Parse", environment: dict[str, str]
) -> None:
    root, warnings = _root(parse, "$ROOT", environment)

    assert root == Path("/tmp/symphony_workspaces")
    assert warnings == ["workspace.root refers to $ROOT, which is not set; the default is used"]


def test_a_dollar_sign_that_is_no_reference_is_warned_about(parse: "Parse") -> None:
    root, warnings = _root(parse, "$ROOT/ws", {"ROOT": "/x"})

    assert root == Path("/repo/$ROOT/ws")
    assert warnings == ["workspace.root begins with a dollar sign, which is used literally"]


def test_the_root_may_lie_below_the_state_directory(parse: "Parse") -> None:
    root, warnings = _root(parse, "$SYMPHONY_STATE_DIR/a/../ws", {"SYMPHONY_STATE_DIR": "/state"})

    assert root == Path("/state/ws")
    assert warnings == []


def test_a_state_directory_that_nobody_told_is_an_unset_variable(parse: "Parse") -> None:
    root, warnings = _root(parse, "$SYMPHONY_STATE_DIR/ws", {})

    assert root == Path("/tmp/symphony_workspaces")
    assert warnings == ["workspace.root refers to $SYMPHONY_STATE_DIR, which is not set; the default is used"]


@pytest.mark.conformance("C-4")
def test_the_default_root_follows_the_temporary_directory() -> None:
    assert default_workspace_root({"TMPDIR": "/var/tmp/x"}) == Path("/var/tmp/x/symphony_workspaces")
    assert default_workspace_root({"TMPDIR": ""}) == Path("/tmp/symphony_workspaces")
    assert default_workspace_root({"TMPDIR": "rel"}).is_absolute()


@pytest.mark.parametrize(
    "value",
    [
        "https://example.org/a/b.git",
        "ssh://git@example.org:22/~me/x",
        "file:///srv/../x",
        "git@example.org:a/b.git",
        "host:~/x",
    ],
)
def test_remote_repositories_are_not_touched(value: str) -> None:
    assert resolve_repository(value, base=BASE, environment={}) == value
    assert resolve_repository("$REPO", base=BASE, environment={"REPO": value}) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (".", "/repo"),
        ("../other", "/other"),
        ("~/x", "/h/x"),
        ("./a:b", "/repo/a:b"),
        ("/srv/x.git", "/srv/x.git"),
    ],
)
def test_local_repositories_are_paths(value: str, expected: str) -> None:
    assert resolve_repository(value, base=BASE, environment={"HOME": "/h"}) == expected
    assert resolve_repository("$R", base=BASE, environment={"HOME": "/h", "R": value}) == expected


def test_repository_and_branch_reach_the_settings(parse: "Parse") -> None:
    text = "---\ntracker: {kind: markdown}\nworkspace: {repo: $R, base_branch: release/1.x}\n"
    workspace = parse(text, environment={"R": "../code"}).settings.workspace

    assert workspace.repo == "/code"
    assert workspace.base_branch == "release/1.x"


@pytest.mark.parametrize("environment", [{}, {"REPO": ""}])
def test_an_unset_variable_is_no_repository(refuse: "Refuse", environment: dict[str, str]) -> None:
    (failure,) = refuse(
        "---\ntracker: {kind: markdown}\nworkspace:\n  repo: $REPO\n", environment=environment
    )

    assert failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert failure.message == "workspace.repo refers to $REPO, which is not set"
    assert failure.where == "/repo/WORKFLOW.md:4"
    assert failure.hint == "set REPO where the daemon starts, or write the value"


@pytest.mark.parametrize("value", ["-x", "--upload-pack=touch x:y"])
def test_a_repository_is_never_an_option_of_git(value: str) -> None:
    with pytest.raises(ResolveError, match="dash"):
        resolve_repository(value, base=BASE, environment={})
    with pytest.raises(ResolveError, match="dash"):
        resolve_repository("$R", base=BASE, environment={"R": value})
