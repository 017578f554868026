import shutil
import subprocess

import pytest

from manual.page import PAGE, page


def test_the_man_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make man"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_troff_has_nothing_to_object_to() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", str(PAGE)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
