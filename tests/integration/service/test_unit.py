"""The units, as systemd itself judges them: without a mistake, and shut off as far as agents allow."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.real import require_program
from symphony.cli.commands.service import Instance, drop_in, unit_template

EXPOSURE = 31  # tenths; what is left open is told, with its reason, at the end of the unit
ODD = 'with space, 50% "x" $HOME'


@pytest.fixture(autouse=True)
def _systemd() -> None:
    require_program("systemd-analyze", "Debian: systemd")


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The units of the machine and of a person, each with an instance whose paths need every escape."""
    program = tmp_path / ODD / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(program))
    for of_user in (False, True):
        place = tmp_path / ("user" if of_user else "system")
        repository = tmp_path / ODD
        repository.mkdir(exist_ok=True)
        made = Instance(
            name="app",
            workflow=repository / "WORKFLOW.md",
            account=None if of_user else "root",
            writable=() if of_user else (repository, Path("/home/alice/app")),
            path=("/usr/bin", "/bin"),
        )
        beside = place / "symphony@app.service.d" / "symphony.conf"
        beside.parent.mkdir(parents=True)
        beside.write_text(drop_in(made), encoding="utf-8")
        (place / "symphony@.service").write_text(unit_template(of_user=of_user), encoding="utf-8")
    return tmp_path


def analyse(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env={**os.environ, "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()},
    )


@pytest.mark.parametrize("kind", ["system", "user"])
def test_systemd_finds_nothing_wrong_with_a_unit_and_its_instance(units: Path, kind: str) -> None:
    done = analyse("verify", f"--{kind}", "--man=no", str(units / kind / "symphony@app.service"))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_same_judge_does_find_a_mistake(units: Path) -> None:
    file = units / "system" / "symphony@app.service.d" / "symphony.conf"
    file.write_text(
        file.read_text(encoding="utf-8") + "RestartSoon=yes\nExecStart=\nExecStart=/nowhere/program\n"
    )
    done = analyse("verify", "--man=no", str(units / "system" / "symphony@app.service"))
    assert done.returncode != 0
    assert "RestartSoon" in done.stderr
    assert "/nowhere/program" in done.stderr


def test_the_exposure_stays_below_the_threshold_that_its_exceptions_make(units: Path) -> None:
    alone = units / "symphony.service"
    shutil.copy(units / "system" / "symphony@.service", alone)
    done = analyse("security", "--offline=true", f"--threshold={EXPOSURE}", str(alone))
    assert done.returncode == 0, done.stdout
    assert analyse("security", "--offline=true", "--threshold=10", str(alone)).returncode == 1
