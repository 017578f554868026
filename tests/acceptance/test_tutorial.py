"""Promise: the tutorial works as it is written, without an account and without a model."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_step_without_a_model_works_one_after_the_other(tmp_path: Path) -> None:
    found = re.findall(r"^(`{3,})sh\n(.*?)^\1$", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    steps = [step for _, step in found]
    (tmp_path / "home").mkdir()
    environment = {
        "HOME": str(tmp_path / "home"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "GIT_AUTHOR_NAME": "Reader",
        "GIT_AUTHOR_EMAIL": "reader@localhost",
        "GIT_COMMITTER_NAME": "Reader",
        "GIT_COMMITTER_EMAIL": "reader@localhost",
        "LANG": "C.UTF-8",
    }
    place, shown = tmp_path, []
    for step in steps:
        done = subprocess.run(
            ["bash", "-euc", step], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"
        shown.append(done.stdout)
        place = tmp_path / "greeter"
    text = "".join(shown)
    assert "READY FOR REVIEW" in text
    assert "+def shout(name):" in text
    assert "exit code 1: an issue waits for you" in text
    assert "QUESTIONS" in text
    assert "greet.py | 3 +++" in text, "the answer was taken"
    assert "tests failed with exit code 1" in text, "the claim was checked"
    assert "tests passed" in text
    assert "changelog" in shown[-1], "the new skill is in the block"
