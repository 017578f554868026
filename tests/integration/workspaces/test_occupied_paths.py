"""Whatever the identifier and whatever stands in the way: a workspace, or a refusal that touched nothing."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import Category, Issue
from symphony.processes.local import LocalHost
from symphony.workspaces import Workspace, WorkspaceError, WorkspaceManager

pytestmark = pytest.mark.conformance("K-3")


def _file(place: Path, _: Path) -> None:
    place.write_text("stale")


def _directory(place: Path, _: Path) -> None:
    place.mkdir()
    (place / "kept").write_text("kept")


def _link_out(place: Path, base: Path) -> None:
    place.symlink_to(base / "outside")


def _link_beside(place: Path, base: Path) -> None:
    place.symlink_to(base / "root" / "neighbour")


def _link_to_root(place: Path, base: Path) -> None:
    place.symlink_to(base / "root")


def _link_to_nothing(place: Path, base: Path) -> None:
    place.symlink_to(base / "nothing")


def _pipe(place: Path, _: Path) -> None:
    os.mkfifo(place)


OCCUPANTS: dict[str, Callable[[Path, Path], None] | None] = {
    "nothing": None,
    "a file": _file,
    "a directory": _directory,
    "a link out": _link_out,
    "a link to a neighbour": _link_beside,
    "a link to the root": _link_to_root,
    "a link to nothing": _link_to_nothing,
    "a pipe": _pipe,
}
WELCOME = {"nothing", "a file", "a directory"}
UNSAFE = {"", ".", ".."}


def _world(base: Path) -> Path:
    for name in ("outside", "root/neighbour"):
        (base / name).mkdir(parents=True)
        (base / name / "precious").write_text("precious")
    return base


def _intact(base: Path) -> bool:
    """Nobody wrote into what does not belong to the issue."""
    theirs = [base / "outside", base / "root" / "neighbour"]
    return all(_names(path) == ["precious"] for path in theirs) and not (base / "nothing").exists()


def _names(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir()]


def _prepare(base: Path, identifier: str) -> Workspace:
    manager = WorkspaceManager(
        LocalHost(),
        WorkspaceSettings.model_validate({"root": base / "root"}),
        HooksSettings(),
        {"PATH": os.environ["PATH"], "HOME": str(base)},
        frozenset(),
    )
    issue = Issue(id="1", identifier=identifier, title="t", state="Todo", dispatchable=True)
    return anyio.run(manager.prepare, issue, None)


def _prepared_or_refused(base: Path, identifier: str) -> Workspace | Category:
    try:
        return _prepare(base, identifier)
    except WorkspaceError as error:
        return error.failure.category


@given(occupant=st.sampled_from(sorted(OCCUPANTS)), identifier=st.text("aZ9._-", min_size=1, max_size=12))
@example(occupant="a link to the root", identifier="a")
@example(occupant="a pipe", identifier="-")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_workspace_takes_the_place_of_nothing_a_file_or_itself_only(occupant: str, identifier: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        base = _world(Path(directory).resolve())
        place = base / "root" / identifier
        occupy = OCCUPANTS[occupant]
        if identifier in UNSAFE or identifier.lower() in {".git", "neighbour"}:
            return
        if occupy is not None:
            occupy(place, base)

        made = _prepared_or_refused(base, identifier)
        if isinstance(made, Category):
            assert occupant not in WELCOME
            assert place.is_symlink() or place.is_fifo(), "what stood there still stands"
        else:
            assert occupant in WELCOME
            assert made.path == place
            assert made.created_now is (occupant != "a directory")
            assert (place / "kept").exists() is (occupant == "a directory")
        assert _intact(base)


@pytest.mark.slow
@given(identifier=st.one_of(st.text(max_size=300), st.text("./\\ \n", max_size=6), st.just("x" * 256)))
@example(identifier="../outside")
@example(identifier="/etc/passwd")
@example(identifier="x" * 255)
@example(identifier="ä" * 240)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_identifier_gives_one_plain_directory_below_the_root_or_none_at_all(identifier: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        base = _world(Path(directory).resolve())
        made = _prepared_or_refused(base, identifier)
        assert _intact(base)
        if isinstance(made, Category):
            assert made is Category.WORKSPACE_UNSAFE_KEY
            assert _names(base / "root") == ["neighbour"]
        else:
            assert made.path.parent == base / "root"
            assert made.path.is_dir()
            assert re.fullmatch(r"[A-Za-z0-9._-]{1,255}", made.path.name)
            assert made.path.name not in UNSAFE
