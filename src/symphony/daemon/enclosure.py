"""From a workflow to what encloses its agents: which places of the daemon's own they never see (DESIGN 9)."""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import symphony
from symphony.agents.hideaways import hideaways
from symphony.agents.isolation import Isolation
from symphony.config.document import Workflow
from symphony.daemon.state_place import locate
from symphony.workspaces.layout import Layout

__all__ = ["enclosure"]


def enclosure(workflow: Workflow, environment: Mapping[str, str]) -> Isolation | None:
    """The isolation of a workflow's agents; null where none is asked for.

    Of the workspace root only the objects that clones borrow and the pinned skills are left, read-only. The
    programs of this package are seen wherever they lie: agents start our tool server from them.
    An address of `origin` in a local repository may have a password in it.
    """
    workspace = workflow.settings.workspace
    if workspace.isolation == "none":
        return None
    layout = Layout(workspace.root)
    repo = workspace.repo or ""
    return Isolation(
        network=workspace.network == "open",
        readable=(
            *(layout.mirrors, layout.pins, Path(sys.prefix), Path(symphony.__file__).parent),
            *((Path(repo),) if repo.startswith("/") else ()),
        ),
        scratch=(Path(environment.get("TMPDIR") or tempfile.gettempdir()), *_caches(environment)),
        hidden=(workspace.root, *_of_daemons(workflow.path, environment), *_of_person(environment)),
        confidential=(Path(repo, ".git", "config"), Path(repo, "config")) if repo.startswith("/") else (),
    )


def _of_daemons(workflow: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Journals, tokens and control sockets: ours, and where those of other workflows are."""
    state = locate(workflow, environment)
    others = locate(workflow, {key: value for key, value in environment.items() if key in _USUAL}).parent
    named = [environment.get(name) for name in ("XDG_RUNTIME_DIR", "CREDENTIALS_DIRECTORY")]
    return (state, others, *(Path(place) for place in named if place and place.startswith("/")))


_USUAL = frozenset({"XDG_STATE_HOME", "HOME"})


def _caches(environment: Mapping[str, str]) -> tuple[Path, ...]:
    home = environment.get("HOME")
    return () if not home else (Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache")),)


def _of_person(environment: Mapping[str, str]) -> tuple[Path, ...]:
    home = environment.get("HOME")
    return () if not home else hideaways(Path(home))
