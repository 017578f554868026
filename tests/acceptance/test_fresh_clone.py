"""Promise: two commands on a fresh machine, `make demo` and `make test`."""

import os
import subprocess
from pathlib import Path

import pytest

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


def _bare_environment(place: Path) -> dict[str, str]:
    dropped = ("VIRTUAL_ENV", "PYTHONPATH", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "MAKEFLAGS")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return {**kept, **_pip_settings(), "HOME": str(place / "home")}


def _pip_settings() -> dict[str, str]:
    """The user's own pip settings, which would be looked for in the home that the test replaces."""
    home = Path.home()
    candidates = (home / ".config" / "pip" / "pip.conf", home / ".pip" / "pip.conf")
    found = next((path for path in candidates if path.exists()), None)
    return {} if found is None else {"PIP_CONFIG_FILE": str(found)}


@pytest.mark.timeout(400)
def test_make_demo_works_in_a_fresh_clone(clone: Path, place: Path) -> None:
    (place / "home").mkdir()
    env = _bare_environment(place)
    done = _make("demo", cwd=clone, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no model is involved" in done.stdout
    assert "symphony/DEMO-4" in done.stdout


def test_make_alone_prints_help(clone: Path, place: Path) -> None:
    done = _make(cwd=clone, env=_bare_environment(place))
    assert done.returncode == 0
    for target in ("make demo", "make test", "make check"):
        assert target in done.stdout
