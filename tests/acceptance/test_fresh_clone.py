"""Promise: two commands on a fresh machine, `make demo` and `make test`."""

import subprocess
from pathlib import Path

import pytest

from harness.bare import bare_environment
from harness.nightly import NIGHTLY

ROOT = Path(__file__).parents[2]


def _make(*arguments: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def clone(place: Path) -> Path:
    """What a new user has: the committed files and nothing else."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there is nothing to clone")
    target = place / "symphony"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(target)], check=True, capture_output=True)
    return target


if NIGHTLY:  # `.ci/run` begins with `make demo` in a fresh clone

    @pytest.mark.timeout(400)
    def test_make_demo_works_in_a_fresh_clone(clone: Path, place: Path) -> None:
        (place / "home").mkdir()
        env = bare_environment(place)
        done = _make("demo", cwd=clone, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no model is involved" in done.stdout
        assert "symphony/DEMO-4" in done.stdout


@pytest.mark.slow
def test_make_alone_prints_help(clone: Path, place: Path) -> None:
    done = _make(cwd=clone, env=bare_environment(place))
    assert done.returncode == 0
    for target in ("make demo", "make test", "make check"):
        assert target in done.stdout
